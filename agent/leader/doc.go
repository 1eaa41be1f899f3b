// Package leader owns the duties that exactly one agent of a cluster performs, the one next to the raft leader: it
// publishes the member list in the cluster record, takes out the member that druid asked to go, removes members that
// no one wants, and defragments one member after another. It also hands leadership over before a leader ends. Next to it
// stand two duties of every agent in a group that was joined: to bring leadership to one of ours, and to take the last of ours out.
//
// Its invariant: a duty runs under a context that ends when either raft leadership or the leader's Lease is lost, and the
// raft term is read again just before every call that cannot be undone. It never acts on a record that was not read just
// now, never removes a member on its way out before it claimed that on the member's Lease, never another one next to it,
// never more than one that no one wants per grace period, and never below a healthy quorum. It never stalls a member by a
// defragmentation while any other one is not well, nor the leader of others.
package leader
