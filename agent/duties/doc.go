// Package duties owns the duties of the leader's agent. It publishes the member list in the cluster record, removes
// the member that druid asked to remove, removes superfluous members, defragments one member at a time, resolves the
// alarm NOSPACE, and compares members for a version change. It moves leadership before a leader ends. Two duties
// belong to every agent of a joined cluster: to move leadership to a member of the EtcdCluster, and to remove the
// last one of them.
//
// Its invariant: a duty runs under a context that ends when raft leadership or the leader's Lease is lost, and the
// raft term is read again before every irreversible call. It acts only on a record that was read just before. It
// removes a leaving member only after it claimed the removal on the member's Lease, never another member at the same
// time, at most one superfluous member per grace period, and never below a healthy quorum. It never defragments a
// member while another one is unhealthy, nor the leader of other members.
package duties
