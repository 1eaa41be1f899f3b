// Package storetest is the conformance suite of backup stores. Each kind of store runs it on the real thing. It knows
// stores only by their interface. A Subject reports what it cannot see through that.
package storetest
