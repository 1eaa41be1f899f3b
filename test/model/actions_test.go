package model

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/leases"
)

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
