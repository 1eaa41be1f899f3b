// Package agent wires what runs next to one etcd member: the conversation with launch, the start decision, the member's
// Lease, the leader's duties, and the HTTP endpoints.
//
// It owns lifetimes alone. Its invariant: the core (the socket, the decision, the Lease) outlives an error or a panic of
// everything else, and nothing in it waits for the Kubernetes API. It never decides how a member starts, who may be
// removed or what a Lease means.
//
// # What it costs the Kubernetes API
//
// In a steady state each agent patches its member's Lease every 15 s: 1/15 request per second. The leader's agent renews
// the leader's Lease every 15 s and reads the record every 30 s: 1/10 more. Over three members that is
// (3/15 + 1/15 + 1/30) / 3 = 0.1 requests per second and member. Where it backs up it renews two Leases more, each 15 s and
// each minute: 1/12 of a request per second. etcd_agent_kubernetes_requests_total counts them.
package agent
