package model

import "slices"

// What befalls volumes: lost, copied, set back, swapped.

// idle is the volume of proc i if its etcd does not run.
func (w *world) idle(i int) *volume {
	p := &w.procs[i]
	for j := range w.procs {
		if q := &w.procs[j]; q.run && q.vol == p.vol {
			return nil
		}
	}
	// Files do not change under an agent that is about to act on what it saw of them.
	if s := p.start.step; !p.alive || s != readRecord {
		return nil
	}
	return &w.vols[p.vol]
}

func (w *world) wipe(i int) bool {
	v := w.idle(i)
	if v == nil || !v.data.there && !v.stamped {
		return false
	}
	*v = volume{lock: v.lock}
	p := &w.procs[i]
	p.start = starting{}
	w.say("fault: the volume of %s is emptied", names[p.k])
	w.assess()
	return true
}

func (w *world) copyVolume(i int) bool {
	p := &w.procs[i]
	v := w.vols[p.vol]
	if !v.data.there || !p.alive {
		return false
	}
	v.copied = nil
	w.vols[p.vol].copied = &v
	return true
}

// rollback sets a volume back to its copy. What its Lease cannot show, because it recorded nothing later yet, is not knowable.
func (w *world) rollback(i int) bool {
	v := w.idle(i)
	if v == nil || v.copied == nil {
		return false
	}
	lock, copied := v.lock, v.copied
	same := v.data == copied.data
	*v = *copied
	v.lock, v.copied = lock, copied
	p := &w.procs[i]
	p.start = starting{}
	w.say("fault: the volume of %s goes back in time to entry %d", names[p.k], v.data.index)
	if !same {
		v.data.dishonest = true
	}
	w.assess()
	w.unseen(p.k)
	return true
}

// restoreClaim binds the member's claim, made again, to a volume that was made from an older copy.
func (w *world) restoreClaim(k int) bool {
	m := &w.members[k]
	p := w.procOf(k)
	if !m.claim.there || m.claim.going || p != nil || m.pod.there || w.vols[m.claim.vol].copied == nil || w.vols[m.claim.vol].lock != 0 {
		return false
	}
	v := *w.vols[m.claim.vol].copied
	v.lock, v.data.dishonest = 0, true
	w.vols = append(w.vols, v)
	m.claim.uid, m.claim.vol = w.uid(), len(w.vols)-1
	w.say("fault: the volume of %s is replaced by an older copy, which ends at %d", names[k], v.data.index)
	w.assess()
	w.unseen(k)
	return true
}

// editMembers drops the last name from the record, as an operator with an editor may.
func (w *world) editMembers() bool {
	r := w.record.says
	if !w.record.there || len(r.Members) < 2 || w.ghost.formed == 0 {
		return false
	}
	w.say("fault: %s is dropped from the record by hand", r.Members[len(r.Members)-1])
	r.Members = slices.Clone(r.Members[:len(r.Members)-1])
	w.ghost.helpless = "a voter that an operator drops from the record is lost to the quorum if it is down"
	w.record.says, w.record.version = r, w.nextVersion()
	w.unlisted()
	return true
}

// unseen notes that a Lease cannot show, or cannot show any more, that a volume of its member went back in time.
func (w *world) unseen(k int) {
	says := w.members[k].lease.says
	for _, v := range w.vols {
		d := v.data
		if !d.there || !d.dishonest || !v.stamped || v.identityFile.Member != names[k] || d.corrupt {
			continue
		}
		gi := d.group
		if find(w.groups[gi].config(w.groups[gi].length), d.member) < 0 {
			continue
		}
		seen := w.members[k].lease.there && says.ID == d.member &&
			(uint64(d.index) < says.Floor.Committed || uint64(d.term) < says.Floor.Term)
		if w.members[k].lease.there && says.ID != d.member && says.ClusterID == d.cluster {
			seen = 0 < d.term && uint64(d.term) < max(says.Floor.Term, says.Raft.Term)
		}
		if c := w.members[k].claim; w.members[k].lease.there && c.there && v.identityFile.VolumeUID != uids[c.uid] {
			seen = true // another volume: the claim's UID reports, at whatever entry it ends
		}
		if !seen && !w.ghost.excused {
			w.ghost.excused = true
			w.say("(the Lease of %s cannot show it: nothing is promised from here)", names[k])
		}
	}
}

func (w *world) damage(i int) bool {
	v := w.idle(i)
	if v == nil || !v.data.there {
		return false
	}
	v.data.corrupt = true
	w.say("fault: the data of %s is damaged", names[w.procs[i].k])
	w.assess()
	return true
}

// swap mounts the volumes of two members into each other's Pods.
func (w *world) swap(i, j int) bool {
	if i == j || j >= len(w.procs) || w.procs[i].vol == w.procs[j].vol {
		return false
	}
	v, u := w.idle(i), w.idle(j)
	if v == nil || u == nil {
		return false
	}
	v.data, u.data, v.identityFile, u.identityFile, v.stamped, u.stamped = u.data, v.data, u.identityFile, v.identityFile, u.stamped, v.stamped
	w.say("fault: the volumes of %s and %s change places", names[w.procs[i].k], names[w.procs[j].k])
	return true
}
