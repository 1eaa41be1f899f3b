package model

import (
	"cmp"
	"slices"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// act takes the next step of what was decided.
func (w *world) act(i int, lost bool) {
	p := &w.procs[i]
	s := &p.start
	next := s.step + 1
	switch s.step {
	case claimBootstrap:
		if !w.claim(p) || lost {
			next = readRecord
		}
	case quarantineForBootstrap, quarantineForJoin, quarantineForReplace, quarantineForRejoin:
		w.quarantine(p)
		if s.step == quarantineForRejoin {
			next = readRecord
		}
	case identityFileBootstrap:
		w.identityFile(p)
	case bootBootstrap:
		w.found(i)
		next = readRecord
	case add:
		if !w.addSelf(p, lost) {
			next = readRecord
		}
	case agree:
		if !w.agreed(p) {
			next = readRecord
		}
	case bootJoin:
		w.join(i)
		next = readRecord
	case takeSlot:
		if !w.slot(p) || lost {
			next = readRecord
		}
	case removeSelf:
		w.removeSelf(p, lost)
		next = readRecord
	case bootResume:
		w.resume(i)
		next = readRecord
	}
	s.step = next
}

// updateRecord is the compare-and-set of the record.
func (w *world) updateRecord(p *proc, version int, record leases.Record) bool {
	if !w.reaches(p) || !w.record.there && !w.is(mutAbsentIsForming) || w.record.version != version && !w.is(mutBlindWrite) {
		return false
	}
	w.oneAtATime(record)
	w.record = recordObj{there: true, version: w.nextVersion(), says: record}
	if id := record.ClusterID; record.Phase == leases.PhaseFormed && id != 0 && w.ghost.formed != 0 && id != w.groups[w.ghost.formed-1].cluster {
		w.violate("the record names cluster %x, the cluster that was formed is %x", id, w.groups[w.ghost.formed-1].cluster)
	}
	return true
}

type ids struct{ member, cluster uint64 }

// idsOf are etcd's own IDs of a bootstrap.
func (w *world) idsOf(k int, token string) ids {
	member, cluster, err := membership.ExpectedIDs(names[k], peerURLs[k][0], token)
	if err != nil {
		w.violate("no IDs of %s: %v", names[k], err)
	}
	return ids{member, cluster}
}

func (w *world) claim(p *proc) bool {
	s := &p.start
	w.counts.nonce++
	nonce := uids[w.counts.nonce]
	if w.is(mutOldToken) {
		nonce = "same"
	}
	record := start.Claim(s.sight.Record, nonce, uids[p.pod], w.limitOf(p))
	id := w.idsOf(p.k, record.Token("n", "c", clusterUID))
	record.ClusterID = id.cluster
	if !w.updateRecord(p, s.version, record) {
		return false
	}
	cfg := p.config()
	s.identityFile = start.IdentityFileOf(&cfg, record, s.sight.Own, id.cluster, id.member)
	w.say("agent %s: claims epoch %d with nonce %s", names[p.k], record.Epoch, nonce)
	return true
}

func (w *world) limitOf(p *proc) int {
	if w.is(mutMixedLimits) {
		return 1 + p.k%2
	}
	return leases.MaxLearners
}

// quarantine clears the place. Intact data of a listed member of the cluster is never thrown away.
func (w *world) quarantine(p *proc) {
	v := &w.vols[p.vol]
	if !v.data.there {
		return
	}
	if d := v.data; !d.dishonest && !d.corrupt && w.ghost.formed == d.group+1 && !w.ghost.excused {
		if find(w.groups[d.group].now(), d.member) >= 0 {
			w.violate("intact data of %s, which is listed as %x, is quarantined (%s)", names[p.k], d.member, p.start.rule)
		}
	}
	v.quarantineFormed = v.quarantineFormed || v.stamped && v.identityFile.Formed
	v.quarantined++
	v.data, v.identityFile, v.stamped = data{}, datadir.IdentityFile{}, false
	w.say("agent %s: quarantines its data", names[p.k])
	w.assess()
}

func (w *world) identityFile(p *proc) {
	v := &w.vols[p.vol]
	v.identityFile, v.stamped = p.start.identityFile, true
	v.identityFile.Version = 1
}

// found starts etcd as the only member of a new raft group.
func (w *world) found(i int) {
	p := &w.procs[i]
	identityFile := p.start.identityFile
	for gi := range w.groups {
		if w.groups[gi].cluster == uint64(identityFile.ClusterID) {
			w.violate("two bootstraps under the cluster ID %x: their members form one group with two histories", w.groups[gi].cluster)
		}
	}
	if w.ghost.formed != 0 && !w.vols[p.vol].data.there {
		w.say("agent %s: forms a second group next to %x", names[p.k], w.groups[w.ghost.formed-1].cluster)
	}
	w.groups = append(w.groups, group{
		cluster: uint64(identityFile.ClusterID),
		confs:   []conf{{0, []entry{{id: uint64(identityFile.MemberID), k: p.k}}}},
	})
	w.create(i, len(w.groups)-1, identityFile, 0)
	w.say("agent %s: etcd forms %x", names[p.k], uint64(identityFile.ClusterID))
}

// endpoint is the group behind the endpoint that answered, if it still does.
func (w *world) endpoint(p *proc, view membership.View) (int, bool) {
	_, gi, ok := w.list(p, []string{view.Endpoint}, view.ClusterID, 0)
	return gi, ok
}

func (w *world) addSelf(p *proc, lost bool) bool {
	s := &p.start
	if s.facts.Joining == start.JoiningNow {
		s.id = s.entry.ID
		return true
	}
	gi, ok := w.endpoint(p, s.view)
	if !ok {
		return false
	}
	s.asked, s.id, s.attempts = true, 0, 0
	id, ok := w.addLearner(gi, p.k)
	if !ok || lost {
		return false
	}
	s.id = id
	w.say("agent %s: adds itself as learner %x", names[p.k], id)
	return true
}

// agreed writes the identity file for the member as it is listed now.
func (w *world) agreed(p *proc) bool {
	s := &p.start
	s.attempts++
	view, _, ok := w.list(p, likely(s.sight.Record), s.view.ClusterID, 0)
	if !ok {
		return false
	}
	if _, listed := view.Member(s.id); !listed {
		return false
	}
	s.view = view
	cfg := p.config()
	s.identityFile = start.IdentityFileOf(&cfg, s.sight.Record, s.sight.Own, view.ClusterID, s.id)
	if w.is(mutMixedLimits) {
		s.identityFile.MaxLearners = w.limitOf(p)
	}
	w.identityFile(p)
	return true
}

// join starts etcd as a learner: it ends without a log when the list is not what it was given, or when no member answers.
func (w *world) join(i int) {
	p := &w.procs[i]
	s := &p.start
	view, gi, ok := w.list(p, likely(s.sight.Record), s.view.ClusterID, 0)
	if !ok || !view.Same(s.view) {
		w.say("etcd: %s ends without a log: the list is not what it was given", names[p.k])
		return
	}
	w.create(i, gi, s.identityFile, 0)
	w.say("agent %s: etcd joins %x as %x", names[p.k], view.ClusterID, s.id)
}

func (w *world) slot(p *proc) bool {
	s := &p.start
	record := s.sight.Record
	want := leases.Replacing{Member: names[p.k], PodUID: uids[p.pod], MemberID: leases.FormatID(s.entry.ID)}
	if record.Replacing != nil && *record.Replacing == want {
		return true
	}
	record, err := record.Replace(want, listOf(s.view))
	if err != nil {
		w.say("agent %s: %v", names[p.k], err)
		return false
	}
	w.say("agent %s: takes the slot to replace %x", names[p.k], s.entry.ID)
	return w.updateRecord(p, s.version, record)
}

func (w *world) removeSelf(p *proc, lost bool) {
	s := &p.start
	gi, ok := w.endpoint(p, s.view)
	if !ok || !w.remove(gi, s.entry.ID) {
		return
	}
	w.say("agent %s: removes its old ID %x", names[p.k], s.entry.ID)
	if !lost {
		s.asked, s.id, s.attempts = false, 0, 0
	}
}

func (w *world) resume(i int) {
	p := &w.procs[i]
	v := &w.vols[p.vol]
	if !v.data.there || v.data.corrupt {
		w.say("etcd: %s ends: there is no data to continue", names[p.k])
		return
	}
	if v.data.dishonest && p.start.sight.OwnErr != nil && !w.ghost.excused {
		w.say("(the Lease that could report that the volume went back in time cannot be read: nothing is promised from here)")
		w.ghost.excused = true
	}
	w.boot(i, v.identityFile)
	w.say("agent %s: etcd resumes as %x of %x at %d", names[p.k], v.data.member, v.data.cluster, v.data.index)
}

// assess notes whether a quorum of intact volumes is left of the cluster that was formed.
func (w *world) assess() {
	if w.ghost.formed == 0 || w.ghost.excused {
		return
	}
	gi := w.ghost.formed - 1
	members := w.groups[gi].now()
	intact := 0
	for _, e := range members {
		if !e.learner && w.intact(gi, e) {
			intact++
		}
	}
	if intact < membership.Quorum(voters(members)) {
		w.ghost.excused = true
		w.say("(fewer intact volumes are left than a quorum: nothing is promised of the data from here)")
	}
}

// intact says whether a volume in use holds the data of e as etcd wrote it.
func (w *world) intact(gi int, e entry) bool {
	holds := func(vol int) bool {
		d := w.vols[vol].data
		return d.there && d.group == gi && d.member == e.id && !d.dishonest && !d.corrupt
	}
	if c := w.members[e.k].claim; c.there && holds(c.vol) {
		return true
	}
	return slices.ContainsFunc(w.procs, func(p proc) bool { return p.alive && holds(p.vol) })
}

// kill ends the containers of a Pod.
func (w *world) kill(i int) {
	p := &w.procs[i]
	w.stop(p)
	p.alive, p.agent = false, false
	p.start, p.resolvePending, p.renew, p.duty = starting{}, finishing{}, renewing{}, leading{}
	for v := range w.vols {
		if w.vols[v].lock == i+1 {
			w.vols[v].lock = 0
		}
	}
}

func byID(a, b membership.Member) int { return cmp.Compare(a.ID, b.ID) }
