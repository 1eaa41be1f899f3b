// Package backups owns the loop that keeps a cluster backed up: it decides when a full is taken and where the deltas go
// on, runs both against the member next to it, writes to the two backup Leases how far it has come, and lets go what retention
// does not keep.
//
// It runs while this member is the raft leader and needs no Kubernetes API for that: two agents that both believe to lead
// write overlapping deltas, which restore as one. Only what deletes backups needs the leader's Lease too.
//
// It never writes to the cluster, never holds up the start or the end of etcd, never saves under a lineage that is not
// known, never goes on after a gap without a new full, and never deletes what retention did not name from a listing of
// just now.
package backups
