package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func (w *lostWorld) claimOrder(k int) bool {
	m := &w.members[k]
	if !m.api {
		return false
	}
	w.nonces++
	order := m.sight.Record.Order()
	record := m.sight.Record
	record.Epoch, record.Nonce = order.Epoch, fmt.Sprintf("n%d", w.nonces)
	_, cluster, _ := membership.ExpectedIDs(names[k], peerURLs[k][0], record.Token("n", "c", clusterUID))
	m.attempt = leases.RecoveryAttempt{Order: order.Name(), Nonce: record.Nonce, PodUID: uids[k], ClusterID: leases.FormatID(cluster)}
	claimed, err := m.sight.Record.Claimed(m.attempt)
	if !w.update(m.version, claimed, err) {
		return false
	}
	m.step = lostBuild
	return true
}

// build makes the data of the new raft group from the volume.
func (w *lostWorld) build(k int) {
	m := &w.members[k]
	cluster, _ := leases.ParseID(m.attempt.ClusterID)
	record := m.sight.Record
	record.Phase, record.Epoch, record.Nonce, record.ClusterID = leases.PhaseFormed, m.sight.Record.Order().Epoch, m.attempt.Nonce, cluster
	record.Lineage = leases.LineageOf(record.Epoch, record.Nonce)
	if w.mutant&mutNoLimit == 0 {
		record = start.Limited(record, m.identity, leases.MaxLearners)
	}
	id := uint64(1000 + w.nonces)
	var writes []int
	group := lostGroup{cluster: cluster, epoch: record.Epoch, lineage: record.Lineage, base: w.groups[w.newest].base, parent: w.groups[w.newest].parent}
	group.voters = map[uint64]int{id: k}
	switch order := m.sight.Record.Order(); {
	case order.Restores():
		var ok bool
		if writes, group.parent, ok = w.restoredFor(order, m.sight.Record.Lineage); !ok {
			m.cannotExecute = order.Name()
			return
		}
		group.base += bump
		group.fork = w.groups[group.parent].base + int64(len(writes))
	case order.Mode == leases.RecoverBackup:
		var ok bool
		if writes, group.parent, ok = w.backupFor(order, m.sight.Record.Lineage); !ok {
			m.cannotExecute = order.Name()
			return
		}
		group.base = w.groups[group.parent].base + bump
		group.fork = w.groups[group.parent].base + int64(len(writes))
	case m.there:
		if writes = w.whole(k); m.tail > 0 {
			w.unended++
		}
		group.base, group.parent = w.groups[m.group].base, w.groups[m.group].parent
		group.fork = group.base + int64(len(writes))
	}
	group.writes, group.terms, group.term = writes, firstTerms(len(writes)), 1
	w.groups = append(w.groups, group)
	cfg := w.config(k)
	m.built, m.buildOf, m.step = start.IdentityFileOf(&cfg, record, m.lease, cluster, id), len(w.groups)-1, lostForm
}

// form is the commit point.
func (w *lostWorld) form(k int) {
	m := &w.members[k]
	if !m.api {
		m.step = lostForm
		return
	}
	record, version := w.record, w.version
	if w.mutant&mutFiresTwice != 0 { // what it read when it claimed
		record = m.sight.Record
		record, _ = record.Claimed(m.attempt)
	}
	formed, err := record.Reformed(m.attempt, leases.Recovered{Epoch: m.built.Epoch, Mode: m.sight.Record.Order().Mode, Member: names[k]},
		leases.Fork{Parent: cmp.Or(m.sight.Record.Order().Lineage, m.identity.Lineage), Revision: w.groups[m.buildOf].fork})
	if err != nil || !w.there {
		return
	}
	order := *record.Order()
	if !w.excused {
		w.checkFormed(k, order)
	}
	if order.Restores() {
		w.checkRestored(k, order)
	}
	w.newest = m.buildOf
	w.formedBy[order.Mode]++
	if !w.update(version, formed, nil) {
		w.violate("the model cannot record %+v", formed)
	}
	w.say("%s forms epoch %d", names[k], m.built.Epoch)
}

// checkFormed compares the new raft group with what the others hold: no acknowledged disk has a committed write that is
// not in it, and no quorum of the old raft group can serve.
func (w *lostWorld) checkFormed(k int, order leases.Recovery) {
	m := &w.members[k]
	if w.groups[w.newest].epoch >= m.built.Epoch {
		w.violate("epoch %d is formed after epoch %d", m.built.Epoch, w.groups[w.newest].epoch)
	}
	if !order.Restores() {
		w.checkLoss(k, order)
	}
	// What is away can come back, and must not be a quorum then.
	open := 0
	for id, j := range w.groups[w.newest].voters {
		if o := &w.members[j]; !o.gone && o.there && o.group == w.newest && uint64(o.identity.MemberID) == id && o.identity.Prepared < order.Epoch {
			open++
		}
	}
	if open >= membership.Quorum(len(w.groups[w.newest].voters)) {
		w.violate("epoch %d is formed while %d voters of the raft group before are not fenced", m.built.Epoch, open)
	}
}

// has says whether the log of a raft group begins with these writes.
func (w *lostWorld) has(g int, writes []int) bool {
	all := w.groups[g].writes
	return len(all) >= len(writes) && slices.Equal(all[:len(writes)], writes)
}

// rejoin takes a member into the raft group g: its data goes to quarantine, and it learns under a new ID. Its agent
// withdraws the disk report after that, with a renewal.
func (w *lostWorld) rejoin(k, g int) bool {
	m := &w.members[k]
	if !w.commit(g) { // the entry that changes the list
		return false
	}
	w.nonces++
	id := uint64(1000 + w.nonces)
	list := lostList{voters: others(w.groups[g].voters, k), learners: others(w.groups[g].learners, k)}
	list.learners[id] = k
	w.groups[g].lists(list)
	cfg := w.config(k)
	m.identity = start.IdentityFileOf(&cfg, m.sight.Record, m.lease, w.groups[g].cluster, id)
	m.lostLog = holding(w.groups[g])
	m.there, m.group, m.index, m.run, m.built = true, g, len(w.groups[g].writes), true, datadir.IdentityFile{}
	w.publishList(g)
	return true
}

// others are the raft IDs of the other members.
func others(ids map[uint64]int, k int) map[uint64]int {
	left := map[uint64]int{}
	for id, j := range ids {
		if j != k {
			left[id] = j
		}
	}
	return left
}

// publishList is a write of the leader's agent, which does not reach the API server at times.
func (w *lostWorld) publishList(g int) {
	up, ok := w.quorum(g)
	if slices.SortStableFunc(up, w.elect); !ok || !w.members[up[0]].api || !w.there || w.record.ClusterID != w.groups[g].cluster {
		return
	}
	list := leases.MemberList{}
	for learner, ids := range map[bool]map[uint64]int{false: w.groups[g].voters, true: w.groups[g].learners} {
		for id, j := range ids {
			list.Members = append(list.Members, leases.ListedMember{ID: leases.FormatID(id), Name: names[j], PeerURL: peerURLs[j][0], Learner: learner})
		}
	}
	slices.SortFunc(list.Members, func(a, b leases.ListedMember) int { return strings.Compare(a.ID, b.ID) })
	if was := w.record.MemberList; was != nil && slices.Equal(was.Members, list.Members) {
		return
	}
	w.record.MemberList = &list
	w.version++
}

// mayVote lets a learner decide by the table whether it requests its vote, by what its Lease and the record say now.
func (w *lostWorld) mayVote(k int) bool {
	m := &w.members[k]
	g, id := &w.groups[m.group], uint64(m.identity.MemberID)
	_, serves := w.quorum(m.group)
	if owner, learns := g.learners[id]; !learns || owner != k || !m.run || !m.api || !m.net || !serves || !w.there {
		return false
	}
	f := membership.PromotionFacts{
		Kind: membership.LearnerStarted, Voters: membership.OneVoter, Reported: rules.AnswerOf(start.ShowsRunning(m.lease, m.identity)),
		Authoritative: rules.AnswerOf(w.record.Phase == leases.PhaseFormed && w.record.ClusterID == g.cluster),
		Joined:        rules.AnswerOf(len(g.voters)+len(g.learners) == len(w.members)),
		Room:          rules.AnswerOf(len(g.learners) < w.record.MaxLearners),
	}
	if len(g.voters) > 1 {
		f.Voters = membership.MoreVoters
	}
	if w.mutant&mutUnreported != 0 {
		f.Reported = rules.Yes
	}
	return membership.DecidePromotion(f).Verdict == membership.PromoteMember
}

// vote promotes a learner. etcd lets it catch up before. The entry of its vote reaches it later.
func (w *lostWorld) vote(k int) bool {
	if !w.mayVote(k) {
		return false
	}
	m := &w.members[k]
	g := &w.groups[m.group]
	m.lostLog, m.index = holding(*g), len(g.writes)
	if w.commit(m.group) {
		w.promote(m.group, uint64(m.identity.MemberID))
	}
	return true
}

// promote is the effect of an entry that was committed.
func (w *lostWorld) promote(g int, id uint64) {
	k, learns := w.groups[g].learners[id]
	if !learns {
		return
	}
	list := lostList{voters: others(w.groups[g].voters, k), learners: others(w.groups[g].learners, k)}
	list.voters[id] = k
	w.groups[g].lists(list)
	w.say("%s votes", names[k])
}

// proposeVote appends the promotion of a learner to the log of the leader, and to no other.
func (w *lostWorld) proposeVote(k int) bool {
	if !w.mayVote(k) {
		return false
	}
	m := &w.members[k]
	up, _ := w.quorum(m.group)
	slices.SortStableFunc(up, w.elect)
	leader := &w.members[up[0]]
	if leader.promotes != 0 || leader.leading != w.groups[m.group].term || !w.propose(up[0]) {
		return false
	}
	leader.promotes = uint64(m.identity.MemberID)
	w.say("%s appends the vote of %s", names[up[0]], names[k])
	return true
}
