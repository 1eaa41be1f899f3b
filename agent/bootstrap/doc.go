// Package bootstrap owns how this member starts: it observes the volume, the record, the member's own Lease and the
// member list, decides by one table, and acts until etcd may start; after a start it follows the member until it votes.
//
// Rules that hold above the table:
//
//   - R1. Resume is the only decision made without Kubernetes. Every other decision, and every call that changes the
//     member list, needs a fresh read of the record and of the member's own Lease, whose Pod UID is ours and which is not
//     retired.
//   - R2. Every bootstrap of a raft group has a token of its own, put into the record by compare-and-set before any data is
//     written.
//   - R3. Data whose stamp is unlike us is foreign or stale, never intact. So is a volume that went back in time.
//   - R4. A raft ID is started on a volume once: listed without usable data is a replacement under a new ID.
//   - R5. That a quorum no longer lists us is believed only from two linearizable lists an election timeout apart.
//
// With the Kubernetes API out of reach a member with intact data resumes, because an outage of the API must not stop
// restarts; what only the Lease can report, that the volume went back in time or the Pod was superseded, is then
// not known. The Lease is asked for first, within a bound of seconds.
//
// It never deletes data in the start that finds it bad, never touches the volume without launch's lock, and never starts
// etcd such that it could form a second cluster.
//
// A backup store is asked for nothing but where a cluster would be formed: what runs once, starts again without it. What was
// restored lies next to the data directory until it is whole; then it is stamped, and then it is renamed. So data that an
// etcd may have run on is never restored over, and what a death left half is made again under a claim of its own.
//
// The rows of a cluster that is recovering have their place in the table and are reserved: nothing gives such an order yet,
// so the facts that lead to them cannot arise before recovery brings both the facts and the acts.
package bootstrap
