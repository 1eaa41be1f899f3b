// Package boltcheck reads a whole database of etcd and names the page that is damaged: agent/datadir before etcd runs on it, and
// backup/restore before bbolt opens it, which panics at such a page in a goroutine of its own.
//
// It only reads the file that it is given, whole pages of it, and never through a memory map. What it could not read is an error, and
// no DamagedError.
package boltcheck
