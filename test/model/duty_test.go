package model

import (
	"slices"

	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// The steps of the leader's duties.
const (
	dutyRecord uint8 = iota
	dutyLook
	dutyFresh
	dutyStatus
	dutyRemove
	drainMark
	drainLook
	drainRecord
	drainOwn
	drainLease
	drainAct
	drainStatus
	drainRemove
)

// dutyStep is the next step of the leader's agent: it completes and publishes the record, removes who is to go, and who is
// superfluous. A call that is under way arrives also when its agent leads no more. lost loses its answer.
func (w *world) dutyStep(i int, lost bool) bool {
	p := &w.procs[i]
	v := &w.vols[p.vol]
	d := &p.duty
	if !p.alive || !p.agent || !p.run || !v.identityFile.Formed || v.data.member != uint64(v.identityFile.MemberID) {
		d.step = dutyRecord
		return false
	}
	gi := v.data.group
	called := d.step == dutyRemove || d.step == drainAct || d.step == drainRemove
	if lost && !called {
		return false
	}
	if w.groups[gi].leader != i+1 && !called {
		*d = leading{view: d.view, record: d.record, version: d.version}
		return false
	}
	if lost {
		defer func() {
			*d = leading{tired: d.tired, since: d.since, view: d.view, record: d.record, version: d.version}
		}()
	}
	switch d.step {
	case dutyRecord:
		return w.dutyRecord(p)
	case dutyLook:
		return w.dutyLook(p)
	case dutyFresh:
		w.dutyFresh(p)
	case dutyStatus:
		d.step = dutyRemove
		if !w.leads(gi) || uint64(w.groups[gi].term) != d.view.RaftTerm {
			d.step = dutyRecord
		}
	case dutyRemove:
		d.step, d.tired = dutyRecord, true
		if w.leads(gi) && w.desired(gi, d.removalCandidate) {
			w.violate("%x is removed, which the record desires", d.removalCandidate)
		}
		if w.leads(gi) && w.remove(gi, d.removalCandidate) {
			w.say("agent %s: removes superfluous %x", names[p.k], d.removalCandidate)
		}
	default:
		w.drainStep(i)
	}
	return true
}

func (w *world) readDuty(p *proc) bool {
	d := &p.duty
	if !w.reaches(p) || !w.record.there {
		return false
	}
	if w.is(mutThawed) && d.version != 0 && d.step == dutyFresh {
		return true
	}
	if w.is(mutThawed) && d.version != 0 && d.record.MemberList != nil {
		return true
	}
	d.record, d.version = w.record.says, w.record.version
	return true
}

func (w *world) dutyRecord(p *proc) bool {
	d, v := &p.duty, &w.vols[p.vol]
	if !w.leads(v.data.group) || !w.readDuty(p) {
		return false
	}
	d.view = w.viewOf(v.data.group, p.k, v.data.member)
	d.step = dutyLook
	if slot := d.record.PendingRemoval; slot == nil || !d.record.Lists(slot.Member) {
		d.drain = draining{}
	} else {
		d.step = drainMark
		if d.drain.slot != *slot {
			d.drain = draining{slot: *slot}
		}
	}
	if completed, lacked := start.Completed(d.record, v.identityFile); lacked && w.updateRecord(p, d.version, completed) {
		w.say("agent %s: completes the record", names[p.k])
		d.record, d.version = completed, w.record.version
		return true
	}
	return w.publish(p) || d.step == drainMark || w.superfluous(p)
}

func listOf(view membership.View) leases.MemberList {
	list := leases.MemberList{RaftTerm: view.RaftTerm, RaftIndex: view.RaftIndex}
	for _, m := range view.Members {
		list.Add(m.ID, m.Name, m.PeerURLs, m.Learner)
	}
	return list
}

// publish writes the list into the record when it changed.
func (w *world) publish(p *proc) bool {
	d := &p.duty
	list := listOf(d.view)
	was := d.record.MemberList
	if was != nil && (slices.Equal(was.Members, list.Members) || was.RaftTerm > list.RaftTerm) ||
		d.record.Phase != leases.PhaseFormed || d.record.ClusterID != d.view.ClusterID {
		return false
	}
	record := d.record
	record.MemberList = &list
	if w.updateRecord(p, d.version, record) {
		w.say("agent %s: publishes %d members", names[p.k], len(list.Members))
		d.record, d.version = record, w.record.version
	}
	return true
}

func (d *leading) facts(p *proc, self uint64, m membership.Member) membership.RemovalFacts {
	at := slices.IndexFunc(d.since, func(s suspect) bool { return s.id == m.ID })
	return membership.RemovalFacts{
		Self:          rules.AnswerOf(m.ID == self),
		Authoritative: rules.AnswerOf(d.record.Phase == leases.PhaseFormed && d.record.ClusterID == d.view.ClusterID && d.record.Lists(names[p.k])),
		Desired: membership.Desired(m, d.record.Members, func(name string) string {
			return peerURLs[indexOf(name)][0]
		}),
		Kind: membership.KindOf(m), Adopted: rules.No, Released: rules.No, Coming: rules.Unknown, Quorum: rules.Unknown,
		Elapsed: rules.AnswerOf(at >= 0 && d.since[at].elapsed),
		Turn:    rules.AnswerOf(d.record.PendingRemoval == nil && !d.tired),
	}
}

// superfluous says whether any member is to be looked at.
func (w *world) superfluous(p *proc) bool {
	d := &p.duty
	self := w.vols[p.vol].data.member
	for _, m := range d.view.Members {
		if membership.DecideRemoval(d.facts(p, self, m)).Verdict != membership.Keep {
			return true
		}
	}
	d.step = dutyRecord
	return false
}

// dutyLook remembers whom it sees superfluous, and picks one whose time has come.
func (w *world) dutyLook(p *proc) bool {
	d := &p.duty
	self := w.vols[p.vol].data.member
	d.step = dutyRecord
	for _, m := range d.view.Members {
		f := d.facts(p, self, m)
		if f.Elapsed == rules.Yes {
			d.removalCandidate, d.step = m.ID, dutyFresh
			return true
		}
		at := slices.IndexFunc(d.since, func(s suspect) bool { return s.id == m.ID })
		switch keep := membership.DecideRemoval(f).Verdict == membership.Keep; {
		case keep && at >= 0:
			d.since = slices.Delete(slices.Clone(d.since), at, at+1)
		case !keep && at < 0:
			d.since = append(slices.Clip(d.since), suspect{id: m.ID})
			return true
		}
	}
	return false
}

// dutyFresh reads everything again and decides.
func (w *world) dutyFresh(p *proc) {
	d := &p.duty
	d.step = dutyRecord
	if !w.readDuty(p) {
		return
	}
	m, ok := d.view.Member(d.removalCandidate)
	lease := w.members[p.k].lease
	if !ok || !w.reaches(p) || !lease.there {
		return
	}
	gi := w.vols[p.vol].data.group
	f := d.facts(p, w.vols[p.vol].data.member, m)
	if lease.says.PodUID != uids[p.pod] || lease.says.Removal.State != leases.RemovalNone {
		f.Authoritative = rules.No
	}
	f.Quorum = membership.QuorumWithout(d.view, m.ID, w.health(gi, d.view))
	if w.is(mutNoQuorumCheck) {
		f.Quorum = rules.Yes
	}
	decision := membership.DecideRemoval(f)
	w.say("agent %s: %x superfluous? %s, rule %s", names[p.k], m.ID, decision.Verdict, decision.Rule)
	switch decision.Verdict {
	case membership.RemoveMember:
		d.step = dutyStatus
	case membership.WaitRemove:
	case membership.Keep:
		d.since = slices.DeleteFunc(slices.Clone(d.since), func(s suspect) bool { return s.id == m.ID })
	}
}

// health is every voter's own answer.
func (w *world) health(gi int, view membership.View) map[uint64]rules.Answer {
	health := map[uint64]rules.Answer{}
	for _, v := range view.Voters() {
		health[v.ID] = rules.Unknown
		if _, q := w.member(gi, v.ID); q != nil {
			health[v.ID] = rules.AnswerOf(w.leads(gi))
		}
	}
	return health
}

// desired says whether the record names a listed, started member.
func (w *world) desired(gi int, id uint64) bool {
	members := w.groups[gi].now()
	at := find(members, id)
	return at >= 0 && members[at].name != "" && w.record.there && w.record.says.Lists(members[at].name)
}

// graceStep lets the superfluous grace period pass for a leader.
func (w *world) graceStep(i int) bool {
	d := &w.procs[i].duty
	hindered := d.drain.hindered && !d.drain.waited
	if !slices.ContainsFunc(d.since, func(s suspect) bool { return !s.elapsed }) && !d.tired && !hindered {
		return false
	}
	d.tired, d.drain.waited = false, d.drain.hindered
	d.since = slices.Clone(d.since)
	for j := range d.since {
		d.since[j].elapsed = true
	}
	return true
}
