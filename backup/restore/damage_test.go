package restore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// broken is a store in which some objects have other content or cannot be read.
type broken struct {
	store.Store
	content map[string][]byte
	err     map[string]error
}

func (b broken) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := b.err[key]; err != nil {
		return io.NopCloser(iotest.ErrReader(err)), nil
	}
	content, ok := b.content[key]
	if !ok {
		return b.Store.Get(ctx, key, offset, length)
	}
	content = content[min(int(offset), len(content)):]
	if length >= 0 {
		content = content[:min(int(length), len(content))]
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

func (s *source) content(key string) []byte {
	s.tb.Helper()
	r, err := s.store.Get(s.tb.Context(), key, 0, -1)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		s.tb.Fatal(err)
	}
	return content
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 0x10
	return b
}

func TestDamageIsNamedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 7)
	s.stable(60)
	older := s.full()
	s.stable(60)
	first, f := s.revision(), s.full()
	var borders []int64
	for range 3 {
		s.stable(40)
		borders = append(borders, s.revision())
	}
	full := s.named(f.Key)
	deltas := []catalog.Delta{s.delta(first+1, borders[0]), s.delta(borders[0]+1, borders[1]), s.delta(borders[1]+1, borders[2])}
	p := catalog.Plan{Full: full, Deltas: deltas, Reach: borders[2]}
	// These are the same revisions in another history.
	forked := s.between(borders[0]+1, borders[1])
	forked[len(forked)-1].Value = []byte("\x0a\x01x\x2a\x01y")
	one := deltas[1]
	overlapping := s.delta(borders[0]-1, borders[1])
	foreign, foreignBytes := overlapping, s.finished(altered(s.between(overlapping.From, overlapping.To), borders[0]), delta.Digest{})
	foreign.Size = int64(len(foreignBytes)) // as a listing has it: what is longer is cut off
	lost := errors.New("connection reset")
	damagedFull, damagedDelta := func(err error) bool {
		_, ok := errors.AsType[*snapshot.DamagedError](err)
		return ok
	}, func(err error) bool {
		_, ok := errors.AsType[*delta.DamagedError](err)
		return ok
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	fullBytes, deltaBytes := s.content(full.Key), s.content(one.Key)
	for name, c := range map[string]struct {
		plan    catalog.Plan
		content map[string][]byte
		err     map[string]error
		want    func(error) bool
		names   []string
	}{
		"a flipped bit in the full": {plan: p, content: map[string][]byte{full.Key: flip(fullBytes, len(fullBytes)/2)}, want: damagedFull,
			names: []string{full.Key}},
		"a flipped bit in its trailer": {plan: p, content: map[string][]byte{full.Key: flip(fullBytes, len(fullBytes)-50)}, want: damagedFull,
			names: []string{full.Key}},
		"half a full": {plan: p, content: map[string][]byte{full.Key: fullBytes[:len(fullBytes)/2]}, want: damagedFull,
			names: []string{full.Key}},
		"a full without its beginning":  {plan: p, content: map[string][]byte{full.Key: fullBytes[1:]}, want: damagedFull, names: []string{full.Key}},
		"an empty full":                 {plan: p, content: map[string][]byte{full.Key: nil}, want: damagedFull, names: []string{full.Key}},
		"another full under its name":   {plan: p, content: map[string][]byte{full.Key: s.content(older.Key)}, want: is(ErrSwapped), names: []string{full.Key}},
		"a delta under the full's name": {plan: p, content: map[string][]byte{full.Key: deltaBytes}, want: damagedFull, names: []string{full.Key}},
		"a full that is not there":      {plan: catalog.Plan{Full: catalog.Full{Key: "gone", Size: 10}}, want: is(store.ErrAbsent), names: []string{"gone"}},
		"a full that cannot be read":    {plan: p, err: map[string]error{full.Key: lost}, want: is(lost), names: []string{full.Key}},
		"a full of another lineage": {plan: catalog.Plan{Full: ofLineage(full, "00000002-00")}, want: is(ErrSwapped),
			names: []string{full.Key, "00000002-00"}},
		"a flipped bit in a delta": {plan: p, content: map[string][]byte{one.Key: flip(deltaBytes, len(deltaBytes)/2)}, want: damagedDelta,
			names: []string{one.Key}},
		"half a delta": {plan: p, content: map[string][]byte{one.Key: deltaBytes[:len(deltaBytes)/2]}, want: damagedDelta,
			names: []string{one.Key}},
		"an empty delta":                {plan: p, content: map[string][]byte{one.Key: nil}, want: damagedDelta, names: []string{one.Key}},
		"another delta under its name":  {plan: p, content: map[string][]byte{one.Key: s.content(deltas[2].Key)}, want: damagedDelta, names: []string{one.Key}},
		"a full under the delta's name": {plan: p, content: map[string][]byte{one.Key: fullBytes}, want: damagedDelta, names: []string{one.Key}},
		"a delta that is not there": {plan: with(p, catalog.Delta{Lineage: lineage, Key: "gone", From: borders[0] + 1, To: borders[1]}),
			want: is(store.ErrAbsent), names: []string{"gone"}},
		"a delta that cannot be read": {plan: p, err: map[string]error{one.Key: lost}, want: is(lost), names: []string{one.Key}},
		"a delta of another lineage": {plan: with(p, catalog.Delta{Lineage: "00000002-00", Key: one.Key, From: one.From, To: one.To, Size: one.Size}),
			want: damagedDelta, names: []string{one.Key, "00000002-00"}},
		"a delta of another cluster": {plan: p, content: map[string][]byte{one.Key: s.ofCluster(7, one)}, want: is(ErrSwapped), names: []string{one.Key}},
		"a hole": {plan: catalog.Plan{Full: full, Deltas: []catalog.Delta{deltas[0], deltas[2]}},
			want: isGap(borders[0]+1, borders[1]), names: []string{deltas[0].Key, deltas[2].Key}},
		"a hole after the full": {plan: catalog.Plan{Full: full, Deltas: deltas[1:]}, want: isGap(first+1, borders[0]),
			names: []string{full.Key, deltas[1].Key}},
		"deltas that end early": {plan: catalog.Plan{Full: full, Deltas: deltas[:1], Revision: borders[1], Reach: borders[1]},
			want: is(ErrShort), names: []string{deltas[0].Key}},
		"another history": {plan: p, content: map[string][]byte{one.Key: s.finished(forked, delta.Digest{})}, want: is(ErrFork),
			names: []string{one.Key, deltas[2].Key}},
		"another history before the delta": {plan: p, content: map[string][]byte{one.Key: s.finished(s.between(one.From, one.To), delta.Digest{1})},
			want: is(ErrFork), names: []string{deltas[0].Key, one.Key}},
		"another history in the overlap": {plan: with(p, foreign), content: map[string][]byte{foreign.Key: foreignBytes},
			want: is(ErrFork), names: []string{deltas[0].Key, overlapping.Key}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTarget(t)
			cfg := g.config(s, c.plan, newest)
			if content, other := c.content[c.plan.Full.Key]; other {
				cfg.Plan.Full.Size = int64(len(content)) // as a listing has it
			}
			cfg.Store = broken{Store: s.store, content: c.content, err: c.err}
			got, err := Run(t.Context(), cfg)
			if err == nil || !c.want(err) {
				t.Fatalf("restored %+v, err %v", got, err)
			}
			for _, name := range c.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("%v: it does not name %s", err, name)
				}
			}
			untouched(t, g)
			t.Log(err)
		})
	}
	// Intact objects are restored, also with overlap.
	got, m := restored(t, s, with(p, overlapping), newest)
	if got.Revision != borders[2] {
		t.Errorf("restored to revision %d, want %d", got.Revision, borders[2])
	}
	same(t, s, m, borders[2])
}

func ofLineage(f catalog.Full, l catalog.Lineage) catalog.Full {
	f.Lineage = l
	return f
}

// with returns the plan with another second delta backup.
func with(p catalog.Plan, d catalog.Delta) catalog.Plan {
	p.Deltas = slices.Clone(p.Deltas)
	p.Deltas[1] = d
	return p
}

func isGap(from, to int64) func(error) bool {
	return func(err error) bool {
		gap, ok := errors.AsType[*GapError](err)
		return ok && gap.From == from && gap.To == to
	}
}

// altered changes one revision.
func altered(records []delta.Record, revision int64) []delta.Record {
	for i, r := range records {
		if r.Revision == revision {
			records[i].Value = []byte("\x0a\x01x\x2a\x01y")
		}
	}
	return records
}

// ofCluster returns the content of a delta backup as another cluster would have made it.
func (s *source) ofCluster(id uint64, d catalog.Delta) []byte {
	s.clusterID = id
	defer func() { s.clusterID = 0 }()
	return s.finished(s.between(d.From, d.To), delta.Digest{})
}

// finished returns the content of a delta backup with these records.
func (s *source) finished(records []delta.Record, before delta.Digest) []byte {
	s.tb.Helper()
	path := s.store
	s.store = directory(s.tb)
	defer func() { s.store = path }()
	return s.content(s.deltaOf(records, before).Key)
}
