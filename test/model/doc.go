// Package model owns the model test of the protocol: an abstract etcd, volumes, Leases, Pods, agents and druids, which take
// every decision by the product's own functions and are driven through interleavings and faults that no real cluster can
// be made to take on demand. docs/explanation/model.md says what is modelled and what is not.
//
// It holds tests alone. It must never decide anything itself that the product decides: a copy of a policy here would prove
// the copy.
package model
