// Package restore owns how a data directory of etcd is made out of a full and the deltas that follow it, without an etcd:
// the database is streamed to disk, the records of the deltas are appended to it as they are, and a log with the members
// of a new cluster is put next to it.
//
// A data directory appears whole, by one rename, or not at all; one that is there is never touched. All that was read is
// verified, and what does not fit together (another lineage, a hole, two histories) is refused by name: a restore never
// gives a state that the cluster did not have. No lessor runs, so nothing expires meanwhile.
package restore
