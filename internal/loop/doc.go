// Package loop is what every long-running loop needs: a pause that ends with its context, a doubling back-off, a signal to
// all who wait for a change, a note of what was reported last, and panics as errors.
//
// An errgroup does not recover: a panic in one of its goroutines ends the process, and everything else that the agent
// does for its etcd.
//
// The package never hides a panic, starts no goroutine, and never tries anything again by itself.
package loop
