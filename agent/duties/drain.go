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

// drainTable is the name of the drain decisions in the metric of all decisions.
const drainTable = "membership.drains"

const (
	// slotYoung is how long, after the leader first saw a slot, it reads the Lease at each look. druid takes the slot
	// first and writes the removal request a moment later.
	slotYoung = 30 * time.Second
	// markPause is the pause between two looks during slotYoung. It is short because it delays every removal.
	markPause = 250 * time.Millisecond
	// markInterval is how long a removal request that was read is used afterwards, while no step follows from it. A
	// drain that waits for hours costs the API server 4 GETs a minute.
	markInterval = 15 * time.Second
	// revertAfter is how long a blocked claim stays before the agent reverts it to requested. It covers several
	// restarts of a member and etcd's 5 s check.
	revertAfter = 30 * time.Second
	// maxDrainPause bounds the pause, which doubles with each failure. etcd itself refuses changes for 5 s after a
	// peer came back.
	maxDrainPause = 5 * time.Second
	// transferTimeout bounds a transfer of leadership. raft abandons a transfer after an election timeout, but etcd's
	// call keeps waiting for the new leader.
	transferTimeout = 5 * time.Second
)

// draining is what one leadership knows of the member that is being removed.
type draining struct {
	slot leases.PendingRemoval
	seen time.Time
	// lease is the member's Lease with its removal request, as read at readAt.
	lease  leases.Member
	readAt time.Time
	// hindered is since when a claim is blocked.
	hindered time.Time
	others   othersData
	failures int
	// last decision, so that a repeated one is reported once.
	reported loop.Change[string]
}

// removalRequest is the duty that removes the member in the record's slot.
type removalRequest struct {
	*round
	draining draining
}

// pause returns the pause until the next look. A member that is being removed makes it short.
func (r *removalRequest) pause() time.Duration {
	if r.draining.slot == (leases.PendingRemoval{}) {
		return r.poll
	}
	if r.draining.failures == 0 && r.draining.awaited() {
		return markPause
	}
	return min(drainInterval<<min(r.draining.failures, 4), maxDrainPause)
}

// Run takes the next step for the member in the record's slot, if there is one. The last known state decides whether
// a step is due. The step itself is decided on state that is read just before it.
func (r *removalRequest) Run(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
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

func (r *removalRequest) drainStep(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
	if r.markIsOld() {
		if err := r.readMark(ctx); err != nil {
			return false, err
		}
	}
	w := r.witness(ctx, self, view)
	if r.compareOthers(ctx, w) {
		return true, nil
	}
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

// markIsOld says whether the removal request must be read again before it is used.
func (r *removalRequest) markIsOld() bool {
	return r.draining.awaited() || time.Since(r.draining.readAt) >= markInterval
}

// awaited says whether the removal request for the slot is still missing and can appear at any moment.
func (d *draining) awaited() bool {
	return time.Since(d.seen) < slotYoung && !d.slot.Orders(d.slot.Member, d.lease.Removal)
}

// readMark reads the Lease of the member that is being removed.
func (r *removalRequest) readMark(ctx context.Context) error {
	lease, err := r.Store.Marks(ctx, r.draining.slot.Member)
	if err != nil {
		r.draining.readAt = time.Time{}
		return err
	}
	r.draining.lease, r.draining.readAt = lease, time.Now()
	return nil
}

// freshDrain reads the record and both Leases again, and says whether they are authoritative.
func (r *removalRequest) freshDrain(ctx context.Context, self Cluster) (rules.Answer, error) {
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
		return rules.No, nil // a superseded agent changes nothing; a member that is to be removed only moves leadership
	}
	return r.authoritative(self), nil
}

// reportDrain counts and logs a decision once per change.
func (r *removalRequest) reportDrain(ctx context.Context, d membership.DrainDecision) {
	if !r.draining.reported.To(d.Rule) {
		return
	}
	r.Decisions.WithLabelValues(drainTable, d.Rule).Inc()
	r.Log.InfoContext(ctx, "drain decided", "member", r.draining.slot.Member, "mode", d.Verdict, "rule", d.Rule, "reason", d.Why)
}

// step takes one step. If its answer is lost, the next look finds the result.
func (r *removalRequest) step(ctx context.Context, w witness, d membership.DrainDecision) (again bool, err error) {
	marked := Marked(d.Verdict, r.draining.lease.Removal, w.self, w.view, w.member.ID)
	switch d.Verdict {
	case membership.Claim:
		defer crash.Around("claim-removal")()
		return true, r.mark(ctx, marked)
	case membership.Revert:
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

// moveAway transfers leadership. The next leader's agent does the remaining work.
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

// mark writes the removal request if the Lease is as it was read.
func (r *removalRequest) mark(ctx context.Context, mark leases.RemovalRequest) error {
	lease, err := r.Store.RequestRemoval(ctx, r.draining.slot.Member, r.draining.lease.LeaseVersion, mark)
	if err != nil {
		r.draining.readAt = time.Time{} // whether it was written is not known
		return err
	}
	r.draining.lease, r.draining.readAt, r.draining.hindered = lease, time.Now(), time.Time{}
	r.Log.InfoContext(ctx, "removal request written", "member", r.draining.slot.Member, "memberID", mark.MemberID, "mode", mark.State)
	return nil
}

// witness is what one look finds in etcd about a drain.
type witness struct {
	self   Cluster
	view   membership.View
	health map[uint64]rules.Answer
	leads  rules.Answer
	// member is the entry of the member that is being removed, zero if there is none. entry is its kind.
	member membership.Member
	entry  membership.Entry
}

// witness asks every voter for its health, and the agent's own member whether it still leads.
func (r *removalRequest) witness(ctx context.Context, self Cluster, view membership.View) witness {
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
	client, done, err := r.Dial(ctx, r.Local)
	if err != nil {
		return membership.Status{}, err
	}
	defer func() { done(err) }()
	return membership.ReadStatus(ctx, client, r.Local)
}

// drainFacts combines the state of etcd with the record and the removal request as last read.
func (r *removalRequest) drainFacts(w witness, authoritative rules.Answer) membership.DrainFacts {
	f := membership.DrainFacts{
		Authoritative: authoritative,
		Mark:          MarkOf(r.record.PendingRemoval, r.draining.slot.Member, r.draining.lease.Removal, w.self, w.member.ID),
		Leads:         w.leads,
		Entry:         w.entry,
		Self:          rules.AnswerOf(r.draining.slot.Member == w.self.Member || w.member.ID != 0 && w.member.ID == w.self.MemberID),
		Quorum:        membership.QuorumWithout(w.view, w.member.ID, w.health),
		Others:        membership.OthersHealthy(w.view, w.member.ID, w.health, r.desired),
		Joining:       membership.OthersJoin(w.view, w.member.ID, r.desired),
	}
	switch {
	case r.record.Undecided != leases.Undecided{}:
		f.Others = rules.No // each member may have the good data
	case f.Others == rules.Yes && w.entry == membership.VoterEntry:
		f.Others = r.othersAgree(w)
	}
	if r.record.Leaving {
		// All members leave. None waits for another to join or to recover, and only the quorum of the members that
		// stay counts.
		f.Others, f.Joining = rules.Yes, rules.No
	}
	if Replaces(r.record, r.draining.slot.Member) {
		f.Joining = rules.Yes
	}
	f.Waited = r.waited(f)
	return f
}

// waited says whether a claim has been blocked for so long that the agent must revert it to requested.
func (r *removalRequest) waited(f membership.DrainFacts) rules.Answer {
	free := f
	free.Waited = rules.Yes
	switch {
	case membership.DecideDrain(free).Verdict != membership.Revert:
		r.draining.hindered = time.Time{}
	case r.draining.hindered.IsZero():
		r.draining.hindered = time.Now()
	}
	return rules.AnswerOf(!r.draining.hindered.IsZero() && time.Since(r.draining.hindered) >= r.revert)
}

// MarkOf returns what the removal request on the Lease of the member called name means to the agent of self. retiring is
// the record's slot. id is the member's ID in the member list, 0 if it is not listed.
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

// claimOf returns what a claim or an acknowledgement means.
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

// Marked returns the removal request after a verdict: the agent of self claims the removal of the member with id (0 if
// it is not listed), reverts the claim to requested, or acknowledges the removal with the raft position of the view.
func Marked(verdict membership.DrainVerdict, mark leases.RemovalRequest, self Cluster, view membership.View, id uint64) leases.RemovalRequest {
	switch verdict {
	case membership.Claim:
		mark.State, mark.By, mark.ClusterID = leases.RemovalBegun, self.PodUID, leases.FormatID(view.ClusterID)
		if id != 0 {
			mark.MemberID = leases.FormatID(id)
		}
	case membership.Revert:
		mark = leases.RemovalRequest{State: leases.RemovalRequested, Mark: mark.Mark, At: mark.At}
	case membership.Acknowledge:
		// This agent answers for the removal, also if another one claimed it.
		mark.State, mark.By, mark.RaftTerm, mark.RaftIndex = leases.RemovalDone, self.PodUID, view.RaftTerm, view.RaftIndex
	default:
	}
	return mark
}

// Replaces says whether a member other than name holds the slot to replace itself.
func Replaces(record leases.Record, name string) bool {
	return record.Replaces() && record.Replacing.Member != name
}
