package model

import (
	"cmp"
	"maps"
	"slices"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/membership"
)

// lostLog is what the log of a member has besides the first writes of its raft group. A leader that reaches no quorum appends entries
// that are never acknowledged. With three voters, an entry on a second one is committed. So such entries are on one member only.
type lostLog struct {
	tail    int    // entries after index that are not committed
	of      uint64 // their term
	commit  int    // the commit index of the hard state: a follower learns with the next message what is committed
	seen    uint64 // the highest term that the member knows
	leading uint64 // the term in which it was elected, until it follows another leader or its etcd ends
	// promotes is the raft ID that an entry of the tail promotes, 0 for none.
	promotes uint64
}

// last is the position of the last entry in the log of a member.
func (w *lostWorld) last(k int) datadir.Position {
	m := &w.members[k]
	p := datadir.Position{Index: uint64(m.index + m.tail), Term: m.of}
	if terms := w.groups[m.group].terms; m.tail == 0 && m.index > 0 {
		p.Term = terms[m.index-1]
	}
	return p
}

// elect orders voters as an election does: only one whose log has the latest term, and in it the most entries, gets the votes of all.
func (w *lostWorld) elect(a, b int) int {
	at, to := w.last(a), w.last(b)
	return cmp.Or(cmp.Compare(to.Term, at.Term), cmp.Compare(to.Index, at.Index), cmp.Compare(w.members[b].leading, w.members[a].leading))
}

// lists is the effect of an entry that was committed at the end of the log.
func (g *lostGroup) lists(list lostList) {
	list.at = len(g.writes)
	g.before = append(g.before, g.lostList)
	g.lostList = list
}

// votersOf are the voters by the log of a member, as its disk report has them: what the log adds to those that it knows to be committed. The
// uncommitted ones are only in entries after that.
func (w *lostWorld) votersOf(k int) (voters, uncommitted []uint64) {
	m := &w.members[k]
	g := &w.groups[m.group]
	ids := map[uint64]bool{}
	for _, list := range append(slices.Clip(g.before), g.lostList) {
		if list.at <= m.commit {
			ids = map[uint64]bool{}
		}
		for id := range list.voters {
			if list.at <= m.index && !ids[id] {
				if ids[id] = true; list.at > m.commit {
					uncommitted = append(uncommitted, id)
				}
			}
		}
	}
	if m.promotes != 0 && !ids[m.promotes] {
		ids[m.promotes], uncommitted = true, append(uncommitted, m.promotes)
	}
	slices.Sort(uncommitted)
	return slices.Sorted(maps.Keys(ids)), uncommitted
}

// commit acknowledges one write by a quorum, and by no other member. Another member leads if the leader is not among them: it first commits
// the rest of its log, and the others drop what they have beyond it.
func (w *lostWorld) commit(g int) bool {
	up, ok := w.quorum(g)
	if !ok {
		return false
	}
	group := &w.groups[g]
	slices.SortStableFunc(up, w.elect)
	leader := &w.members[up[0]]
	if leader.index < len(group.writes) && !w.excused {
		w.violate("acknowledged writes are lost: the log of every voter of epoch %d ends at %d, and %d were acknowledged", group.epoch, leader.index,
			len(group.writes))
	}
	if g != w.newest && !w.excused {
		w.violate("two raft groups: epoch %d acknowledges a write after epoch %d was formed", group.epoch, w.groups[w.newest].epoch)
	}
	if leader.leading != group.term || group.term == 0 {
		group.term++
		leader.leading = group.term
	}
	has := min(len(group.writes), leader.index)
	group.writes, group.terms = slices.Clip(group.writes[:has]), slices.Clip(group.terms[:has])
	for range leader.tail {
		w.add(group, leader.of)
	}
	promotes := leader.promotes
	if promotes == 0 {
		w.add(group, group.term)
	}
	for _, k := range up[:membership.Quorum(len(group.voters))] {
		m := &w.members[k]
		m.index, m.tail, m.promotes, m.commit, m.seen = len(group.writes), 0, 0, len(group.writes)-1, group.term
		if m != leader {
			m.leading = 0
		}
	}
	leader.commit = leader.index
	if promotes != 0 { // the next entry needs a quorum of the new list
		w.promote(g, promotes)
		return w.commit(g)
	}
	return true
}

func (w *lostWorld) add(group *lostGroup, term uint64) {
	w.wrote++
	group.writes, group.terms = append(group.writes, w.wrote), append(group.terms, term)
}

// propose appends an entry to the log of a member that leads, or that does not know yet that another one does. No client gets an answer.
func (w *lostWorld) propose(k int) bool {
	m := &w.members[k]
	if !m.on || !m.run || !m.there || m.leading == 0 || m.index < len(w.groups[m.group].writes) && m.leading == w.groups[m.group].term {
		return false
	}
	m.tail, m.of = m.tail+1, m.leading
	return true
}

func (w *lostWorld) replicate(k int) bool {
	m := &w.members[k]
	group := &w.groups[m.group]
	if _, ok := w.quorum(m.group); !ok || !m.run || !m.net || m.index == len(group.writes) && m.commit == m.index {
		return false
	}
	if m.leading < group.term { // its leader has another log
		m.tail, m.promotes, m.leading = 0, 0, 0
	}
	m.index, m.commit, m.seen = len(group.writes), len(group.writes), group.term
	return true
}

// whole is the log of a member as writes, with the end that is not committed.
func (w *lostWorld) whole(k int) []int {
	m := &w.members[k]
	writes := slices.Clone(w.groups[m.group].writes[:m.index])
	for range m.tail {
		w.wrote++
		writes = append(writes, w.wrote)
	}
	return writes
}

// firstTerms are the terms of a log that was made at once.
func firstTerms(n int) []uint64 { return slices.Repeat([]uint64{1}, n) }

// holding is the log of a member that has all of its raft group.
func holding(group lostGroup) lostLog { return lostLog{commit: len(group.writes), seen: group.term} }
