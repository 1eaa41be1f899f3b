// Package verify owns verification. It restores what a store holds into a scratch directory, and compares the result
// with what etcd reported when it was saved.
//
// It calls a backup verified only after a complete restore that compared equal, and broken only what it read and
// found so. What could not be queried, read, written or compared is unknown. It never writes to the store, and writes
// only to its scratch directory. No etcd runs, and its memory does not grow with the number of keys.
package verify
