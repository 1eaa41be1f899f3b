// Package store owns what a backup store is: the five calls that everything else under backup builds on, the grammar of
// keys, the errors that can be reported apart, and the configuration of both kinds of store. It links neither of them:
// package open does, dir is a directory, s3 is a bucket.
//
// A store never shows half an object, never replaces an object that was put with IfAbsent, and never takes "could not
// ask" for "is not there": an error that is none of the sentinels below means that the answer is unknown. Nothing here
// knows what the objects mean.
package store
