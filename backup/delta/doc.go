// Package delta owns the delta backups: their format (docs/reference/backup-format.md), the Writer that builds one in
// memory, the Reader that verifies one while it streams, and the Recorder, which watches etcd and saves them to a
// store.
//
// A delta holds complete revisions, each once, without a gap, as the records of etcd's own database. A restore
// appends them and translates nothing. A delta never holds half a revision. A Recorder never omits a revision: it
// saves later what it cannot save now, and it ends with an error when it cannot see a revision any more.
package delta
