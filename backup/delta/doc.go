// Package delta owns the incremental backups: the format of a delta (docs/reference/backup-format.md), the Writer that builds one in
// memory, the Reader that verifies one while it streams, and the Recorder, which watches etcd and fills a store with them.
//
// A delta holds whole revisions, each of them once, without a gap, as the records that etcd's own database holds: anyone who
// restores appends them and translates nothing. It never holds half a revision, and a Recorder never leaves out a
// revision: what it cannot save it saves later, and what it cannot see any more it reports and ends.
package delta
