package model

import (
	"slices"

	"github.com/etcd-druid/druid/leases"
)

// stray is the index of the name that no record ever lists: who adds a member by hand gives it this peer URL.
const stray = maxMembers - 1

// runPod is the kubelet that starts a Pod's containers. Those of an earlier Pod of the name may run elsewhere.
func (w *world) runPod(k int) bool {
	m := &w.members[k]
	if !m.pod.there || m.pod.going || !m.claim.there || len(w.procs) > 15 {
		return false
	}
	for i := range w.procs {
		p := &w.procs[i]
		if p.alive && p.k == k && (p.pod == m.pod.uid || !p.zombie) {
			return false
		}
	}
	p := proc{k: k, vol: m.claim.vol, pod: m.pod.uid, alive: true, agent: true}
	w.say("kubelet: starts Pod %d of %s", p.pod, names[k])
	for i := range w.procs {
		if !w.procs[i].alive {
			w.procs[i] = p
			return true
		}
	}
	w.procs = append(w.procs, p)
	return true
}

// endPod is the kubelet that ends the containers of a Pod that goes or is gone, and then lets the Pod go.
func (w *world) endPod(i int) bool {
	p := &w.procs[i]
	if !p.alive || p.zombie {
		return false
	}
	pod := &w.members[p.k].pod
	mine := pod.there && pod.uid == p.pod
	if mine && !pod.going {
		return false
	}
	w.say("kubelet: ends Pod %d of %s", p.pod, names[p.k])
	k := p.k
	w.kill(i)
	if mine {
		pod.there, pod.going, pod.serving, pod.voter, pod.routed = false, false, false, false, false
	}
	w.endClaim(k)
	w.assess()
	return true
}

// endClaim lets a deleted claim go once no Pod uses it; a Pod that never ran goes at once.
func (w *world) endClaim(k int) bool {
	m := &w.members[k]
	done := false
	if m.pod.there && m.pod.going && w.procOf(k) == nil {
		m.pod.there, m.pod.going, m.pod.serving, m.pod.voter, m.pod.routed = false, false, false, false, false
		done = true
	}
	if m.claim.there && m.claim.going && !m.pod.there {
		m.claim.there, m.claim.going = false, false
		w.say("the volume of %s is gone", names[k])
		w.assess()
		done = true
	}
	return done
}

func (w *world) crashAgent(p *proc) bool {
	if !p.alive {
		return false
	}
	p.start, p.resolvePending, p.renew, p.duty = starting{}, finishing{}, renewing{}, leading{}
	w.say("fault: the agent of %s (Pod %d) crashes", names[p.k], p.pod)
	return true
}

func (w *world) crashEtcd(p *proc) bool {
	if !p.run {
		return false
	}
	w.stop(p)
	w.say("fault: the etcd of %s (Pod %d) crashes", names[p.k], p.pod)
	return true
}

func (w *world) deleteClaim(k int) bool {
	m := &w.members[k]
	if !m.claim.there || m.claim.going {
		return false
	}
	m.claim.going = true
	w.say("fault: the claim of %s is deleted", names[k])
	w.endClaim(k)
	return true
}

func (w *world) deletePod(k int) bool {
	m := &w.members[k]
	if !m.pod.there || m.pod.going {
		return false
	}
	m.pod.going = true
	w.say("fault: Pod %d of %s is deleted", m.pod.uid, names[k])
	return true
}

// forceDelete removes the Pod object of a member whose node is cut off from the API: its containers run on.
func (w *world) forceDelete(k int) bool {
	m := &w.members[k]
	p := w.procOf(k)
	zombies := 0
	for i := range w.procs {
		if w.procs[i].alive && w.procs[i].zombie {
			zombies++
		}
	}
	if !m.pod.there || p == nil || zombies > 3 {
		return false
	}
	m.pod.there, m.pod.going, m.pod.serving, m.pod.voter, m.pod.routed = false, false, false, false, false
	p.zombie, p.cutAPI = true, true
	w.say("fault: Pod %d of %s is force-deleted while its node is cut off", p.pod, names[k])
	return true
}

// reconnect brings a zombie's node back: first its agent reaches the API, then its kubelet ends it.
func (w *world) reconnect(p *proc) bool {
	if !p.zombie || !p.alive {
		return false
	}
	if p.cutAPI {
		p.cutAPI = false
		return true
	}
	p.zombie = false
	return true
}

func (w *world) partition(p *proc) bool {
	if !p.alive {
		return false
	}
	p.cut = !p.cut
	p.young = true
	w.say("fault: %s cut off from its peers: %t", names[p.k], p.cut)
	return true
}

func (w *world) deleteLease(k int) bool {
	l := &w.members[k].lease
	if !l.there {
		return false
	}
	l.there, l.says = false, leases.Member{}
	w.say("fault: the Lease of %s is deleted", names[k])
	w.ghost.left[k] = w.ghost.left[k] || !w.record.says.Lists(names[k])
	w.unseen(k)
	return true
}

func (w *world) deleteRecord() bool {
	if !w.record.there {
		return false
	}
	w.record = recordObj{version: w.nextVersion()}
	w.say("fault: the record is deleted")
	if w.ghost.formed == 0 {
		w.ghost.helpless = "a record that was deleted before the cluster formed comes back as Formed, and needs an operator"
	}
	return true
}

func (w *world) deleteLeases() bool {
	deleted := w.deleteRecord()
	for k := range w.drawn {
		deleted = w.deleteLease(k) || deleted
	}
	return deleted
}

func (w *world) copyRecord() bool {
	if !w.record.there || w.oldRec.there {
		return false
	}
	w.oldRec = w.record
	return true
}

// rollbackRecord writes an older state of the record over the present one, as who restores a backup of Kubernetes does.
func (w *world) rollbackRecord() bool {
	if !w.oldRec.there || !w.record.there {
		return false
	}
	w.record.says, w.record.version = w.oldRec.says, w.nextVersion()
	w.unlisted()
	w.say("fault: the record is set back to %s, seed %s, members %v", w.record.says.Phase, w.record.says.Seed, w.record.says.Members)
	return true
}

// addStray adds a learner by hand that the record does not list.
func (w *world) addStray() bool {
	for gi := range w.groups {
		if w.ghost.formed == gi+1 && w.leads(gi) && len(w.groups[gi].now()) < 5 {
			if id, ok := w.addLearner(gi, stray); ok {
				w.say("fault: learner %x is added by hand", id)
				return true
			}
		}
	}
	return false
}

func (w *world) restartDruid(di int) bool {
	d := &w.druids[di]
	if d.up && di == 0 && !w.druids[1].up {
		w.druids[1].up = true // its second replica takes over while it may still act
	}
	*d = druid{up: !d.up || di == 0, cache: kube{}}
	d.cache = w.kube
	w.say("fault: druid %d restarts", di)
	return true
}

// scale asks for more members or for fewer: up to 5, and for as many as before, which takes a request back.
func (w *world) scale(by int) bool {
	if n := w.replicas + by; n < 1 || n > 5 {
		return false
	}
	w.replicas += by
	w.say("user: replicas %d", w.replicas)
	return true
}

// replaceMember names a member that a new one is to replace, or withdraws that request.
func (w *world) replaceMember(k int) bool {
	if w.replace == k+1 {
		w.replace = 0
		w.say("user: %s stays", names[k])
		return true
	}
	w.replace = k + 1
	w.say("user: a new member replaces %s", names[k])
	return true
}

// finishDown ends all faults that last.
func (w *world) finishDown() {
	w.say("the faults end")
	w.calm, w.down = true, false
	for i := range w.procs {
		p := &w.procs[i]
		p.cut, p.cutAPI, p.zombie = false, false, false
	}
	w.druids[0].up = true
	for i := range w.vols {
		for j := range w.vols {
			if w.misplaced(i, j) {
				v, u := &w.vols[i], &w.vols[j]
				v.data, u.data, v.identityFile, u.identityFile, v.stamped, u.stamped = u.data, v.data, u.identityFile, v.identityFile, u.stamped, v.stamped
			}
		}
	}
}

// owner is the member whose claim is bound to a volume, or -1.
func (w *world) owner(vol int) int {
	return slices.IndexFunc(w.members[:], func(m memberObj) bool { return m.claim.there && m.claim.vol == vol })
}

// misplaced says whether the data of volume i belongs to the member of volume j.
func (w *world) misplaced(i, j int) bool {
	oi, oj := w.owner(i), w.owner(j)
	return oi >= 0 && oj >= 0 && oi != oj && w.vols[i].stamped && w.vols[i].identityFile.Member == names[oj] &&
		w.vols[i].identityFile.VolumeUID == uids[w.members[oj].claim.uid]
}
