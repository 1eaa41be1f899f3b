package restore

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/test/member"
)

// forkOf starts an etcd on the state that s had at a revision, as a cluster that was formed again, with a lineage of its own.
func forkOf(s *source, minor string, at int64, l catalog.Lineage) *source {
	s.tb.Helper()
	g := newTarget(s.tb)
	cfg := g.config(s, s.plan(catalog.Target{Revision: at}), minor)
	cfg.Bump = DefaultBump
	got, err := Run(s.tb.Context(), cfg)
	if err != nil {
		s.tb.Fatal(err)
	}
	err = catalog.WriteBootstrap(s.tb.Context(), s.store, prefix, catalog.Formation{
		Lineage: l, Parent: s.lineage, Fork: got.Revision, Reason: "restore", Created: time.Now(),
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	fork := &source{tb: s.tb, m: g.start(minor, member.Options{}), store: s.store, random: s.random, leases: map[int64]delta.Lease{}, lineage: l}
	fork.follow(got.Bumped + 1)
	return fork
}

// lastly returns the revision of the last put of one key, and a moment after it and before the next one.
func (s *source) lastly(value string) (revision int64, at time.Time) {
	s.tb.Helper()
	s.put("moment", value)
	revision = s.revision()
	last := s.between(revision, revision)[0].At
	s.await("the clock to advance", func() bool { at = time.Now(); return at.Sub(last) > 5*time.Millisecond })
	return revision, at
}

// A cluster is restored to an earlier revision, and writes go on. Each state before the fork, after it, and on the side that
// was left can be restored.
func TestEachSideOfAForkIsRestored(t *testing.T) {
	const child = catalog.Lineage("00000002-8899aabbccddeeff")
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, minor, 7)
			s.stable(30)
			full := s.full()
			s.stable(30)
			early, earlyTime := s.lastly("before the fork")
			s.stable(30)
			fork, _ := s.lastly("the last that the fork has")
			s.stable(30)
			left, leftTime := s.lastly("not in the fork")
			s.delta(full.Revision+1, left)
			f := forkOf(s, minor, fork, child)
			f.stable(30)
			first := f.full()
			f.stable(30)
			late, lateTime := f.lastly("in the fork")
			f.stable(30)
			last := f.revision()
			f.delta(first.Revision+1, last)
			for name, test := range map[string]struct {
				target   catalog.Target
				of       *source
				revision int64
			}{
				"a revision before the fork":                 {catalog.Target{Revision: early}, s, early},
				"the last revision of both":                  {catalog.Target{Revision: fork}, s, fork},
				"a revision of the side that was left":       {catalog.Target{Revision: left, Lineage: lineage}, s, left},
				"all of the side that was left, to undo it":  {catalog.Target{Lineage: lineage}, s, left},
				"a revision of the fork":                     {catalog.Target{Revision: late}, f, late},
				"all of the fork":                            {catalog.Target{}, f, last},
				"a time before the fork":                     {catalog.Target{Time: earlyTime}, s, early},
				"a time when the other side was the cluster": {catalog.Target{Time: leftTime}, s, left},
				"a time after the fork":                      {catalog.Target{Time: lateTime}, f, late},
				"a time before the fork, of the fork's line": {catalog.Target{Time: earlyTime, Lineage: child}, s, early},
				"the side that was left, of the fork's line": {catalog.Target{Time: leftTime, Lineage: child}, s, fork},
			} {
				t.Run(name, func(t *testing.T) {
					_, m := restored(t, s, s.plan(test.target), minor)
					if got, want := stateOf(t, m, 0), stateOf(t, test.of.m, test.revision); got != want {
						t.Errorf("restored %s, want %s of revision %d", got, want, test.revision)
					}
				})
			}
			_, err := s.catalog().Plan(catalog.Target{Revision: left})
			if !errors.Is(err, catalog.ErrOutside) || !strings.Contains(err.Error(), "specify the lineage") {
				t.Errorf("the plan for a revision of both sides without a lineage: %v", err)
			}
			if got := f.get("moment", clientv3.WithRev(late)); string(got.Kvs[0].Value) != "in the fork" {
				t.Errorf("the fork has %s", got.Kvs[0].Value)
			}
		})
	}
}
