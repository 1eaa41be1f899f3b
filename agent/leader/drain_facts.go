package leader

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// witness is what etcd says of a drain at one look.
type witness struct {
	self   Cluster
	view   membership.View
	health map[uint64]rules.Answer
	leads  rules.Answer
	// member is the entry of the one that is to go, zero where there is none; entry is what it is.
	member membership.Member
	entry  membership.Entry
}

// witness asks every voter for its health, and our own member whether it still leads.
func (r *round) witness(ctx context.Context, self Cluster, view membership.View) witness {
	w := witness{self: self, view: view, health: r.health(ctx, view), leads: r.leading(ctx, view)}
	name := r.draining.slot.Member
	claimed, _ := leases.ParseID(r.draining.lease.Retire.MemberID) // a mark that was read has good IDs
	w.member, w.entry = membership.EntryOf(view, name, r.PeerURL(name), claimed)
	return w
}

func (r *round) leading(ctx context.Context, view membership.View) rules.Answer {
	status, err := r.localStatus(ctx)
	if err != nil {
		return rules.Unknown
	}
	return rules.AnswerOf(leads(status, view))
}

func (r *round) localStatus(ctx context.Context) (status membership.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := r.Dial(ctx, r.Local)
	if err != nil {
		return membership.Status{}, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return membership.ReadStatus(ctx, client, r.Local)
}

// drainFacts of what etcd says, of the record and of the mark as they were last read.
func (r *round) drainFacts(w witness, firm rules.Answer) membership.DrainFacts {
	desired := func(m membership.Member) rules.Answer {
		return membership.Desired(m, r.record.Members, r.PeerURL)
	}
	f := membership.DrainFacts{
		Firm:    firm,
		Mark:    MarkOf(r.record.Retiring, r.draining.slot.Member, r.draining.lease.Retire, w.self, w.member.ID),
		Leads:   w.leads,
		Entry:   w.entry,
		Self:    rules.AnswerOf(r.draining.slot.Member == w.self.Member || w.member.ID != 0 && w.member.ID == w.self.MemberID),
		Quorum:  membership.QuorumWithout(w.view, w.member.ID, w.health),
		Others:  membership.OthersHealthy(w.view, w.member.ID, w.health, desired),
		Joining: membership.OthersJoin(w.view, w.member.ID, desired),
	}
	if r.record.Leaving {
		// All go: no one waits for another to come or to heal, and the quorum of all that stay is what counts.
		f.Others, f.Joining = rules.Yes, rules.No
	}
	if Replaces(r.record, r.draining.slot.Member) {
		f.Joining = rules.Yes
	}
	f.Waited = r.waited(f)
	return f
}

// waited says whether a claim is hindered for so long that it is to be handed back.
func (r *round) waited(f membership.DrainFacts) rules.Answer {
	free := f
	free.Waited = rules.Yes
	switch {
	case membership.DecideDrain(free).Verdict != membership.HandBack:
		r.draining.hindered = time.Time{}
	case r.draining.hindered.IsZero():
		r.draining.hindered = time.Now()
	}
	return rules.AnswerOf(!r.draining.hindered.IsZero() && time.Since(r.draining.hindered) >= r.handBack)
}

// MarkOf says what the mark on the Lease of the member called name means to the agent of self, where the record's slot is
// retiring and the member is listed as id, 0 for not at all.
func MarkOf(retiring *leases.Retiring, name string, mark leases.Retirement, self Cluster, id uint64) membership.Mark {
	switch {
	case mark.State == leases.RetireUnreadable:
		return membership.MarkUnreadable
	case mark.State == leases.RetireNone, !retiring.Orders(name, mark):
		return membership.NotAsked
	case mark.State == leases.RetireRequested:
		return membership.Requested
	default:
		return claimOf(mark, self, id)
	}
}

// claimOf is what a claim or an acknowledgement means.
func claimOf(mark leases.Retirement, self Cluster, id uint64) membership.Mark {
	ours := mark.ClusterID == leases.FormatID(self.ClusterID)
	switch {
	case mark.State == leases.RetireDone && ours:
		return membership.Retired
	case mark.State == leases.RetireDone:
		return membership.NotAsked // it answers for another raft group
	case ours && mark.By == self.PodUID && (id == 0 || mark.MemberID == leases.FormatID(id)):
		return membership.ClaimedByUs
	default:
		return membership.ClaimedByAnother
	}
}

// Marked is what a verdict makes of the mark: the agent of self claims the removal of the member with id, 0 where none is
// listed, hands it back, or acknowledges it by the view.
func Marked(verdict membership.DrainVerdict, mark leases.Retirement, self Cluster, view membership.View, id uint64) leases.Retirement {
	switch verdict {
	case membership.Claim:
		mark.State, mark.By, mark.ClusterID = leases.RetireRemoving, self.PodUID, leases.FormatID(view.ClusterID)
		if id != 0 {
			mark.MemberID = leases.FormatID(id)
		}
	case membership.HandBack:
		mark = leases.Retirement{State: leases.RetireRequested, Mark: mark.Mark, At: mark.At}
	case membership.Acknowledge:
		mark.State, mark.RaftTerm, mark.RaftIndex = leases.RetireDone, view.RaftTerm, view.RaftIndex
	default:
	}
	return mark
}

// Replaces says whether another member than the one called name holds the slot to replace itself.
func Replaces(record leases.Record, name string) bool {
	return record.Replacing != nil && record.Replacing.Member != name && record.Lists(record.Replacing.Member)
}
