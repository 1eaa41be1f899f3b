// Package backups owns the loop that keeps a cluster backed up. It decides when to take a full backup and where the
// delta backups continue, runs both against the member next to it, reports progress on the two backup Leases, and
// applies retention.
//
// It runs while this member is the raft leader. For that it needs no Kubernetes API: if two agents both act as
// leader, they write overlapping deltas, and a restore reads them as one. Only deleting backups needs the leader's
// Lease too.
//
// It never writes to the cluster and never delays the start or the end of etcd. It never saves under an unknown
// lineage, never continues after a gap without a new full backup, and deletes only what retention names from a
// listing made just before.
package backups
