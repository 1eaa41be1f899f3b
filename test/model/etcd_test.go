package model

import (
	"slices"

	"github.com/etcd-druid/druid/membership"
)

// config is the configuration in force at a place of the log.
func (g *group) config(index int) []entry {
	for _, v := range slices.Backward(g.confs) {
		if v.at <= index {
			return v.members
		}
	}
	return nil
}

func (g *group) now() []entry { return g.config(g.length) }

func find(members []entry, id uint64) int {
	return slices.IndexFunc(members, func(e entry) bool { return e.id == id })
}

func voters(members []entry) int {
	n := 0
	for _, e := range members {
		if !e.learner {
			n++
		}
	}
	return n
}

// member is the running, connected etcd of a raft ID, or nil.
func (w *world) member(gi int, id uint64) (int, *proc) {
	for i := range w.procs {
		p := &w.procs[i]
		if d := &w.vols[p.vol].data; p.run && !p.cut && d.group == gi && d.member == id {
			return i, p
		}
	}
	return -1, nil
}

// healthy counts the voters of members that run, are connected, and hold all that a voter of theirs must.
func (w *world) healthy(gi int, members []entry) int {
	n := 0
	for _, e := range members {
		if !e.learner {
			if _, p := w.member(gi, e.id); p != nil {
				n++
			}
		}
	}
	return n
}

// leads says whether the group has a leader with a quorum.
func (w *world) leads(gi int) bool {
	g := &w.groups[gi]
	if g.leader == 0 {
		return false
	}
	p := &w.procs[g.leader-1]
	if !p.run || p.cut || w.vols[p.vol].data.group != gi {
		return false
	}
	members := g.now()
	return w.healthy(gi, members) >= membership.Quorum(voters(members))
}

// elect lets proc i become leader if a quorum of its own configuration grants it: no member grants to a shorter log.
func (w *world) elect(i int) bool {
	p := &w.procs[i]
	if !p.run || p.cut {
		return false
	}
	d := &w.vols[p.vol].data
	g := &w.groups[d.group]
	if w.leads(d.group) {
		return false
	}
	members := g.config(d.index)
	me := find(members, d.member)
	if me < 0 || members[me].learner {
		return false
	}
	grants := 0
	for _, e := range members {
		if _, q := w.member(d.group, e.id); q != nil && !e.learner && w.vols[q.vol].data.index <= d.index {
			grants++
		}
	}
	if grants < membership.Quorum(voters(members)) {
		return false
	}
	if d.index < g.length {
		if !w.ghost.excused {
			w.violate("acknowledged entries %d to %d are lost: %s leads with a log that ends before them", d.index+1, g.length, names[p.k])
		}
		g.length = d.index
		for len(g.confs) > 1 && g.confs[len(g.confs)-1].at > g.length {
			g.confs = slices.Clone(g.confs[:len(g.confs)-1])
		}
	}
	g.term++
	g.leader = i + 1
	for _, e := range members {
		if _, q := w.member(d.group, e.id); q != nil {
			qd := &w.vols[q.vol].data
			qd.term, qd.index = g.term, min(qd.index, g.length)
		}
	}
	w.say("etcd: %s leads %x in term %d", names[p.k], g.cluster, g.term)
	return true
}

// commit appends one entry, held by as few members as a quorum is; the one at lag is left out where it can be.
func (w *world) commit(gi, lag int) bool {
	if !w.leads(gi) {
		return false
	}
	g := &w.groups[gi]
	members := g.now()
	g.length++
	need := membership.Quorum(voters(members))
	hold := func(p *proc) {
		d := &w.vols[p.vol].data
		d.index, d.term = g.length, g.term
		need--
	}
	hold(&w.procs[g.leader-1])
	for pass := range 2 {
		for _, e := range members {
			i, p := w.member(gi, e.id)
			if need > 0 && p != nil && !e.learner && i != g.leader-1 && (i == lag) == (pass == 1) {
				hold(p)
			}
		}
	}
	return true
}

// replicate brings a member up to the leader's log: a removed one ends, a new one publishes its name.
func (w *world) replicate(i int) bool {
	p := &w.procs[i]
	d := &w.vols[p.vol].data
	if !p.run || p.cut || !w.leads(d.group) {
		return false
	}
	g := &w.groups[d.group]
	members := g.now()
	at := find(members, d.member)
	if at < 0 {
		if d.index >= g.length && g.leader == i+1 {
			return false
		}
		w.stop(p)
		w.say("etcd: %s ends: it was removed from %x", names[p.k], g.cluster)
		return true
	}
	published := members[at].name != ""
	if d.index == g.length && published {
		return false
	}
	d.index, d.term = g.length, g.term
	if !published {
		w.change(d.group, func(members []entry) []entry {
			members[at].name = names[p.k]
			return members
		})
		d.index, d.term = g.length, g.term
	}
	w.say("etcd: %s holds the log up to %d", names[p.k], g.length)
	return true
}

// write is a client's, through a Pod in the client endpoints.
func (w *world) write(i, lag int) bool {
	p := &w.procs[i]
	if !p.run || p.cut {
		return false
	}
	m := &w.members[p.k]
	gi := w.vols[p.vol].data.group
	if m.pod.uid != p.pod || !m.pod.routed || !w.commit(gi, lag) {
		return false
	}
	if w.ghost.wrote != 0 && w.ghost.wrote != gi+1 {
		w.violate("two clusters: %x acknowledged writes, now %x does", w.groups[w.ghost.wrote-1].cluster, w.groups[gi].cluster)
	}
	w.ghost.wrote = gi + 1
	w.say("client: wrote entry %d through %s", w.groups[gi].length, names[p.k])
	return true
}
