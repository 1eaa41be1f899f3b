// Package guard turns a panic in a goroutine of a backup into an error with the stack.
//
// An errgroup does not recover: a panic in one of its goroutines ends the process, and everything else that the agent
// does for its etcd.
//
// It never hides a panic, never tries anything again, and knows nothing of backups.
package guard
