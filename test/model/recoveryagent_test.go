package model

import (
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// renew publishes what a member is, or what its volume holds.
func (w *lostWorld) renew(k int) bool {
	m := &w.members[k]
	if !m.on || !m.api {
		return false
	}
	if m.run {
		g := &w.groups[m.group]
		m.lease.ID, m.lease.Role, m.lease.ClusterID, m.lease.Epoch, m.lease.Lineage = uint64(m.identity.MemberID), leases.RoleMember, g.cluster,
			m.identity.Epoch, m.identity.Lineage
		if _, learns := g.learners[m.lease.ID]; learns {
			m.lease.Role = leases.RoleLearner
		}
		last := w.last(k)
		m.lease.Revision, m.lease.Raft = g.base+int64(m.commit), leases.Raft{Term: m.seen, LastTerm: last.Term, LastIndex: last.Index, Committed: uint64(m.commit)}
		m.lease.Disk, m.lease.Reason = nil, ""
		w.publishList(m.group)
		if completed, missing := start.Completed(w.record, m.identity); missing {
			w.update(w.version, completed, nil)
		}
		return true
	}
	if report := w.diskReport(k); report != nil && !w.places(k) {
		if was := m.lease.Disk; report.Order != "" && (was == nil || was.Order != report.Order) {
			m.acked = [2]int{w.druids[0].looks, w.druids[1].looks}
		}
		m.lease.Disk, m.lease.Reason = report, "waits"
	}
	return true
}

// places says whether the agent puts data in place before it reports a disk again.
func (w *lostWorld) places(k int) bool {
	m := &w.members[k]
	return m.built.ClusterID != 0 && w.there && w.record.Phase == leases.PhaseFormed && uint64(m.built.ClusterID) == w.record.ClusterID
}

func (w *lostWorld) config(k int) config.Config {
	p := proc{k: k, pod: k}
	return p.config()
}

// diskReport is what the agent of a member finds on its volume.
func (w *lostWorld) diskReport(k int) *leases.DiskReport {
	m := &w.members[k]
	sight := w.sightOf(k)
	cfg := w.config(k)
	voters, uncommitted := w.votersOf(k)
	report, known := sight.DiskReport(&cfg, datadir.Holding{
		Revision: w.groups[m.group].base + int64(m.commit), Tail: uint64(m.index + m.tail - m.commit), Voters: voters, Uncommitted: uncommitted,
	})
	if !known {
		return nil
	}
	switch {
	case w.mutant&mutBestByCommit != 0:
		report.LastTerm, report.Last = 1, report.Commit
	case w.mutant&mutBestByLength != 0:
		report.LastTerm = 1
	case w.mutant&mutDisksUnused != 0:
		report.Revision, report.Tail = 0, 0
	}
	if report.State != leases.DiskForeign {
		report.Order = m.acknowledged
		if report.Order != "" && report.Order == m.cannotExecute {
			report.Failed = leases.FailedBackups
		}
	}
	return &report
}

func (w *lostWorld) sightOf(k int) start.Sight {
	m := &w.members[k]
	s := start.Sight{IdentityFile: m.identity, Built: m.built, Own: m.lease, Record: w.record, Report: datadir.Report{State: datadir.Empty}}
	if !m.there {
		s.IdentityFile, s.IdentityFileErr = datadir.IdentityFile{}, datadir.ErrNoIdentityFile
	} else {
		s.Report = datadir.Report{State: datadir.Intact, ClusterID: w.groups[m.group].cluster, MemberID: uint64(m.identity.MemberID), Term: m.seen,
			Commit: uint64(m.commit), ConsistentIndex: uint64(m.commit), Last: w.last(k)}
	}
	if w.mutant&mutNoLaterGroup != 0 {
		s.Own.Epoch = 0
	}
	if w.mutant&mutNoPlace != 0 && s.Record.Lineage == "" {
		s.Built = datadir.IdentityFile{}
	}
	switch {
	case !m.api:
		s.Record, s.RecordErr, s.Own, s.OwnErr = leases.Record{}, errUnreached, leases.Member{}, errUnreached
	case !w.there:
		s.Record, s.RecordErr = leases.Record{}, leases.ErrAbsent
	}
	return s
}

// agent is the next step of a member's agent.
func (w *lostWorld) agent(k int) bool {
	m := &w.members[k]
	if !m.on {
		return false
	}
	if m.run {
		return w.watch(k) || w.vote(k)
	}
	step := m.step
	m.step = lostLook
	switch step {
	case lostAct:
		return w.agentActs(k)
	case lostBuild:
		w.build(k)
	case lostForm:
		w.form(k)
	default:
		m.sight, m.version, m.step = w.sightOf(k), w.version, lostAct
		if m.sight.RecordErr == nil && m.sight.Record.Order() == nil {
			m.acknowledged = ""
		}
	}
	return true
}

// watch stops an etcd for which the record has no use.
func (w *lostWorld) watch(k int) bool {
	m := &w.members[k]
	_, serves := w.quorum(m.group)
	serves = serves && m.net
	sight := w.sightOf(k)
	if serves && w.mutant&mutLateServes != 0 || !sight.Stops(rules.YesNoOf(serves)) {
		return false
	}
	m.run = false
	w.say("%s stops its etcd", names[k])
	return true
}

// agentActs decides on what was read before, and acts.
func (w *lostWorld) agentActs(k int) bool {
	m := &w.members[k]
	cfg := w.config(k)
	f := m.sight.Facts(&cfg)
	serving := -1
	for g := range w.groups {
		cluster := m.sight.Record.ClusterID
		if m.sight.RecordErr != nil {
			cluster = uint64(m.identity.ClusterID)
		}
		if _, ok := w.quorum(g); ok && m.net && w.groups[g].cluster == cluster {
			serving, f.Peers, f.Needs, f.Listed, f.Own = g, start.Answering, start.Met, start.Unlisted, start.OtherID
			if owner, listed := w.groups[g].voters[uint64(m.identity.MemberID)]; listed && owner == k && m.there {
				f.Listed, f.Own = start.Voter, start.OwnID
			}
			if owner, listed := w.groups[g].learners[uint64(m.identity.MemberID)]; listed && owner == k && m.there {
				f.Listed, f.Own = start.Learner, start.OwnID
			}
		}
	}
	report := w.diskReport(k)
	if w.mutant&mutClaimIsStale != 0 && report != nil && m.sight.Record.Recovery != nil && m.sight.Record.Recovery.Chosen == names[k] {
		f.Order = m.sight.OrderOf(&cfg, m.acknowledged, report)
		if f.Order == start.OrderWait && m.sight.Record.Recovery.Stage == leases.StageExecute {
			f.Order = start.OrderForm
		}
	} else {
		f.Order = m.sight.OrderOf(&cfg, m.acknowledged, report)
	}
	d := start.Decide(f)
	switch d.Mode {
	case start.ModeResume:
		if m.identity.Prepared > 0 { // it withdraws its acknowledgement before
			if !m.api {
				return false
			}
			m.lease.Disk = nil
		}
		m.run, m.identity.Prepared, m.acknowledged, m.leading = true, 0, "", 0
	case start.ModePrepare:
		if order := m.sight.Record.Order(); m.there && w.mutant&mutUnfenced == 0 {
			m.identity.Prepared = max(m.identity.Prepared, order.Epoch)
		}
		m.acknowledged = m.sight.Record.Order().Name()
	case start.ModeRecover:
		if m.cannotExecute == m.sight.Record.Order().Name() {
			return false
		}
		return w.claimOrder(k)
	case start.ModePlace:
		m.group, m.index, m.identity, m.there = m.buildOf, len(w.groups[m.buildOf].writes), m.built, true
		m.built, m.lostLog = datadir.IdentityFile{}, holding(w.groups[m.buildOf])
	case start.ModeRejoin, start.ModeJoin, start.ModeReplaceSelf:
		if serving < 0 || !m.api {
			return false
		}
		if !w.rejoin(k, serving) {
			return false
		}
	default:
		return false
	}
	w.say("%s: %s by %s", names[k], d.Mode, d.Rule)
	return true
}
