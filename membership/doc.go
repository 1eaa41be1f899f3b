// Package membership owns what a member of an etcd cluster is: the member list as a quorum of the cluster reports it, the
// calls that change it, and the policies that say which member may be removed, how one that is to go leaves, which
// learner may be promoted, and whose database may be defragmented.
//
// The calls are thin: one RPC each, no retries, and an error that names the operation and the member. The policies are
// pure tables. The package never decides by itself when to call, never reads Kubernetes, and never takes an answer of
// another cluster, or of a member without a quorum, for an answer.
package membership
