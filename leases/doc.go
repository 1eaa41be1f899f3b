// Package leases owns the Lease records that are the only channel between druid and the agents: their names, what they
// say, how alive they are, their renewal and the election that is gated on raft leadership.
//
// It never decides what follows from a Lease, never deletes one, and never turns a Lease that is missing, unreadable or
// stale into an order: all three are unknown. Clocks of different machines are never compared.
package leases
