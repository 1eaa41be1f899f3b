// Package s3 is a backup store in an S3 bucket, on AWS or a compatible store.
//
// It uses what all of them have: put, multipart upload, ranged get, list, delete and If-None-Match. An object of up
// to one part is one request. A longer one is a multipart upload, which is invisible until it is complete and is
// aborted when it fails. Each put has a token in its metadata, so that the package recognises its own put when the
// answer was lost. All compared times come from the clock of the store.
//
// It reads a credential only when it needs it, and keeps none. It never takes an answer that might not come from the
// bucket for "absent", and never calls an object encrypted unless the store confirmed it.
package s3
