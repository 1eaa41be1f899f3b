package duties

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// drainTable is the drain's name in the metric of all decisions.
const drainTable = "membership.drains"

const (
	// slotYoung is how long after it saw a slot first the leader reads the Lease at each look: druid takes the slot before
	// it writes the mark, a moment later.
	slotYoung = 30 * time.Second
	// markPause between two looks meanwhile. It is short because every member that leaves pays for it.
	markPause = 250 * time.Millisecond
	// markInterval is how long a mark that was read serves after that, as long as nothing follows from it: a drain that
	// waits for hours costs the API server 4 GETs a minute.
	markInterval = 15 * time.Second
	// handBackAfter is how long a claim stays that something hinders: several restarts of a member and etcd's guard of 5 s.
	handBackAfter = 30 * time.Second
	// maxDrainPause bounds the pause that doubles with each failure: etcd itself refuses changes for 5 s after a peer came back.
	maxDrainPause = 5 * time.Second
	// transferTimeout of handing leadership on. raft gives a transfer up after an election timeout, and etcd's call waits on
	// for a leader that never comes.
	transferTimeout = 5 * time.Second
)

// draining is what one leadership knows of the member on its way out.
type draining struct {
	slot leases.PendingRemoval
	seen time.Time
	// lease has the marks of the member's Lease, as they were at readAt.
	lease  leases.Member
	readAt time.Time
	// hindered is since when a claim cannot go on.
	hindered time.Time
	failures int
	// last decision, so that a repeated one is reported once.
	reported loop.Change[string]
}

// pause until the next look.
func (r *round) pause() time.Duration {
	if r.draining.slot == (leases.PendingRemoval{}) {
		return r.poll
	}
	if r.draining.failures == 0 && r.draining.awaited() {
		return markPause
	}
	return min(drainInterval<<min(r.draining.failures, 4), maxDrainPause)
}

// drain does the next step for the member that the record's slot names, if there is one. What was last known decides
// whether a step is due; the step itself is decided by what is read just then.
func (r *round) drain(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
	slot := r.record.PendingRemoval
	if slot == nil || !r.record.Lists(slot.Member) {
		r.draining = draining{}
		return false, nil
	}
	if r.draining.slot != *slot {
		r.draining = draining{slot: *slot, seen: time.Now()}
	}
	again, err = r.drainStep(ctx, self, view)
	if errors.Is(err, leases.ErrConflict) {
		err = nil // its own agent renewed the Lease, or druid wrote: it is read again
	}
	if r.draining.failures++; err == nil {
		r.draining.failures = 0
	}
	return again && err == nil, err
}

func (r *round) drainStep(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
	if r.markIsOld() {
		if err := r.readMark(ctx); err != nil {
			return false, err
		}
	}
	w := r.witness(ctx, self, view)
	d := membership.DecideDrain(r.drainFacts(w, r.authoritative(self)))
	if d.Verdict != membership.DrainKeep && d.Verdict != membership.DrainWait {
		slot := r.draining.slot
		authoritative, err := r.freshDrain(ctx, self)
		if err != nil {
			return false, err
		}
		if r.record.PendingRemoval == nil || *r.record.PendingRemoval != slot {
			return true, nil // the slot was freed or given to another
		}
		d = membership.DecideDrain(r.drainFacts(w, authoritative))
	}
	r.reportDrain(ctx, d)
	return r.step(ctx, w, d)
}

// markIsOld says whether the mark is to be read before anything is made of it.
func (r *round) markIsOld() bool {
	return r.draining.awaited() || time.Since(r.draining.readAt) >= markInterval
}

// awaited says whether the mark that the slot orders is not there yet and may come at any moment.
func (d *draining) awaited() bool {
	return time.Since(d.seen) < slotYoung && !d.slot.Orders(d.slot.Member, d.lease.Removal)
}

// readMark reads the Lease of the member that is to go.
func (r *round) readMark(ctx context.Context) error {
	lease, err := r.Store.Marks(ctx, r.draining.slot.Member)
	if err != nil {
		r.draining.readAt = time.Time{}
		return err
	}
	r.draining.lease, r.draining.readAt = lease, time.Now()
	return nil
}

// freshDrain reads the record and both Leases just now, and says whether they may order anything.
func (r *round) freshDrain(ctx context.Context, self Cluster) (rules.Answer, error) {
	if err := r.read(ctx); err != nil {
		return rules.Unknown, err
	}
	own, err := r.Store.Marks(ctx, self.Member)
	if err != nil {
		return rules.Unknown, err
	}
	if err := r.readMark(ctx); err != nil {
		return rules.Unknown, err
	}
	leaving := own.Removal.State != leases.RemovalNone && r.draining.slot.Member != self.Member
	if own.PodUID != self.PodUID || leaving {
		return rules.No, nil // a superseded agent changes nothing; one that is to go moves leadership and no more
	}
	return r.authoritative(self), nil
}

// tellDrain counts and logs a decision once per change.
func (r *round) reportDrain(ctx context.Context, d membership.DrainDecision) {
	if !r.draining.reported.To(d.Rule) {
		return
	}
	r.Decisions.WithLabelValues(drainTable, d.Rule).Inc()
	r.Log.InfoContext(ctx, "drain decided", "member", r.draining.slot.Member, "mode", d.Verdict, "rule", d.Rule, "reason", d.Why)
}

// step does one thing. Whatever is lost of its answer, the next look finds what came of it.
func (r *round) step(ctx context.Context, w witness, d membership.DrainDecision) (again bool, err error) {
	marked := Marked(d.Verdict, r.draining.lease.Removal, w.self, w.view, w.member.ID)
	switch d.Verdict {
	case membership.Claim:
		defer crash.Around("claim-removal")()
		return true, r.mark(ctx, marked)
	case membership.HandBack:
		defer crash.Around("hand-back")()
		return false, r.mark(ctx, marked)
	case membership.MoveAway:
		return false, r.moveAway(ctx, "drain "+r.draining.slot.Member, d.Rule)
	case membership.DrainRemove:
		defer crash.Around("remove-requested")()
		return true, r.remove(ctx, w.view, w.member, d.Rule)
	case membership.Acknowledge:
		defer crash.Around("acknowledge-removal")()
		return false, r.mark(ctx, marked)
	case membership.DrainKeep, membership.DrainWait:
	}
	return false, nil
}

// moveAway hands leadership on. What is left to do is the next leader's agent's.
func (r *round) moveAway(ctx context.Context, purpose, rule string) error {
	bounded, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	to, err := Transfer(bounded, r.Dial, r.Local)
	if err != nil {
		return fmt.Errorf("%s: %w", purpose, err)
	}
	r.Log.InfoContext(ctx, "leadership transferred", "memberID", leases.FormatID(to), "rule", rule)
	return nil
}

// mark writes the mark over the Lease as it was read.
func (r *round) mark(ctx context.Context, mark leases.RemovalRequest) error {
	lease, err := r.Store.RequestRemoval(ctx, r.draining.slot.Member, r.draining.lease.LeaseVersion, mark)
	if err != nil {
		r.draining.readAt = time.Time{} // whether it was written is not known
		return err
	}
	r.draining.lease, r.draining.readAt, r.draining.hindered = lease, time.Now(), time.Time{}
	r.Log.InfoContext(ctx, "removal request written", "member", r.draining.slot.Member, "memberID", mark.MemberID, "mode", mark.State)
	return nil
}

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
	claimed, _ := leases.ParseID(r.draining.lease.Removal.MemberID) // a mark that was read has good IDs
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
func (r *round) drainFacts(w witness, authoritative rules.Answer) membership.DrainFacts {
	desired := func(m membership.Member) rules.Answer {
		return membership.Desired(m, r.record.Members, r.PeerURL)
	}
	f := membership.DrainFacts{
		Authoritative: authoritative,
		Mark:          MarkOf(r.record.PendingRemoval, r.draining.slot.Member, r.draining.lease.Removal, w.self, w.member.ID),
		Leads:         w.leads,
		Entry:         w.entry,
		Self:          rules.AnswerOf(r.draining.slot.Member == w.self.Member || w.member.ID != 0 && w.member.ID == w.self.MemberID),
		Quorum:        membership.QuorumWithout(w.view, w.member.ID, w.health),
		Others:        membership.OthersHealthy(w.view, w.member.ID, w.health, desired),
		Joining:       membership.OthersJoin(w.view, w.member.ID, desired),
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
func MarkOf(pendingRemoval *leases.PendingRemoval, name string, mark leases.RemovalRequest, self Cluster, id uint64) membership.Mark {
	switch {
	case mark.State == leases.RemovalUnreadable:
		return membership.MarkUnreadable
	case mark.State == leases.RemovalNone, !pendingRemoval.Orders(name, mark):
		return membership.NotAsked
	case mark.State == leases.RemovalRequested:
		return membership.Requested
	default:
		return claimOf(mark, self, id)
	}
}

// claimOf is what a claim or an acknowledgement means.
func claimOf(mark leases.RemovalRequest, self Cluster, id uint64) membership.Mark {
	ours := mark.ClusterID == leases.FormatID(self.ClusterID)
	switch {
	case mark.State == leases.RemovalDone && ours:
		return membership.RemovalAcknowledged
	case mark.State == leases.RemovalDone:
		return membership.NotAsked // it answers for another raft group
	case ours && mark.By == self.PodUID && (id == 0 || mark.MemberID == leases.FormatID(id)):
		return membership.ClaimedByUs
	default:
		return membership.ClaimedByAnother
	}
}

// Marked is what a verdict makes of the mark: the agent of self claims the removal of the member with id, 0 where none is
// listed, hands it back, or acknowledges it by the view.
func Marked(verdict membership.DrainVerdict, mark leases.RemovalRequest, self Cluster, view membership.View, id uint64) leases.RemovalRequest {
	switch verdict {
	case membership.Claim:
		mark.State, mark.By, mark.ClusterID = leases.RemovalBegun, self.PodUID, leases.FormatID(view.ClusterID)
		if id != 0 {
			mark.MemberID = leases.FormatID(id)
		}
	case membership.HandBack:
		mark = leases.RemovalRequest{State: leases.RemovalRequested, Mark: mark.Mark, At: mark.At}
	case membership.Acknowledge:
		mark.State, mark.RaftTerm, mark.RaftIndex = leases.RemovalDone, view.RaftTerm, view.RaftIndex
	default:
	}
	return mark
}

// Replaces says whether another member than the one called name holds the slot to replace itself.
func Replaces(record leases.Record, name string) bool {
	return record.Replacing != nil && record.Replacing.Member != name && record.Lists(record.Replacing.Member)
}
