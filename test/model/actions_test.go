package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/leases"
)

// stray is the index of the name that no record ever lists: who adds a member by hand gives it this peer URL.
const stray = maxMembers - 1

// action is one step of the world: who it concerns and how. Its text, three characters, is a word of a trace.
type action struct {
	kind byte
	a, b uint8
}

func (a action) String() string { return fmt.Sprintf("%c%x%x", a.kind, a.a, a.b) }

// format writes a trace as parse reads it.
func format(trace []action) string {
	words := make([]string, len(trace))
	for i, a := range trace {
		words[i] = a.String()
	}
	return strings.Join(words, " ")
}

func parse(trace string) ([]action, error) {
	var actions []action
	for word := range strings.FieldsSeq(trace) {
		var a action
		if _, err := fmt.Sscanf(word, "%c%1x%1x", &a.kind, &a.a, &a.b); err != nil {
			return nil, fmt.Errorf("action %q: %w", word, err)
		}
		actions = append(actions, a)
	}
	return actions, nil
}

// kind of an action.
type kind struct {
	letter byte
	// on says what its first argument counts: 'p' processes, 'm' members, 'd' druids, '1' nothing.
	on     byte
	weight int
	fault  bool
	do     func(w *world, a action) bool
}

// kinds are all actions. One that cannot be taken says so and changes nothing.
var kinds = []kind{
	{'s', 'p', 30, false, func(w *world, a action) bool { return w.startStep(int(a.a), false) }},
	{'t', 'p', 16, false, func(w *world, a action) bool { return w.finishStep(int(a.a), false) }},
	{'r', 'p', 8, false, func(w *world, a action) bool { return w.renewStep(int(a.a)) }},
	{'d', 'p', 20, false, func(w *world, a action) bool { return w.dutyStep(int(a.a), false) }},
	{'g', 'p', 4, false, func(w *world, a action) bool { return w.graceStep(int(a.a)) }},
	{'e', 'p', 8, false, func(w *world, a action) bool { return w.elect(int(a.a)) }},
	{'p', 'p', 10, false, func(w *world, a action) bool { return w.replicate(int(a.a)) }},
	{'y', 'p', 6, false, func(w *world, a action) bool { return w.age(&w.procs[a.a]) }},
	{'w', 'p', 5, false, func(w *world, a action) bool { return w.write(int(a.a), int(a.b)) }},
	{'D', 'd', 20, false, func(w *world, a action) bool { return w.druidStep(int(a.a)) }},
	{'L', 'd', 8, false, func(w *world, a action) bool { return w.sync(int(a.a), 'l') }},
	{'P', 'd', 6, false, func(w *world, a action) bool { return w.sync(int(a.a), 'p') }},
	{'C', 'd', 6, false, func(w *world, a action) bool { return w.sync(int(a.a), 'c') }},
	{'S', 'd', 4, false, func(w *world, a action) bool { return w.sync(int(a.a), 's') }},
	{'x', 'd', 2, false, func(w *world, a action) bool { return w.expire(int(a.a)) }},
	{'q', 'd', 1, false, func(w *world, a action) bool { return w.maxWait(int(a.a)) }},
	{'k', 'm', 8, false, func(w *world, a action) bool { return w.runPod(int(a.a)) }},
	{'K', 'p', 8, false, func(w *world, a action) bool { return w.endPod(int(a.a)) }},
	{'c', 'm', 6, false, func(w *world, a action) bool { return w.endClaim(int(a.a)) }},
	{'n', 'm', 3, false, func(w *world, a action) bool { return w.route(int(a.a)) }},

	{'A', 'p', 3, true, func(w *world, a action) bool { return w.crashAgent(&w.procs[a.a]) }},
	{'E', 'p', 3, true, func(w *world, a action) bool { return w.crashEtcd(&w.procs[a.a]) }},
	{'l', 'p', 2, true, func(w *world, a action) bool { return w.startStep(int(a.a), true) }},
	{'m', 'p', 2, true, func(w *world, a action) bool { return w.finishStep(int(a.a), true) }},
	{'V', 'p', 2, true, func(w *world, a action) bool { return w.wipe(int(a.a)) }},
	{'B', 'p', 2, true, func(w *world, a action) bool { return w.copyVolume(int(a.a)) }},
	{'R', 'p', 2, true, func(w *world, a action) bool { return w.rollback(int(a.a)) }},
	{'i', 'm', 1, true, func(w *world, a action) bool { return w.restoreClaim(int(a.a)) }},
	{'v', '1', 1, true, func(w *world, _ action) bool { return w.editMembers() }},
	{'Q', 'p', 1, true, func(w *world, a action) bool { return w.damage(int(a.a)) }},
	{'W', 'p', 1, true, func(w *world, a action) bool { return w.swap(int(a.a), int(a.b)) }},
	{'H', 'm', 1, true, func(w *world, a action) bool { return w.deleteClaim(int(a.a)) }},
	{'U', 'm', 1, true, func(w *world, a action) bool { return w.deletePod(int(a.a)) }},
	{'F', 'm', 1, true, func(w *world, a action) bool { return w.forceDelete(int(a.a)) }},
	{'Z', 'p', 1, true, func(w *world, a action) bool { return w.reconnect(&w.procs[a.a]) }},
	{'N', 'p', 1, true, func(w *world, a action) bool { return w.partition(&w.procs[a.a]) }},
	{'O', '1', 1, true, func(w *world, _ action) bool { w.down = !w.down; w.say("Kubernetes API down: %t", w.down); return true }},
	{'J', 'm', 1, true, func(w *world, a action) bool { return w.deleteLease(int(a.a)) }},
	{'j', '1', 1, true, func(w *world, _ action) bool { return w.deleteLeases() }},
	{'M', '1', 1, true, func(w *world, _ action) bool { return w.deleteRecord() }},
	{'b', '1', 1, true, func(w *world, _ action) bool { return w.copyRecord() }},
	{'G', '1', 1, true, func(w *world, _ action) bool { return w.rollbackRecord() }},
	{'Y', '1', 1, true, func(w *world, _ action) bool { return w.addStray() }},
	{'T', 'd', 1, true, func(w *world, a action) bool { return w.restartDruid(int(a.a)) }},
	{'a', 'p', 2, true, func(w *world, a action) bool { return w.dutyStep(int(a.a), true) }},
	{'+', '1', 1, true, func(w *world, _ action) bool { return w.scale(2) }},
	{'-', '1', 1, true, func(w *world, _ action) bool { return w.scale(-2) }},
	{'I', '1', 1, true, func(w *world, _ action) bool { return w.scale(-1) }},
	{'u', '1', 1, true, func(w *world, _ action) bool {
		w.retain = !w.retain
		w.say("user: claims stay: %t", w.retain)
		return true
	}},
	{'X', 'm', 1, true, func(w *world, a action) bool { return w.replaceMember(int(a.a)) }},
}

var kindOf = func() (table [128]*kind) {
	for i := range kinds {
		table[kinds[i].letter] = &kinds[i]
	}
	return table
}()

// do takes the action, if it can be taken.
func (w *world) do(a action) bool {
	k := kindOf[a.kind]
	if k == nil || w.calm && k.fault || int(a.a) >= w.count(k.on) {
		return false
	}
	return k.do(w, a)
}

func (w *world) count(on byte) int {
	switch on {
	case 'p':
		return len(w.procs)
	case 'm':
		return w.drawn
	case 'd':
		return len(w.druids)
	default:
		return 1
	}
}

func (w *world) age(p *proc) bool {
	was := p.young
	p.young = false
	return was && p.run
}

func (w *world) maxWait(di int) bool {
	d := &w.druids[di]
	was := d.stuck
	seed, other := false, false
	for k := range w.drawn {
		live := d.cache.members[k].pod.live
		if names[k] == d.cache.record.says.Seed {
			seed = live
		} else {
			other = other || live
		}
	}
	d.stuck = d.up && d.cache.record.there && d.cache.record.says.Phase == leases.PhaseForming && !seed && other
	return d.stuck != was
}

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
