package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// draining is what one leadership knows of the member on its way out.
type draining struct {
	slot                 leases.PendingRemoval
	mark                 leases.RemovalRequest // as it was read last, with the version of its Lease
	version              int
	health               map[uint64]rules.Answer
	leads, authoritative rules.Answer
	member               membership.Member
	entry                membership.Entry
	hindered, waited     bool
	decision             membership.DrainDecision
}

func (d *draining) encode(b []byte) []byte {
	if d.slot == (leases.PendingRemoval{}) {
		return b
	}
	return fmt.Appendf(b, "D%v %v %d %v %d %d %x %t %t %s", d.slot, d.mark, d.version, d.health, d.leads, d.authoritative, d.member.ID,
		d.hindered, d.waited, d.decision.Rule)
}

// drainStep is the next step of the leader's agent for the member that the slot names: it looks at the mark and at etcd,
// and if anything is to be done reads record, own Lease and mark once more, decides again, and does it.
func (w *world) drainStep(i int) {
	p := &w.procs[i]
	d := &p.duty
	next := d.step + 1
	switch d.step {
	case drainMark:
		if !w.readMark(p) {
			next = dutyLook
		}
	case drainLook:
		w.witness(i)
		if w.decideDrain(p, w.authoritative(p)); idle(d.drain.decision.Verdict) {
			next = dutyLook
		}
	case drainRecord:
		if !w.readDuty(p) {
			next = dutyLook
		} else if slot := d.record.PendingRemoval; slot == nil || *slot != d.drain.slot {
			next = dutyRecord
		}
	case drainOwn:
		if !w.readOwn(p) {
			next = dutyLook
		}
	case drainLease:
		next = w.decideFresh(p)
	case drainAct:
		next = dutyLook
		w.actOnDrain(i)
	case drainStatus:
		if gi := w.vols[p.vol].data.group; !w.leads(gi) || uint64(w.groups[gi].term) != d.view.RaftTerm {
			next = dutyLook
		}
	case drainRemove:
		next = dutyLook
		w.removeLeaving(p)
	}
	d.step = next
}

func idle(v membership.DrainVerdict) bool {
	return v == membership.DrainKeep || v == membership.DrainWait
}

func (w *world) readMark(p *proc) bool {
	d := &p.duty.drain
	lease := &w.members[indexOf(d.slot.Member)].lease
	if !w.reaches(p) || !lease.there {
		return false
	}
	d.mark, d.version = lease.says.Removal, lease.version
	return true
}

// readOwn reads the Lease of the member that decides.
func (w *world) readOwn(p *proc) bool {
	d := &p.duty.drain
	lease := &w.members[p.k].lease
	if !w.reaches(p) || !lease.there {
		return false
	}
	leaving := lease.says.Removal.State != leases.RemovalNone && d.slot.Member != names[p.k]
	d.authoritative = w.authoritative(p)
	if lease.says.PodUID != uids[p.pod] || leaving {
		d.authoritative = rules.No
	}
	return true
}

func (w *world) authoritative(p *proc) rules.Answer {
	r := &p.duty.record
	return rules.AnswerOf(r.Phase == leases.PhaseFormed && r.ClusterID == w.vols[p.vol].data.cluster && r.Lists(names[p.k]))
}

func (w *world) self(p *proc) duties.Cluster {
	d := &w.vols[p.vol].data
	return duties.Cluster{ClusterID: d.cluster, MemberID: d.member, Member: names[p.k], PodUID: uids[p.pod]}
}

// witness is what etcd says at one look.
func (w *world) witness(i int) {
	p := &w.procs[i]
	d := &p.duty
	gi := w.vols[p.vol].data.group
	g := &w.groups[gi]
	d.drain.health = w.health(gi, d.view)
	d.drain.leads = rules.AnswerOf(w.leads(gi) && g.leader == i+1 && uint64(g.term) == d.view.RaftTerm)
	claimed, _ := leases.ParseID(d.drain.mark.MemberID)
	name := d.drain.slot.Member
	d.drain.member, d.drain.entry = membership.EntryOf(d.view, name, peerURLs[indexOf(name)][0], claimed)
}

func (w *world) decideDrain(p *proc, authoritative rules.Answer) {
	d := &p.duty
	f := w.drainFacts(p, authoritative)
	free := f
	free.Waited = rules.Yes
	if w.drainVerdict(free).Verdict != membership.Revert {
		d.drain.hindered, d.drain.waited = false, false
	} else {
		d.drain.hindered = true
	}
	f.Waited = rules.AnswerOf(d.drain.hindered && d.drain.waited)
	d.drain.decision = w.drainVerdict(f)
}

func (w *world) drainVerdict(f membership.DrainFacts) membership.DrainDecision {
	if w.mutant != nil && len(w.mutant.drains) > 0 {
		return membership.DrainsWithout(w.mutant.drains...).Decide(f)
	}
	return membership.DecideDrain(f)
}

func (w *world) drainFacts(p *proc, authoritative rules.Answer) membership.DrainFacts {
	d := &p.duty
	id, name := d.drain.member.ID, d.drain.slot.Member
	slot, self := d.record.PendingRemoval, w.self(p)
	if w.is(mutOtherMark) && slot != nil {
		slot = &leases.PendingRemoval{Member: slot.Member, Mark: d.drain.mark.Mark}
	}
	desired := func(m membership.Member) rules.Answer { return d.desires(m) }
	f := membership.DrainFacts{
		Authoritative: authoritative, Mark: duties.MarkOf(slot, name, d.drain.mark, self, id), Leads: d.drain.leads, Entry: d.drain.entry,
		Self:    rules.AnswerOf(name == self.Member || id != 0 && id == self.MemberID),
		Quorum:  membership.QuorumWithout(d.view, id, d.drain.health),
		Others:  membership.OthersHealthy(d.view, id, d.drain.health, desired),
		Joining: membership.OthersJoin(d.view, id, desired),
	}
	if duties.Replaces(d.record, name) {
		f.Joining = rules.Yes
	}
	return f
}

func (d *leading) desires(m membership.Member) rules.Answer {
	return membership.Desired(m, d.record.Members, func(name string) string { return peerURLs[indexOf(name)][0] })
}

// decideFresh reads the mark again and decides what is done.
func (w *world) decideFresh(p *proc) (next uint8) {
	d := &p.duty
	if !w.readMark(p) {
		return dutyLook
	}
	w.decideDrain(p, d.drain.authoritative)
	if w.lines != nil {
		w.say("agent %s: %s (%x) is to go? %s, rule %s", names[p.k], d.drain.slot.Member, d.drain.member.ID,
			d.drain.decision.Verdict, d.drain.decision.Rule)
	}
	switch verdict := d.drain.decision.Verdict; {
	case idle(verdict):
		return dutyLook
	case verdict == membership.DrainRemove:
		w.claimed(p)
		w.alone(p)
		return drainStatus
	default:
		if verdict == membership.Claim {
			w.ordered(p)
			w.alone(p)
		}
		return drainAct
	}
}

func (w *world) actOnDrain(i int) {
	p := &w.procs[i]
	d := &p.duty
	if d.drain.decision.Verdict == membership.MoveAway {
		w.moveLeader(i)
		return
	}
	mark := duties.Marked(d.drain.decision.Verdict, d.drain.mark, w.self(p), d.view, d.drain.member.ID)
	if _, err := mark.Encode(); err != nil {
		return
	}
	k := indexOf(d.drain.slot.Member)
	lease := &w.members[k].lease
	if !w.reaches(p) || !lease.there || lease.version != d.drain.version {
		return
	}
	lease.says.Removal, lease.version = mark, w.nextVersion()
	w.say("agent %s: marks the Lease of %s: %s %s", names[p.k], names[k], mark.State, mark.MemberID)
	if mark.State == leases.RemovalDone {
		w.out(k, "acknowledged as removed")
	}
}

// removeLeaving is etcd's removal of exactly the claimed ID.
func (w *world) removeLeaving(p *proc) {
	d := &p.duty
	gi := w.vols[p.vol].data.group
	d.tired = true
	id := d.drain.member.ID
	if !w.leads(gi) || find(w.groups[gi].now(), id) < 0 {
		return
	}
	if !w.remove(gi, id) {
		return
	}
	w.say("agent %s: removes %x of %s", names[p.k], id, d.drain.slot.Member)
	w.unseenByClients(indexOf(d.drain.slot.Member))
}

// moveLeader hands leadership to the healthy voter with the longest log, which raft brings up to date first.
func (w *world) moveLeader(i int) {
	gi := w.vols[w.procs[i].vol].data.group
	g := &w.groups[gi]
	if g.leader != i+1 || !w.leads(gi) {
		return
	}
	members := g.now()
	var best []int
	for _, e := range members {
		if j, q := w.member(gi, e.id); q != nil && !e.learner && j != i {
			best = append(best, j)
		}
	}
	if len(best) == 0 {
		return
	}
	data := func(j int) *data { return &w.vols[w.procs[j].vol].data }
	to := slices.MinFunc(best, func(a, b int) int {
		return cmp.Or(cmp.Compare(data(b).index, data(a).index), cmp.Compare(data(a).member, data(b).member))
	})
	data(to).index = g.length
	g.term++
	g.leader = to + 1
	for _, e := range members {
		if j, q := w.member(gi, e.id); q != nil {
			data(j).term = g.term
		}
	}
	w.say("agent %s: moves leadership to %s", names[w.procs[i].k], names[w.procs[to].k])
}
