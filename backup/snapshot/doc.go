// Package snapshot owns full backups: how etcd's snapshot stream becomes an object of a store in one pass, and how
// that object is read back. docs/reference/backup-format.md has its layout.
//
// An object appears only after etcd's own checksum matched the stream, and a Reader ends in io.EOF only when all
// checksums match. The revision in the name of an object is known to be in it. The package never writes to disk, and
// holds at most a few MiB, whatever the size of the database.
package snapshot
