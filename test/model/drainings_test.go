package model

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// What druid does of a drain, and what is promised of drains.

// route is the endpoint controller: clients are sent to the Pods that bear the label, some time later.
func (w *world) route(k int) bool {
	pod := &w.members[k].pod
	was := pod.routed
	pod.routed = pod.there && pod.serving
	return pod.routed != was && !w.down
}

// writeMark is the compare-and-set of a drain mark, on the Lease as the live reads showed it.
func (w *world) writeMark(d *druid, step policy.Step) {
	k := indexOf(step.Member)
	lease := &w.members[k].lease
	if !lease.there || lease.version != d.lease && !w.is(mutBlindMark) {
		return
	}
	mark := leases.RemovalRequest{}
	if step.Kind == policy.RequestRemoval {
		mark = leases.RemovalRequest{State: leases.RemovalRequested, Mark: step.Slot.Mark}
	}
	if step.Kind == policy.RepeatRemoval {
		mark = lease.says.Removal
		mark.State, mark.MemberID, mark.RaftTerm, mark.RaftIndex = leases.RemovalBegun, "", 0, 0
		if id := lease.says.ID; id != 0 {
			mark.MemberID = leases.FormatID(id)
		}
	}
	if was := lease.says.Removal; was.State == leases.RemovalBegun && w.record.says.PendingRemoval.Orders(names[k], was) {
		w.violate("druid takes back what an agent claimed: the removal of %s", names[k])
	}
	lease.says.Removal, lease.version = mark, w.nextVersion()
}

// clear takes a step about what a removed member left, and about whom a claim goes with.
func (w *world) clear(d *druid, step policy.Step) {
	k := indexOf(step.Member)
	m := &w.members[k]
	claimed := m.claim.there && uids[m.claim.uid] == step.ClaimUID
	switch {
	case step.Kind == policy.DeleteLease:
		if m.lease.there && m.lease.version == d.lease {
			m.lease.there, m.lease.says = false, leases.Member{}
		}
	case !claimed:
	case step.Kind == policy.DeleteClaim:
		w.out(k, "without its claim")
		m.claim.going = true
		w.endClaim(k)
	case step.Kind == policy.RetainClaim:
		w.out(k, "without its claim")
		m.claim.there, m.claim.going, m.claim.owned = false, false, false
	default:
		m.claim.owned = step.Kind == policy.TakeClaim
	}
}

// changeSlot is what a step makes of the record.
func (w *world) changeSlot(record leases.Record, step policy.Step) (leases.Record, bool) {
	w.counts.nonce++
	replacing := record.Replacing
	if w.is(mutAlongsideReplacing) {
		record.Replacing = nil
	}
	record, ok := step.ChangeSlot(record, uids[w.counts.nonce])
	if w.is(mutAlongsideReplacing) {
		record.Replacing = replacing
	}
	if ok && step.Kind == policy.RemoveName && w.record.says.Phase == leases.PhaseFormed {
		w.out(indexOf(step.Member), "struck from the record")
	}
	return record, ok
}

// mislead shows druid what a mutation makes of what it observes.
func (w *world) mislead(o *policy.Observed) {
	if w.mutant == nil {
		return
	}
	if w.is(mutAlongsideReplacing) {
		o.Record.Replacing = nil
	}
	for i := range o.Members {
		m := &o.Members[i]
		mark := &m.Reports.Removal
		slot := o.Record.PendingRemoval
		switch {
		case w.is(mutStillServed):
			m.Routed = false
		case w.is(mutClaimIsDone) && mark.State == leases.RemovalBegun,
			w.is(mutNoRemovalAck) && !m.Listed && m.Lease == policy.LeaseOurs:
			mark.State, mark.ClusterID = leases.RemovalDone, leases.FormatID(o.Record.ClusterID)
		case w.is(mutOtherDone) && mark.State == leases.RemovalDone:
			mark.ClusterID = leases.FormatID(o.Record.ClusterID)
			if slot != nil && slot.Member == m.Name {
				mark.Mark = slot.Mark
			}
		}
	}
}

// checkConfirmed holds an irreversible step of a drain against what the live reads that confirmed it showed: only what the raft group
// of the record acknowledged under the slot's mark is struck, and only what it acknowledged is cleared.
func (w *world) checkConfirmed(step policy.Step) {
	r := &w.record.says
	clears := strings.HasPrefix(step.Rule, "removed-")
	removesName := step.Kind == policy.RemoveName
	if !clears && !removesName || r.Phase != leases.PhaseFormed && removesName {
		return
	}
	mark := w.members[indexOf(step.Member)].lease.says.Removal
	done := mark.State == leases.RemovalDone && mark.ClusterID == leases.FormatID(r.ClusterID)
	switch {
	case removesName && (!done || !r.PendingRemoval.Orders(step.Member, mark)):
		w.violate("druid removes the name %s, whose removal is not acknowledged under the slot's mark", step.Member)
	case clears && r.Lists(step.Member):
		w.violate("druid takes away what the listed %s lives on (%s)", step.Member, step.Rule)
	case clears && !done && mark.Mark != policy.NotFormed:
		w.violate("druid takes away what %s left (%s), whose removal is not acknowledged", step.Member, step.Rule)
	}
}

// out holds against etcd's list that the member has no vote.
func (w *world) out(k int, what string) {
	if w.ghost.formed == 0 || w.ghost.excused {
		return
	}
	for _, e := range w.groups[w.ghost.formed-1].now() {
		if e.k == k && !e.learner {
			w.violate("%s is %s and votes as %x", names[k], what, e.id)
		}
	}
}

// picked is before the first mark: druid has taken the slot.
const picked leases.RemovalState = "picked"

// arrived says whether a member is as far on its way out as the world heals until.
func (w *world) arrived() bool {
	slot := w.record.says.PendingRemoval
	if w.until == "" || slot == nil {
		return false
	}
	mark := w.members[indexOf(slot.Member)].lease.says.Removal
	return w.until == picked || w.until == mark.State && slot.Orders(slot.Member, mark)
}

// ordered holds a claim against what its agent read: slot and mark agree.
func (w *world) ordered(p *proc) {
	d := &p.duty
	if !d.record.PendingRemoval.Orders(d.drain.slot.Member, d.drain.mark) {
		w.violate("the removal of %s is about to be claimed under order %s, and the slot is %v", d.drain.slot.Member,
			d.drain.mark.Mark, d.record.PendingRemoval)
	}
}

// claimed holds a removal against what its agent read: slot and mark agree, and the mark is its own claim of that very ID.
func (w *world) claimed(p *proc) {
	d := &p.duty
	mark := d.drain.mark
	if !d.record.PendingRemoval.Orders(d.drain.slot.Member, mark) || mark.State != leases.RemovalBegun || mark.By != uids[p.pod] ||
		mark.MemberID != leases.FormatID(d.drain.member.ID) {
		w.violate("%s is about to be removed without a claim under the slot: its mark is %q of order %s, the slot is %v",
			d.drain.slot.Member, mark.State, mark.Mark, d.record.PendingRemoval)
	}
}

// alone holds a claim and a removal of a voter against what its agent was reported: every other desired member is a healthy
// voter, and none replaces itself.
func (w *world) alone(p *proc) {
	d := &p.duty
	name := d.drain.slot.Member
	if d.drain.entry != membership.VoterEntry || w.is(mutNoQuorumCheck) { // there the harm itself is to be seen
		return
	}
	if r := d.record.Replacing; r != nil && r.Member != name && d.record.Lists(r.Member) {
		w.violate("%s is drained while %s replaces itself", name, r.Member)
	}
	for _, m := range d.view.Members {
		if m.ID == d.drain.member.ID || d.desires(m) != rules.Yes {
			continue
		}
		if m.Learner {
			w.violate("%s is drained while %x joins", name, m.ID)
		} else if d.drain.health[m.ID] != rules.Yes {
			w.violate("%s is drained while %x is not healthy", name, m.ID)
		}
	}
}

// unseenByClients holds a removal against the endpoints.
func (w *world) unseenByClients(k int) {
	if pod := w.members[k].pod; pod.there && pod.routed {
		w.violate("%s is removed while clients are sent to it", names[k])
	}
}

// oneAtATime holds a record that is written against both slots being taken.
func (w *world) oneAtATime(r leases.Record) {
	if r.PendingRemoval != nil && r.Replacing != nil && r.Lists(r.PendingRemoval.Member) && r.Lists(r.Replacing.Member) {
		w.violate("%s is on its way out while %s replaces itself", r.PendingRemoval.Member, r.Replacing.Member)
	}
}

// orphaned notes what a druid that fell behind makes of a name that the record does not list any more.
func (w *world) orphaned(k int) {
	if !w.record.says.Lists(names[k]) && !w.members[k].lease.there {
		w.ghost.left[k] = true
	}
}

// unlisted notes the names that an operator took out of the record.
func (w *world) unlisted() {
	for k := range w.drawn {
		w.ghost.left[k] = w.ghost.left[k] || !w.record.says.Lists(names[k])
	}
}

// leftovers are what remains of drains: the slot, marks, and what bears a name that the record does not list.
func (w *world) leftovers() string {
	r := &w.record.says
	if r.PendingRemoval != nil {
		return "the slot is taken by " + r.PendingRemoval.Member + ", which is to go"
	}
	for k := range w.drawn {
		m := &w.members[k]
		switch {
		case r.Lists(names[k]) && m.lease.says.Removal.State != leases.RemovalNone:
			return fmt.Sprintf("%s is marked %s", names[k], m.lease.says.Removal.State)
		case !r.Lists(names[k]) && !w.ghost.left[k] && (m.lease.there || m.claim.there || m.pod.there):
			return fmt.Sprintf("%s is out, and its Lease (%t), claim (%t) or Pod (%t) is left", names[k], m.lease.there, m.claim.there, m.pod.there)
		case !r.Lists(names[k]) && w.known[k]:
			return names[k] + " is out, and the status lists it"
		}
	}
	return ""
}
