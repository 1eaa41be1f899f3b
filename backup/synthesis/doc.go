// Package synthesis owns how a full is made out of another one and the deltas that follow it, without an etcd, so that a
// restore has less to apply.
//
// It puts an object beside those that it was made of, and never replaces or deletes one. What it makes is what the cluster
// would have sent at that revision, but for what no delta tells: users, roles, alarms, members, the index of the log and
// compactions are as of the full that etcd sent, and leases too, but for those that were added because keys refer to them.
package synthesis
