// Package start owns how this member starts. It observes the volume, the cluster record, the member's own Lease
// and the member list. It decides by one table, and acts until etcd may start. After a start it follows the member
// until it votes.
//
// These rules hold above the table:
//
//   - R1. Only Resume is decided without Kubernetes. Every other decision, and every call that changes the
//     member list, needs a fresh read of the record and of the member's own Lease. That Lease must have the UID
//     of this Pod and no removal request.
//   - R2. Every bootstrap of a raft group has a token of its own. The agent writes it to the record by
//     compare-and-set before it writes any data.
//   - R3. Data whose identity file differs is foreign or stale, never intact. So is a volume that went back in
//     time.
//   - R4. A raft ID is started on a volume once. A listed member without usable data is replaced under a new
//     ID.
//   - R5. The agent believes that a quorum no longer lists this member only after two linearizable lists, an
//     election timeout apart.
//
// While the Kubernetes API is unreachable, a member with intact data resumes, because an outage of the API must not
// prevent restarts. What only the Lease knows is then unknown: whether the volume went back in time, and whether
// another Pod replaced this one. The agent first tries to read the Lease, for a few seconds.
//
// The package never deletes data in the start that finds it bad, never touches the volume without launch's lock, and
// never starts etcd in a way that could form a second cluster.
//
// It asks a backup store only before a bootstrap: a member of a formed cluster starts without it. Restored data lies
// next to the data directory until it is complete. Then the agent writes its identity file and renames it. So a
// restore never overwrites data that an etcd used, and an incomplete restore is repeated under a new claim.
//
// A recovery order has the agent stop an etcd without a quorum. The agent writes the order to the identity file before it
// acknowledges it. The selected member builds the new raft group next to its old data, and moves nothing before the
// cluster record is Formed. So a released order needs no repair of the volume.
package start
