// Package boltcheck reads a complete database of etcd and names the damaged page. agent/datadir calls it before etcd
// uses the database, and backup/restore before bbolt opens it, because bbolt panics at such a page in a goroutine of
// its own.
//
// It only reads the given file, page by page, and never through a memory map. What it could not read is an error, and
// no DamagedError.
package boltcheck
