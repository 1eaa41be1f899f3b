// Package restore owns how a full backup and its delta backups become a data directory of etcd, without an etcd. It
// streams the database to disk, appends the records of the deltas as they are, and adds a log with the members of a
// new cluster.
//
// A data directory appears complete, by one rename, or not at all. An existing one is never touched. Everything is
// verified while it is read. What does not fit together (another lineage, a gap, two histories) is refused by name,
// so a restore never produces a state that the cluster did not have. No lessor runs, so nothing expires meanwhile.
package restore
