package main

import (
	"sync"

	"go.etcd.io/etcd/tests/v3/robustness/identity"
)

// usesOfLease is how often a client uses the ID of an etcd lease. Without faults it revokes the lease after about two uses.
const usesOfLease = 8

// leaseIDs are the IDs of the etcd leases that clients use. A client of the traffic keeps an ID until a revocation succeeds. If only the answer
// of the revocation is lost, each later request with the ID fails, but is in the log of etcd. The validation would have to find a place
// for each of them, which takes more time and memory than it has.
type leaseIDs struct {
	identity.LeaseIDStorage
	mu   sync.Mutex
	uses map[int]int
}

func newLeaseIDs() *leaseIDs {
	return &leaseIDs{LeaseIDStorage: identity.NewLeaseIDStorage(), uses: map[int]int{}}
}

// LeaseID returns the ID of the lease of a client, or 0 if it has none or used it too often.
func (l *leaseIDs) LeaseID(client int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses[client]++; l.uses[client] > usesOfLease {
		l.RemoveLeaseID(client)
	}
	return l.LeaseIDStorage.LeaseID(client)
}

// AddLeaseID gives a client the ID of a new lease.
func (l *leaseIDs) AddLeaseID(client int, id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses[client] = 1 // the client uses a new ID at once
	l.LeaseIDStorage.AddLeaseID(client, id)
}
