// Package guard owns what becomes of a panic in a goroutine of a backup: an error like any other, with the stack.
//
// An errgroup recovers nothing: a panic in one of its goroutines ends the process, and with it all else that the agent
// does for its etcd.
//
// It never hides a panic, never tries anything again, and knows nothing of backups.
package guard
