// Package leases owns the Leases, the only channel between druid and the agents: their names, their content, their
// liveness, their renewal, and the election that depends on raft leadership.
//
// It never decides what follows from a Lease and never deletes one. A Lease that is missing, unreadable or stale is
// unknown, and never a request. The package never compares clocks of different machines.
package leases
