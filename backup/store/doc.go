// Package store owns what a backup store is: the five calls that the other packages under backup use, the grammar of
// keys, the errors that can be distinguished, and the configuration of both kinds of store. It links neither of them:
// package open does. Package dir is a directory, s3 is a bucket.
//
// A store never shows an incomplete object and never replaces an object that was put with IfAbsent. An error that is
// none of the sentinels below means that the answer is unknown, never that an object is absent. The package does not
// know what the objects mean.
package store
