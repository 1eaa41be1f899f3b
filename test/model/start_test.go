package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const clusterUID = "cu"

var errUnreached = errors.New("the Kubernetes API is out of reach")

func (p *proc) config() config.Config {
	return config.Config{Namespace: "n", Cluster: "c", ClusterUID: clusterUID, Member: names[p.k], PodUID: uids[p.pod]}
}

// The steps of a start.
const (
	readRecord uint8 = iota
	readLease
	readList
	confirmList
	decide
	claimBootstrap
	quarantineForBootstrap
	identityFileBootstrap
	bootBootstrap
	quarantineForJoin
	add
	agree
	bootJoin
	takeSlot
	quarantineForReplace
	removeSelf
	quarantineForRejoin
	bootResume
)

// startStep is the next step of a member whose etcd does not run. lost loses the answer of a write to Kubernetes or etcd.
func (w *world) startStep(i int, lost bool) bool {
	p := &w.procs[i]
	if !p.alive || !p.agent || p.run {
		return false
	}
	if lock := &w.vols[p.vol].lock; *lock != i+1 && !w.is(mutNoLock) {
		if *lock != 0 {
			return false
		}
		*lock = i + 1
	}
	if lost && !slices.Contains([]uint8{claimBootstrap, add, takeSlot, removeSelf}, p.start.step) {
		return false
	}
	if p.start.step <= decide {
		w.look(i)
		return true
	}
	w.act(i, lost)
	return true
}

// look reads one thing after the other, or all at once in a coarse world, and decides.
func (w *world) look(i int) {
	p := &w.procs[i]
	for {
		switch p.start.step {
		case readRecord:
			w.readRecord(p)
		case readLease:
			w.readLease(p)
		case readList:
			w.readList(p)
		case confirmList:
			w.confirm(p)
		case decide:
			w.decide(i)
			return
		}
		if w.fine {
			return
		}
	}
}

func (w *world) readRecord(p *proc) {
	s := &p.start.sight
	switch {
	case !w.reaches(p):
		s.Record, s.RecordErr = leases.Record{}, errUnreached
	case !w.record.there:
		s.Record, s.RecordErr = leases.Record{}, leases.ErrAbsent
		if w.is(mutAbsentIsForming) {
			p.start.version = w.record.version
			s.Record, s.RecordErr = leases.Record{Phase: leases.PhaseForming, Seed: names[p.k], Members: []string{names[p.k]}}, nil
		}
	default:
		s.Record, s.RecordErr, p.start.version = w.record.says, nil, w.record.version
	}
	p.start.step = readLease
}

func (w *world) readLease(p *proc) {
	s := &p.start.sight
	switch lease := &w.members[p.k].lease; {
	case !w.reaches(p):
		s.Own, s.OwnErr = leases.Member{}, errUnreached
	case !lease.there:
		s.Own, s.OwnErr = leases.Member{}, leases.ErrAbsent
	default:
		s.Own, s.OwnErr = lease.says, nil
		if w.is(mutNoPodUID) {
			s.Own.PodUID = uids[p.pod]
		}
		if w.is(mutNoFloor) {
			s.Own.Floor = leases.Raft{}
		}
		if s.Own.ID != w.vols[p.vol].data.member && w.is(mutNoGroupTerm) {
			s.Own.Floor, s.Own.Raft = leases.Raft{}, leases.Raft{}
		}
		if w.is(mutNoVolumeUID) {
			s.Own.VolumeUID = ""
		}
	}
	w.inspect(p)
	p.start.step = readList
}

// inspect is what the agent finds on its volume.
func (w *world) inspect(p *proc) {
	s, v := &p.start.sight, &w.vols[p.vol]
	s.IdentityFile, s.IdentityFileErr = v.identityFile, nil
	if !v.stamped {
		s.IdentityFileErr = datadir.ErrNoIdentityFile
	}
	s.Report = datadir.Report{State: datadir.Empty}
	if d := v.data; d.there {
		s.Report = datadir.Report{State: datadir.Intact, ClusterID: d.cluster, MemberID: d.member, Term: uint64(d.term)}
		s.Report.Last = datadir.Position{Term: uint64(d.term), Index: uint64(d.index)}
		if d.corrupt {
			s.Report.State = datadir.Corrupt
		}
	}
}

func (w *world) readList(p *proc) {
	s := &p.start
	cfg := p.config()
	s.facts, s.step = s.sight.Facts(&cfg), decide
	record := s.sight.Record
	if s.sight.RecordErr != nil || record.Phase == leases.PhaseForming {
		return
	}
	cluster := record.ClusterID
	if cluster == 0 && s.sight.IdentityFileErr == nil {
		cluster = uint64(s.sight.IdentityFile.ClusterID)
	}
	view, _, ok := w.list(p, likely(record), cluster, 0)
	if w.is(mutTrustList) && record.MemberList != nil {
		view, ok = published(record), true
	}
	if !ok {
		return
	}
	s.view, s.facts.Peers = view, start.Answering
	s.facts.Slot = start.SlotIn(view, s.facts.Slot, record.Replacing, func(name string) string { return peerURLs[indexOf(name)][0] })
	w.enter(p)
	if s.facts.Listed == start.Unconfirmed && s.facts.Data == start.Intact {
		s.step = confirmList
	}
}

// published is the list in the record, as one who trusts it would read it.
func published(record leases.Record) membership.View {
	view := membership.View{ClusterID: record.ClusterID, Endpoint: record.Members[0]}
	for _, m := range record.MemberList.Members {
		id, _ := leases.ParseID(m.ID)
		view.Members = append(view.Members, membership.Member{ID: id, Name: m.Name, PeerURLs: []string{m.PeerURL}, Learner: m.Learner})
	}
	return view
}

// likely are the names that a list is asked of.
func likely(record leases.Record) []string {
	among := record.Members
	if record.MemberList != nil {
		among = slices.Clip(among)
		for _, m := range record.MemberList.Members {
			among = append(among, m.Name)
		}
	}
	return among
}

func (w *world) enter(p *proc) {
	s := &p.start
	s.entry, s.facts.Listed, s.facts.Own = start.ListingOf(s.view, names[p.k], peerURLs[p.k][0], s.sight.Report.MemberID)
	if s.entry.ID != 0 {
		s.facts.Joining = start.JoiningOf(s.asked, s.id, s.attempts, s.entry.ID)
	}
}

// confirm is the second list of R5.
func (w *world) confirm(p *proc) {
	s := &p.start
	s.step = decide
	var others []string
	all := s.view.Voters()
	for _, m := range all {
		if m.Started() && m.ID != s.view.Answerer {
			others = append(others, m.Name)
		}
	}
	without := s.view.Answerer
	if len(others) == 0 && len(all) == 1 {
		others, without = []string{all[0].Name}, 0
	}
	view, _, ok := w.list(p, others, s.view.ClusterID, without)
	if w.is(mutTrustList) {
		view, ok = s.view, true
	}
	if !ok || view.RaftTerm < s.view.RaftTerm {
		return
	}
	s.view = view
	if w.enter(p); s.facts.Listed == start.Unconfirmed {
		s.facts.Listed = start.Unlisted
	}
}

// evidence reads the members' Leases and looks for peers, as the seed of a Forming record does.
func (w *world) evidence(i int) {
	p := &w.procs[i]
	f, s := &p.start.facts, &p.start.sight
	v := &w.vols[p.vol]
	f.Evidence = start.NeverFormed
	if w.is(mutNoEvidence) {
		return
	}
	if s.Record.FormedEpoch > 0 || s.IdentityFileErr == nil && s.IdentityFile.Formed || v.quarantineFormed {
		f.Evidence = start.FormedBefore
		return
	}
	for _, name := range s.Record.Members {
		switch lease := &w.members[indexOf(name)].lease; {
		case !w.reaches(p), !lease.there:
			f.Evidence = start.EvidenceUnknown
			return
		case lease.says.EverFormed():
			f.Evidence = start.FormedBefore
			return
		}
	}
	for j := range w.procs {
		if q := &w.procs[j]; j != i && q.alive && q.run && !q.cut && !p.cut {
			f.Peers = start.Answering
		}
	}
}

// needs are those of a member add: room, and a quorum that outlives the replacement.
func (w *world) needs(p *proc) {
	s := &p.start
	if s.facts.Data == start.Intact && s.facts.Own == start.OwnID && s.facts.Epoch != start.Fenced {
		return
	}
	if _, room := start.RoomOf(s.view, s.entry, s.facts.Listed, s.sight.Record.MaxLearners); !room {
		return
	}
	others, want := start.QuorumForReplacing(s.view, s.entry, s.facts.Listed)
	for _, m := range others {
		if w.answers(p, m.ID) {
			want--
		}
	}
	if want <= 0 {
		s.facts.Needs = start.Met
	}
}

// answers says whether the member with id reports p that it knows a leader.
func (w *world) answers(p *proc, id uint64) bool {
	for j := range w.procs {
		q := &w.procs[j]
		if d := &w.vols[q.vol].data; q.run && !q.cut && !p.cut && d.member == id {
			return w.leads(d.group)
		}
	}
	return false
}

func (w *world) decide(i int) {
	p := &w.procs[i]
	s := &p.start
	if f := &s.facts; f.Place == start.Seed && f.Record&(start.Unclaimed|start.FormingByUs|start.FormingByAnother) != 0 {
		w.evidence(i)
	}
	if s.facts.Listed != start.NoQuorum && s.facts.Record == start.Formed && s.facts.Lease == start.Fresh {
		w.needs(p)
	}
	var d start.Decision
	if w.mutant != nil && w.mutant.rule != "" {
		d = start.DecideWithout(s.facts, w.mutant.rule)
	} else {
		d = start.Decide(s.facts)
	}
	if w.is(mutOldID) && d.Rule == "data-lost" {
		d.Mode, s.facts.Joining = start.ModeJoin, start.JoiningNow
	}
	if w.lines != nil && s.rule != d.Rule {
		w.say("agent %s (Pod %d): %s, rule %s (%s)", names[p.k], p.pod, d.Mode, d.Rule, words(s.facts))
	}
	s.rule, s.mode = d.Rule, d.Mode
	s.step = map[start.Mode]uint8{
		start.ModeNew: claimBootstrap, start.ModeJoin: quarantineForJoin, start.ModeReplaceSelf: takeSlot,
		start.ModeRejoin: quarantineForRejoin, start.ModeResume: bootResume,
	}[d.Mode]
}

func words(f start.Facts) string {
	return fmt.Sprintf("data %s, listed %s as %s, record %s, epoch %s, %s, Lease %s, slot %s, needs %s",
		f.Data, f.Listed, f.Own, f.Record, f.Epoch, f.Place, f.Lease, f.Slot, f.Needs)
}
