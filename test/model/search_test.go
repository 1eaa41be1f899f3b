package model

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/leases"
)

var searchDepth = flag.Int("model.depth", 0, "depth of the exhaustive search, 0 for each start's own")

// starts of the exhaustive search: a cluster of three in a state worth a close look, all of whose futures are taken.
var starts = map[string]struct {
	replicas int
	formed   bool
	leaving  leases.RemovalState
	before   string // actions that lead there
	letters  string // the actions that are tried
	depth    int
}{
	"a cluster that forms": {
		replicas: 3, before: strings.Repeat("D00 ", 14) + "L00 P00 C00 k00 k10 k20 " + strings.Repeat("D00 ", 12) + "P00 L00 C00 " + strings.Repeat("D00 ", 12),
		letters: "strepAElVFkKZ", depth: 8,
	},
	"a member without its volume": {
		replicas: 3, formed: true, before: "E20 V20", letters: "stdrepyAElmwJ", depth: 6,
	},
	"a member whose volume went back in time": {
		replicas: 3, formed: true, before: "B20 w02 w00 w01 p20 r00 r10 r20 r20 r20 r20 E20 R20", letters: "strepwAEO", depth: 6,
	},
	"two Pods of one name": {
		replicas: 3, formed: true, before: "F20 P00 D00 D00 D00 D00 k20 P00 L00 D00 D00", letters: "strepEAZKwd", depth: 7,
	},
	"all Leases deleted": {
		replicas: 3, formed: true, before: "j00", letters: "strdLPDSEV", depth: 10,
	},
	"a member asked to go": {
		replicas: 3, leaving: asked, letters: "dgeLDS+EAa", depth: 9,
	},
	"a learner added by hand": {
		replicas: 3, formed: true, before: "Y00", letters: "dgrepNEMs", depth: 6,
	},
}

func TestEveryInterleavingToADepth(t *testing.T) {
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{replicas: start.replicas, formed: start.formed || start.leaving != "", leaving: start.leaving}
			before, err := parse(start.before)
			if err != nil {
				t.Fatal(err)
			}
			w := begin(s, nil)
			for _, a := range before {
				w.do(a)
			}
			depth := start.depth
			if *searchDepth > 0 {
				depth = *searchDepth
			}
			began := time.Now()
			f := &search{seen: map[uint64]int8{}, letters: start.letters, seed: maphash.MakeSeed()}
			if found := f.from(w, depth); found != nil {
				t.Fatal(story(s, nil, append(before, found...)))
			}
			t.Logf("depth %d: %d states, %d transitions, %s", depth, len(f.seen), f.taken, time.Since(began).Round(time.Millisecond))
		})
	}
}

// search takes every action in every state, once per state and remaining depth.
type search struct {
	letters string
	seen    map[uint64]int8
	seed    maphash.Seed
	taken   int
	free    []*world
	buffer  []byte
}

// from returns the actions that lead to a violation, or nil.
func (f *search) from(w *world, depth int) []action {
	f.buffer = w.encode(f.buffer[:0])
	key := maphash.Bytes(f.seed, f.buffer)
	if done, ok := f.seen[key]; ok && int(done) >= depth {
		return nil
	}
	f.seen[key] = int8(depth)
	if depth == 0 {
		return nil
	}
	next := f.world()
	defer func() { f.free = append(f.free, next) }()
	for _, letter := range f.letters {
		k := kindOf[letter]
		for n := range w.count(k.on) {
			a := action{kind: k.letter, a: uint8(n)}
			if w.copyInto(next); !next.do(a) {
				continue
			}
			f.taken++
			if next.ghost.bad != "" {
				return []action{a}
			}
			if found := f.from(next, depth-1); found != nil {
				return append([]action{a}, found...)
			}
		}
	}
	return nil
}

func (f *search) world() *world {
	if n := len(f.free); n > 0 {
		w := f.free[n-1]
		f.free = f.free[:n-1]
		return w
	}
	return &world{}
}

// encode writes all that decides about the future.
func (w *world) encode(b []byte) []byte {
	b = fmt.Appendf(b, "%t %t ", w.down, w.ghost.excused)
	b = w.kube.encode(b)
	for i := range w.vols {
		v := &w.vols[i]
		b = fmt.Appendf(b, "v%v %s %t %d %t %d", v.data, v.identityFile.Lineage, v.identityFile.Formed, v.quarantined, v.quarantineFormed, v.lock)
		b = binary.BigEndian.AppendUint64(b, uint64(v.identityFile.MemberID))
	}
	for i := range w.groups {
		g := &w.groups[i]
		b = fmt.Appendf(b, "g%d %d %d %v", g.term, g.length, g.leader, g.confs)
	}
	for i := range w.procs {
		b = w.procs[i].encode(b)
	}
	for i := range w.druids {
		d := &w.druids[i]
		b = fmt.Appendf(b, "d%t %d %t %d %t %v", d.up, len(d.steps), d.checked, d.lease, d.stuck, d.liveness)
		for _, s := range d.steps {
			b = fmt.Appendf(b, "%s%s%s", s.Kind, s.Member, s.PodUID)
		}
		b = d.cache.encode(b)
	}
	return b
}

func (k *kube) encode(b []byte) []byte {
	b = fmt.Appendf(b, "k%t %d %d %d %t %d %x %v", k.record.there, k.record.version, k.drawn, k.replicas, k.retain, k.replace, k.statusID, k.known)
	for i := range k.drawn {
		m := &k.members[i]
		b = fmt.Appendf(b, "m%t %d %d %d %v %v", m.lease.there, m.lease.uid, m.lease.version, m.lease.renewed, m.claim, m.pod)
	}
	return b
}

func (p *proc) encode(b []byte) []byte {
	s := &p.start
	b = fmt.Appendf(b, "p%d %d %d %t %t %t %t %t %t %t %d", p.k, p.vol, p.pod, p.alive, p.agent, p.cut, p.cutAPI, p.zombie, p.run, p.young, p.limit)
	if p.run || s.step == readRecord {
		b = fmt.Appendf(b, "s%d %t %x %d", s.step, s.asked, s.id, s.attempts)
	} else {
		b = fmt.Appendf(b, "s%d %v %d %t %x %d %d %x", s.step, s.facts, s.version, s.asked, s.id, s.attempts, s.view.RaftIndex, s.entry.ID)
	}
	b = p.duty.drain.encode(b)
	return fmt.Appendf(b, "t%d %d r%v d%d %d %x %d %t %v", p.resolvePending.step, p.resolvePending.version, p.renew, p.duty.step, p.duty.version,
		p.duty.removalCandidate, p.duty.view.RaftIndex, p.duty.tired, p.duty.since)
}
