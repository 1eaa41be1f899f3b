package duties

import (
	"context"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// maxUnanswered is how many comparisons of the other voters may end without a result before the removal continues. Three of them take more
// than half a minute. Data that cannot be compared is not known to differ, and the regular comparisons of such voters have no result either.
const maxUnanswered = 3

// othersData is what is known of the data of the voters that stay. The zero value is not compared yet.
type othersData struct {
	same rules.Answer
	// unanswered counts the comparisons without a result, and next is when another one is due.
	unanswered int
	next       time.Time
}

// compareOthers compares the data of the other desired voters before a voter is removed, if they are healthy. It compares until they have the
// same data, with pauses: each comparison reads complete databases, and can take minutes. It returns whether it compared. The witness is old
// then, and no step may follow from it.
func (r *removalRequest) compareOthers(ctx context.Context, w witness) (compared bool) {
	o := &r.draining.others
	if r.Compare == nil || w.entry != membership.VoterEntry || r.record.Leaving || o.same == rules.Yes || time.Now().Before(o.next) ||
		!r.draining.slot.Orders(r.draining.slot.Member, r.draining.lease.Removal) ||
		membership.OthersHealthy(w.view, w.member.ID, w.health, r.desired) != rules.Yes {
		return false
	}
	var others []membership.Member
	for _, m := range w.view.Voters() {
		if m.ID != w.member.ID && r.desired(m) == rules.Yes {
			others = append(others, m)
		}
	}
	began := time.Now()
	found, _ := compareAmong(ctx, r.Dial, w.view, others, 0)
	if o.same = membership.OthersAgree(w.view, w.member.ID, found.Contents, r.desired); o.same == rules.Unknown {
		o.unanswered++
	}
	r.comparison.now = r.comparison.now || o.same == rules.No // it marks the member whose data differs
	o.next = time.Now().Add(max(r.comparePause, compareShare*time.Since(began)))
	return true
}

// othersAgree says whether the other voters have the same data, as far as comparisons since the request said.
func (r *removalRequest) othersAgree(w witness) rules.Answer {
	o := r.draining.others
	switch {
	case r.Compare == nil:
		return rules.Yes
	case membership.OthersAgree(w.view, w.member.ID, r.comparison.found.Contents, r.desired) == rules.No:
		return rules.No
	case o.same == rules.No:
		return rules.No
	case o.same != rules.Yes && o.unanswered < maxUnanswered:
		return rules.Unknown
	default:
		return rules.Yes
	}
}

// desired says whether the record lists a member.
func (r *removalRequest) desired(m membership.Member) rules.Answer {
	return membership.Desired(m, r.record.Members, r.PeerURL)
}

// isClaimed says whether an agent may have claimed the removal for the slot, as the Lease was last read. druid withdraws only a request.
func (r *removalRequest) isClaimed() bool {
	slot, state := r.record.PendingRemoval, r.draining.lease.Removal.State
	return slot != nil && (r.draining.slot != *slot || state != leases.RemovalRequested && state != leases.RemovalNone)
}
