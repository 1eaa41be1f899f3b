// Package agent wires what runs next to one etcd member: the conversation with launch, the start decision, the member
// Lease, the leader's duties, backups and the HTTP endpoints.
//
// It owns only lifetimes. Its invariant: the core (socket, decision, Lease) survives an error or a panic of
// everything else, and never waits for the Kubernetes API. It never decides how a member starts, which member may be
// removed, or what a Lease means.
//
// # Requests to the Kubernetes API
//
// In a steady state each agent patches its member Lease every 15 s: 1/15 request per second. The leader's agent
// renews the leader's Lease every 15 s and reads the record every 30 s: 1/10 more. With three members that is (3/15 +
// 1/15 + 1/30) / 3 = 0.1 requests per second and member. With backups it renews two more Leases, every 15 s and every
// minute: 1/12 request per second. etcd_agent_kubernetes_requests_total counts them.
package agent
