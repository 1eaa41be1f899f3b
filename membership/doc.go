// Package membership owns what a member of an etcd cluster is: the member list as a quorum reports it, the calls that
// change it, and the policies for removal, promotion, drain, defragmentation, the alarm NOSPACE and version changes.
//
// The calls are thin: one RPC each, no retries, and an error that names the operation and the member. The policies
// are pure tables. The package never decides when to call and never reads Kubernetes. It never accepts an answer from
// another cluster, or from a member without a quorum.
package membership
