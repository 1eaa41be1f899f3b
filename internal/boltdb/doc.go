// Package boltdb reads a bbolt database by its pages, which bbolt does not export. Check reads all pages and names the
// damaged one: agent/datadir calls it before etcd uses a database, and backup/restore before bbolt opens it, because bbolt
// panics at such a page in a goroutine of its own. Lookup finds single keys in a stored database.
//
// The package only reads, page by page, and never through a memory map. The bytes may be damaged: damage is a
// DamagedError, and nothing panics. A read that failed is not damage.
package boltdb
