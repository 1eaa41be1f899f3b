package model

import (
	"slices"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/membership"
)

// change commits a new configuration and holds it against the invariants: by our own hand never fewer healthy voters than
// a quorum where there was one.
func (w *world) change(gi int, edit func([]entry) []entry) {
	if !w.leads(gi) {
		return
	}
	g := &w.groups[gi]
	next := edit(slices.Clone(g.now()))
	if healthy, n := w.healthy(gi, next), voters(next); healthy < membership.Quorum(n) && !w.ghost.excused {
		w.violate("a change of the member list leaves %d healthy voters of %d where a quorum was", healthy, n)
	}
	w.commit(gi, -1)
	g.confs = append(slices.Clip(g.confs), conf{g.length, next})
}

// connected counts the voters that the leader has been connected to for 5 s.
func (w *world) connected(gi int, members []entry) int {
	n := 0
	for _, e := range members {
		if i, p := w.member(gi, e.id); p != nil && !e.learner && (!p.young || i == w.groups[gi].leader-1) {
			n++
		}
	}
	return n
}

func started(members []entry, without uint64) (started, all int) {
	for _, e := range members {
		if !e.learner && e.id != without {
			all++
			if e.name != "" {
				started++
			}
		}
	}
	return started, all
}

// addLearner is etcd's MemberAddAsLearner with its strict reconfiguration check. limit is the max-learners of each member.
func (w *world) addLearner(gi, k int) (uint64, bool) {
	if !w.leads(gi) {
		return 0, false
	}
	members := w.groups[gi].now()
	n := voters(members)
	if n > 1 && w.connected(gi, members) < membership.Quorum(n+1) && !w.is(mutNoQuorumCheck) {
		return 0, false
	}
	if slices.ContainsFunc(members, func(e entry) bool { return e.k == k }) {
		return 0, false
	}
	learners := len(members) - n + 1
	if learners > w.procs[w.groups[gi].leader-1].limit {
		return 0, false
	}
	for _, e := range members {
		if _, p := w.member(gi, e.id); p != nil && learners > p.limit {
			w.violate("the member list splits: %s applies no learner number %d, others do", names[p.k], learners)
		}
	}
	w.counts.id++
	id := uint64(w.counts.id)
	w.change(gi, func(members []entry) []entry { return append(members, entry{id: id, k: k, learner: true}) })
	return id, true
}

// remove is etcd's MemberRemove with its strict reconfiguration check.
func (w *world) remove(gi int, id uint64) bool {
	if !w.leads(gi) {
		return false
	}
	members := w.groups[gi].now()
	i := find(members, id)
	if i < 0 {
		return true // it is gone already
	}
	if !members[i].learner && !w.is(mutNoQuorumCheck) {
		n := voters(members)
		if ready, all := started(members, id); ready < membership.Quorum(all) {
			return false
		}
		if _, p := w.member(gi, id); p != nil && w.connected(gi, members)-1 < 1+(n-1)/2 {
			return false
		}
	}
	leader := w.procs[w.groups[gi].leader-1]
	w.change(gi, func(members []entry) []entry { return slices.Delete(members, i, i+1) })
	if w.vols[leader.vol].data.member == id {
		w.groups[gi].leader = 0
	}
	return true
}

// promote is etcd's MemberPromote: the learner holds nine tenths of the log, and enough voters started.
func (w *world) promote(gi int, id uint64) bool {
	if !w.leads(gi) {
		return false
	}
	g := &w.groups[gi]
	members := g.now()
	i := find(members, id)
	_, p := w.member(gi, id)
	if i < 0 || !members[i].learner || p == nil || w.vols[p.vol].data.index*10 < g.length*9 {
		return false
	}
	if ready, all := started(members, id); ready+1 < membership.Quorum(all+1) {
		return false
	}
	w.change(gi, func(members []entry) []entry {
		members[i].learner = false
		return members
	})
	return true
}

// viewOf is a linearizable member list as the member at endpoint answers it.
func (w *world) viewOf(gi, k int, answerer uint64) membership.View {
	g := &w.groups[gi]
	members := g.now()
	v := membership.View{
		ClusterID: g.cluster, Endpoint: names[k], Answerer: answerer,
		RaftTerm: uint64(g.term), RaftIndex: uint64(g.length), Members: make([]membership.Member, len(members)),
	}
	for i, e := range members {
		v.Members[i] = membership.Member{ID: e.id, Name: e.name, PeerURLs: peerURLs[e.k], Learner: e.learner}
	}
	slices.SortFunc(v.Members, byID)
	return v
}

// list asks the voters among names but self, and not the one with the ID without, for the list of a cluster.
func (w *world) list(p *proc, among []string, cluster, without uint64) (membership.View, int, bool) {
	if p.cut || cluster == 0 {
		return membership.View{}, 0, false
	}
	for i := range w.procs {
		q := &w.procs[i]
		d := &w.vols[q.vol].data
		if !q.run || q.cut || q == p || d.cluster != cluster || d.member == without || !slices.Contains(among, names[q.k]) {
			continue
		}
		members := w.groups[d.group].now()
		if at := find(members, d.member); at < 0 || members[at].learner || !w.leads(d.group) {
			continue
		}
		return w.viewOf(d.group, q.k, d.member), d.group, true
	}
	return membership.View{}, 0, false
}

// boot starts the proc's etcd on what is on its volume.
func (w *world) boot(i int, identityFile datadir.IdentityFile) {
	p := &w.procs[i]
	for j := range w.procs {
		if q := &w.procs[j]; j != i && q.run && q.vol == p.vol {
			w.violate("two etcds run on the volume of %s", names[p.k])
		}
	}
	p.run, p.young, p.limit = true, true, identityFile.MaxLearners
}

// create makes etcd write the first log of a raft ID.
func (w *world) create(i, gi int, identityFile datadir.IdentityFile, index int) {
	p := &w.procs[i]
	v := &w.vols[p.vol]
	id := uint64(identityFile.MemberID)
	if v.data.there {
		w.violate("the data directory of %s is overwritten", names[p.k])
	}
	if slices.Contains(w.ghost.started, id) {
		w.violate("raft ID %x of %s is started on a volume without its data", id, names[p.k])
	}
	w.ghost.started = append(slices.Clip(w.ghost.started), id)
	v.data = data{there: true, group: gi, cluster: uint64(identityFile.ClusterID), member: id, index: index, term: w.groups[gi].term}
	w.boot(i, identityFile)
}

// stop ends the proc's etcd; what it led needs a new leader.
func (w *world) stop(p *proc) {
	p.run = false
	for gi := range w.groups {
		if l := w.groups[gi].leader; l != 0 && &w.procs[l-1] == p {
			w.groups[gi].leader = 0
		}
	}
}
