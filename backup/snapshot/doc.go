// Package snapshot owns full backups: how etcd's snapshot stream becomes an object of a store in one pass, and how that
// object is read back. docs/reference/backup-format.md has its layout.
//
// Nothing is called whole that was not checked: an object appears only after etcd's own checksum proved the stream, and a
// Reader ends in io.EOF only when all checksums hold. The revision in an object's name is proven to be in it. The package
// never writes to disk, and never holds more than a few MiB, however large the database is.
package snapshot
