package model

import (
	"slices"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// The steps of finishing.
const (
	finishLook uint8 = iota
	finishClaim
	finishPromote
	finishSlot
)

// finishStep follows a running etcd: recorded as Formed, promoted, its slot given back, its old data pruned.
func (w *world) finishStep(i int, lost bool) bool {
	p := &w.procs[i]
	if !p.alive || !p.agent || !p.run {
		return false
	}
	s, v := &p.resolvePending, &w.vols[p.vol]
	step := s.step
	if lost && step != finishClaim && step != finishPromote && step != finishSlot {
		return false
	}
	s.step = finishLook
	switch step {
	case finishClaim:
		return w.claimFormed(p, lost)
	case finishPromote:
		return w.promoteSelf(p)
	case finishSlot:
		record := s.record
		record.Replacing = nil
		w.say("agent %s: gives the slot back", names[p.k])
		w.updateRecord(p, s.version, record)
		return true
	}
	if v.data.member != uint64(v.identityFile.MemberID) {
		return false
	}
	if !v.identityFile.Formed {
		return w.formation(i)
	}
	members := w.groups[v.data.group].config(v.data.index)
	at := find(members, v.data.member)
	switch {
	case at < 0 || !w.leads(v.data.group) || !w.reaches(p):
		return false
	case members[at].learner:
		s.record, s.version, s.step = w.record.says, w.record.version, finishPromote
		return w.record.there
	case w.record.there && w.record.says.Replacing != nil && w.record.says.Replacing.Member == names[p.k]:
		s.record, s.version, s.step = w.record.says, w.record.version, finishSlot
		return true
	default:
		return v.quarantined > 0 && w.prune(i)
	}
}

// formation holds our attempt against the record.
func (w *world) formation(i int) bool {
	p := &w.procs[i]
	s, v := &p.resolvePending, &w.vols[p.vol]
	var err error
	switch {
	case !w.reaches(p):
		err = errUnreached
	case !w.record.there:
		err = leases.ErrAbsent
	}
	formation := start.BootstrapOf(w.record.says, err, v.identityFile, names[p.k])
	if w.is(mutNoBootstrapCheck) && formation == start.BootstrapLost {
		formation = start.BootstrapOurs
	}
	switch formation {
	case start.BootstrapLost:
		w.say("agent %s: stops its etcd, its attempt %s was lost", names[p.k], v.identityFile.Lineage)
		w.stop(p)
	case start.BootstrapRecorded:
		w.say("agent %s: writes that its volume is formed", names[p.k])
		v.identityFile.Formed = true
	case start.BootstrapOurs:
		if !w.leads(v.data.group) {
			return false
		}
		s.record, s.version, s.step = w.record.says, w.record.version, finishClaim
	default:
		return false
	}
	return true
}

func (w *world) claimFormed(p *proc, lost bool) bool {
	v := &w.vols[p.vol]
	if !w.updateRecord(p, p.resolvePending.version, start.FormedBy(p.resolvePending.record, v.identityFile, uids[p.pod])) {
		return true
	}
	w.say("agent %s: records %x as formed", names[p.k], v.data.cluster)
	if w.ghost.formed != 0 && w.ghost.formed != v.data.group+1 {
		w.violate("two clusters were formed: %x and %x", w.groups[w.ghost.formed-1].cluster, v.data.cluster)
	}
	w.ghost.formed = v.data.group + 1
	if !lost {
		v.identityFile.Formed = true
	}
	w.assess()
	return true
}

// promoteSelf decides by the table, on a list and a Lease read now and a record read before.
func (w *world) promoteSelf(p *proc) bool {
	s, d := &p.resolvePending, w.vols[p.vol].data
	view, gi, ok := w.list(p, likely(s.record), d.cluster, 0)
	if !ok || !w.reaches(p) {
		return false
	}
	f := membership.PromotionFacts{
		Kind: membership.LearnerUnstarted, Authoritative: rules.No, Voters: membership.VotersOf(view),
		Joined: rules.AnswerOf(!slices.ContainsFunc(s.record.Members, func(name string) bool {
			return !slices.ContainsFunc(view.Members, func(m membership.Member) bool { return m.Name == name })
		})),
		Room: rules.AnswerOf(len(view.Learners()) < s.record.MaxLearners),
	}
	if entry, listed := view.Member(d.member); listed {
		f.Kind = membership.KindOf(entry)
	}
	lease := w.members[p.k].lease
	f.Reported = rules.Yes // disk reports are in the world of the recoveries
	fresh := lease.there && lease.says.PodUID == uids[p.pod] && lease.says.Removal.State == leases.RemovalNone
	if s.record.Phase == leases.PhaseFormed && s.record.Lists(names[p.k]) && s.record.ClusterID == view.ClusterID {
		f.Authoritative = rules.AnswerOf(fresh)
	}
	verdict := membership.DecidePromotion(f)
	if verdict.Verdict != membership.PromoteMember || !w.promote(gi, d.member) {
		return false
	}
	w.say("agent %s: %x is promoted (%s)", names[p.k], d.member, verdict.Rule)
	return true
}

// prune deletes what was quarantined, by datadir's rule.
func (w *world) prune(i int) bool {
	p := &w.procs[i]
	v := &w.vols[p.vol]
	gi := v.data.group
	r := w.record
	members := w.groups[gi].now()
	at := find(members, v.data.member)
	answer := map[bool]rules.Answer{true: rules.Yes, false: rules.No}
	f := datadir.PruneFacts{
		Voter:     answer[at >= 0 && !members[at].learner && members[at].name != ""],
		Quorum:    answer[w.leads(gi)],
		Current:   answer[r.there && r.says.Phase == leases.PhaseFormed && r.says.ClusterID == v.data.cluster && r.says.FormedEpoch == v.identityFile.Epoch],
		Full:      rules.No,
		Undecided: rules.No, // the members of this world do not differ
	}
	if datadir.DecidePrune(f).Verdict != datadir.DeleteQuarantined {
		return false
	}
	if w.ghost.formed != gi+1 {
		w.violate("%s deletes old data while it runs no formed cluster's", names[p.k])
	}
	v.quarantined, v.quarantineFormed = 0, false
	w.say("agent %s: prunes what it quarantined", names[p.k])
	return true
}

// renewStep reads the member's Lease or writes it, by compare-and-set on what was read.
func (w *world) renewStep(i int) bool {
	p := &w.procs[i]
	v := &w.vols[p.vol]
	lease := &w.members[p.k].lease
	r := &p.renew
	if !p.alive || !p.agent || !p.run || !v.identityFile.Formed || v.data.member != uint64(v.identityFile.MemberID) || !w.reaches(p) || !lease.there {
		return false
	}
	if !r.read || r.pod != "" && r.pod != uids[p.pod] {
		if r.read && r.version == lease.version {
			return false
		}
		if r.id == 0 {
			r.id, r.surely = lease.says.ID, lease.says.Floor
		}
		r.read, r.version, r.pod = true, lease.version, lease.says.PodUID
		return true
	}
	if r.version != lease.version {
		r.read = false
		return true
	}
	says := &lease.says
	members := w.groups[v.data.group].config(v.data.index)
	at := find(members, v.data.member)
	if r.id != v.data.member {
		r.id, r.surely, r.candidate = v.data.member, leases.Raft{}, leases.Raft{}
	}
	if !r.candidate.IsZero() && r.candidate.Committed >= r.surely.Committed {
		r.surely = r.candidate
	}
	now := leases.Raft{Term: uint64(v.data.term), Committed: uint64(v.data.index)}
	says.ID, says.ClusterID, says.Epoch, says.Lineage = v.data.member, v.data.cluster, v.identityFile.Epoch, v.identityFile.Lineage
	says.Raft, says.Floor, says.Role = now, r.surely, leases.RoleMember
	switch {
	case at < 0 || members[at].learner:
		says.Role = leases.RoleLearner
	case w.groups[v.data.group].leader == i+1:
		says.Role = leases.RoleLeader
	}
	r.candidate = now
	lease.version = w.nextVersion()
	r.version, r.pod = lease.version, says.PodUID
	if at >= 0 && w.leads(v.data.group) && !p.cut {
		lease.renewed++
	}
	w.say("agent %s: renews its Lease as %x %s at %d, floor %d", names[p.k], says.ID, says.Role, now.Committed, r.surely.Committed)
	return true
}
