// Package s3 is a backup store in an S3 bucket, on AWS or anything that speaks its protocol.
//
// It uses what all of them have: put, multipart upload, ranged get, list, delete, If-None-Match. An object of up to one
// part is one request; a longer one is a multipart upload, which shows nothing until it is completed and is aborted when
// it fails. Each put bears a token in its metadata, so that a put whose answer was lost can be reported from one that someone
// else made. All times that are compared come from the store's own clock.
//
// Nothing here reads a credential before it is needed or keeps one, takes an answer that may have come from somewhere
// else than the bucket for "is not there", or calls an object encrypted that the store did not say so of.
package s3
