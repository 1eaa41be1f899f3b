package model

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/leases"
)

// ails says what keeps the cluster from being as it should be, or nothing.
func (w *world) ails() string {
	r := &w.record.says
	if !w.record.there || r.Phase != leases.PhaseFormed || w.ghost.formed == 0 {
		return "the record does not say Formed"
	}
	gi := w.ghost.formed - 1
	members := w.groups[gi].now()
	if w.statusID != w.groups[gi].cluster {
		return "the status does not know the cluster"
	}
	if len(r.Members) != w.replicas || len(members) != len(r.Members) {
		return fmt.Sprintf("%d members are listed, the record wants %d, the spec %d", len(members), len(r.Members), w.replicas)
	}
	if !w.leads(gi) {
		return "there is no leader"
	}
	if r.Replacing != nil {
		return "the slot is taken by " + r.Replacing.Member
	}
	if words := w.leftovers(); words != "" {
		return words
	}
	for _, e := range members {
		p := w.procOf(e.k)
		if e.learner || e.name == "" || !r.Lists(names[e.k]) || p == nil || !p.run {
			return fmt.Sprintf("%s (%x) is no running voter", names[e.k], e.id)
		}
		if d := w.vols[p.vol].data; d.member != e.id || w.members[e.k].lease.says.ID != e.id {
			return fmt.Sprintf("%s is %x and its Lease says %x", names[e.k], d.member, w.members[e.k].lease.says.ID)
		}
	}
	return ""
}

// maxRounds in which a cluster must heal once the faults ended: each round is a turn of everybody.
const maxRounds = 120

// heal runs the world fairly until it is healthy, and counts the steps.
func (w *world) heal() (steps int) {
	w.finishDown()
	turn := func(a action, times int) {
		for range times {
			if w.ghost.bad != "" || w.arrived() || !w.do(a) {
				return
			}
			steps++
		}
	}
	for range maxRounds {
		for di := range w.druids {
			d := uint8(di)
			for _, k := range "LPCSq" {
				turn(action{kind: byte(k), a: d}, 1)
			}
			turn(action{kind: 'D', a: d}, 40)
			turn(action{kind: 'x', a: d}, 1)
		}
		for k := range uint8(w.drawn) {
			turn(action{kind: 'c', a: k}, 1)
			turn(action{kind: 'k', a: k}, 1)
			turn(action{kind: 'n', a: k}, 1)
		}
		for i := range uint8(len(w.procs)) {
			for _, t := range []struct {
				kind  byte
				times int
			}{{'K', 1}, {'y', 1}, {'s', 12}, {'e', 1}, {'p', 2}, {'t', 3}, {'r', 3}, {'d', 12}, {'g', 1}} {
				turn(action{kind: t.kind, a: i}, t.times)
			}
		}
		if w.ghost.bad != "" || w.arrived() || w.ails() == "" {
			return steps
		}
	}
	for i := range w.vols {
		// A volume in the wrong place whose own place is gone: foreign data needs an operator.
		if k := w.owner(i); k >= 0 && w.vols[i].stamped && w.vols[i].identityFile.Member != names[k] {
			w.ghost.helpless = "a volume holds another member's data"
		}
	}
	if !w.ghost.excused && w.ghost.helpless == "" {
		w.violate("not healthy %d rounds after the faults ended: %s", maxRounds, w.ails())
	}
	return steps
}

var totalWeight, faultWeight = func() (all, faults int) {
	for _, k := range kinds {
		all += k.weight
		if k.fault {
			faults += k.weight
		}
	}
	return all, faults
}()

var faultLetters = func() (letters string) {
	for _, k := range kinds {
		if k.fault {
			letters += string(k.letter)
		}
	}
	return letters
}()

// draw picks an action by weight.
func (w *world) draw(r *rand.Rand, faults bool) action {
	at := r.IntN(totalWeight)
	if !faults {
		at = r.IntN(totalWeight - faultWeight)
	}
	for i := range kinds {
		k := &kinds[i]
		if at -= k.weight; at < 0 {
			n := w.count(k.on)
			if n == 0 {
				return action{}
			}
			a := action{kind: k.letter, a: uint8(r.IntN(n))}
			if k.letter == 'w' || k.letter == 'W' {
				a.b = uint8(r.IntN(n))
			}
			return a
		}
	}
	return action{}
}

// setup is how a walk begins, and which faults it meets.
type setup struct {
	replicas int
	steps    int                 // before the faults end
	formed   bool                // begin with a healthy cluster
	leaving  leases.RemovalState // of which one member is on its way out, this far: picked, or as its mark says
	fine     bool                // every read is a step
	faults   int                 // at most so many of them
	only     string              // the letters of the faults, all if empty
}

// begin is the world in which a walk of this setup begins.
func begin(s setup, mutant *mutation) *world {
	w := newWorld(s.replicas)
	w.mutant, w.fine = mutant, s.fine
	if s.formed {
		w.mutant = nil
		w.heal()
		if s.leaving != "" {
			w.replicas--
			w.until = s.leaving
			w.heal()
		}
		w.calm, w.mutant, w.until = false, mutant, ""
	}
	return w
}

// walk takes random steps from a seed, then lets the cluster heal. It returns the trace and the number of steps.
func walk(seed uint64, s setup, mutant *mutation) (w *world, trace []action, steps int) {
	r := rand.New(rand.NewPCG(seed, 1))
	w = begin(s, mutant)
	// Faults come in bursts: a walk has some kinds of them only, so that they meet each other.
	left, only := s.faults, s.only
	if only == "" && r.IntN(2) == 0 {
		for range 3 {
			only += string(faultLetters[r.IntN(len(faultLetters))])
		}
	}
	for tries := 0; steps < s.steps && tries < 40*s.steps && w.ghost.bad == ""; tries++ {
		a := w.draw(r, left > 0)
		if only != "" && left > 0 && r.IntN(8) == 0 {
			letter := only[r.IntN(len(only))]
			if n := w.count(kindOf[letter].on); n > 0 {
				a = action{kind: letter, a: uint8(r.IntN(n)), b: uint8(r.IntN(n))}
			}
		} else if k := kindOf[a.kind]; only != "" && k != nil && k.fault {
			continue
		}
		if a.kind == 0 || !w.do(a) {
			continue
		}
		steps++
		if kindOf[a.kind].fault {
			left--
		}
		trace = append(trace, a)
	}
	if w.ghost.bad == "" {
		steps += w.heal()
	}
	return w, trace, steps
}

// replay takes the actions of a trace that can be taken, lets the cluster heal, and reports the story.
func replay(s setup, mutant *mutation, trace []action, log bool) *world {
	w := begin(s, mutant)
	if log {
		w.lines = &[]string{}
	}
	for _, a := range trace {
		if w.ghost.bad != "" {
			return w
		}
		w.do(a)
	}
	if w.ghost.bad == "" {
		w.heal()
	}
	return w
}

// class of a violation: what it says without numbers, IDs and names, so that a shorter trace is one of the same kind.
func class(bad string) string { return particular.ReplaceAllString(bad, "_") }

var particular = regexp.MustCompile(`c-[a-l]|\b[0-9a-f]{5,}\b|\b[0-9]+\b`)

// shrink leaves out whatever the violation does not need.
func shrink(s setup, mutant *mutation, trace []action) []action {
	want := class(replay(s, mutant, trace, false).ghost.bad)
	for size := max(len(trace)/2, 1); size > 0; size /= 2 {
		for at := 0; at+size <= len(trace); {
			shorter := slices.Concat(trace[:at], trace[at+size:])
			if class(replay(s, mutant, shorter, false).ghost.bad) == want {
				trace = shorter
			} else {
				at += size
			}
		}
	}
	return trace
}

// story of a violation, for an operator, with the trace that replays it.
func story(s setup, mutant *mutation, trace []action) string {
	trace = shrink(s, mutant, trace)
	w := replay(s, mutant, trace, true)
	lines, reported := []string{}, map[string]int{}
	for _, line := range *w.lines {
		if reported[line]++; reported[line] <= 3 {
			lines = append(lines, line)
		}
	}
	if most := 150; len(lines) > most {
		lines = append(slices.Clone(lines[:most]), "...")
	}
	return fmt.Sprintf("%s\n\nhow it came:\n  %s\n\nreplay: %+v %s", w.ghost.bad, strings.Join(lines, "\n  "), s, format(trace))
}
