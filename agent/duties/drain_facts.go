package duties

import (
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// othersAgree says whether the other voters have the same data. It requests a comparison if there was none since the slot was first seen, or
// if that did not say enough.
func (r *removalRequest) othersAgree(w witness, desired func(membership.Member) rules.Answer) rules.Answer {
	c := r.comparison
	if r.Compare == nil {
		return rules.Yes
	}
	agree := rules.Answer(rules.Unknown)
	if c.comparedAt.After(r.draining.seen) {
		agree = membership.OthersAgree(w.view, w.member.ID, c.found.Contents, desired)
	}
	if agree == rules.Unknown && (c.comparedAt.Before(r.draining.seen) || time.Since(c.comparedAt) >= r.comparePause) {
		c.now = true
	}
	return agree
}

// isClaimed says whether an agent may have claimed the removal for the slot, as the Lease was last read. druid withdraws only a request.
func (r *removalRequest) isClaimed() bool {
	slot, state := r.record.PendingRemoval, r.draining.lease.Removal.State
	return slot != nil && (r.draining.slot != *slot || state != leases.RemovalRequested && state != leases.RemovalNone)
}
