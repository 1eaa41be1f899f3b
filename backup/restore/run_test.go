package restore

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

var (
	changes = flag.Int("changes", 600, "changes that the equality tests make")
	points  = flag.Int("points", 3, "revisions, and times, that the equality tests restore to")
	seed    = flag.Uint64("seed", 1, "seed of the equality tests")
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // they wait for etcds most of the time
	os.Exit(m.Run())
}

// target is a data directory to create.
type target struct {
	tb      testing.TB
	dir     string
	peerURL string
}

func newTarget(tb testing.TB) *target {
	tb.Helper()
	return &target{tb: tb, dir: filepath.Join(tb.TempDir(), "data"), peerURL: "http://" + machine.Address(tb)}
}

func (g *target) config(s *source, p catalog.Plan, minor string) Config {
	return Config{
		Store: s.store, Plan: p, DataDir: g.dir, Name: member.Name, PeerURLs: []string{g.peerURL}, Token: "restored",
		InitialCluster: member.Name + "=" + g.peerURL, EtcdVersion: minor,
	}
}

func (g *target) start(minor string, o member.Options) *member.Member {
	g.tb.Helper()
	o.Dir, o.PeerURL, o.Token = g.dir, g.peerURL, "restored"
	return member.Start(g.tb, minor, o)
}

// restored restores a plan and starts an etcd on it.
func restored(tb testing.TB, s *source, p catalog.Plan, minor string) (Result, *member.Member) {
	tb.Helper()
	g := newTarget(tb)
	got, err := Run(tb.Context(), g.config(s, p, minor))
	if err != nil {
		tb.Fatal(err)
	}
	soundPages(tb, filepath.Join(g.dir, "member", "snap", "db"), got.Size)
	m := g.start(minor, member.Options{})
	status, err := m.Client.Status(tb.Context(), m.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	if got.ClusterID != status.Header.ClusterId || got.MemberID != status.Header.MemberId {
		tb.Errorf("etcd has IDs %x and %x, the restore said %x and %x", status.Header.ClusterId, status.Header.MemberId, got.ClusterID, got.MemberID)
	}
	// Leases that expired since then are revoked, which makes revisions.
	if got.Bumped > status.Header.Revision {
		tb.Errorf("etcd starts at revision %d, the restore said %d", status.Header.Revision, got.Bumped)
	}
	return got, m
}

// soundPages lets bbolt check every page of the database, and checks that the file ends with the last page.
func soundPages(tb testing.TB, path string, size int64) {
	tb.Helper()
	db, err := bolt.Open(path, fileMode, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			tb.Error(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != tx.Size() || size != tx.Size() {
			tb.Errorf("the file has %v (%v), its pages %d bytes, the restore said %d", info.Size(), err, tx.Size(), size)
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// history makes a source with three full backups, one of them taken during writes, delta backups of all revisions, and
// a compaction.
func history(tb testing.TB, minor string) (s *source, last int64) {
	tb.Helper()
	s = newSource(tb, minor, *seed)
	s.traffic(*changes / 4)
	first := s.full()
	s.traffic(*changes / 4)
	compacted := s.revision() - 20
	if _, err := s.m.Client.Compact(tb.Context(), compacted, clientv3.WithCompactPhysical()); err != nil {
		tb.Fatal(err)
	}
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		s.traffic(*changes / 4)
	}()
	s.full()
	<-writing
	s.traffic(*changes / 4)
	last = s.revision()
	s.deltas(first.Revision+1, last)
	return s, last
}

func TestARestoreIsWhatTheSourceWas(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s, last := history(t, minor)
			first := s.catalog().Histories[0].Fulls[0].Revision
			for i := range *points {
				revision := first + s.random.Int64N(last-first+1)
				if i == 0 {
					revision = last
				}
				t.Run(fmt.Sprint("revision ", revision), func(t *testing.T) {
					p := s.plan(catalog.Target{Revision: revision})
					got, m := restored(t, s, p, minor)
					if got.Revision != revision {
						t.Errorf("restored to revision %d", got.Revision)
					}
					same(t, s, m, revision)
				})
			}
			for range *points {
				at := s.between(first, last)[s.random.IntN(len(s.between(first, last)))].At
				t.Run(at.Format("time 15:04:05.000"), func(t *testing.T) {
					p := s.plan(catalog.Target{Time: at})
					got, m := restored(t, s, p, minor)
					if want := s.revisionAt(at); got.Revision != want {
						t.Errorf("restored to revision %d, want %d", got.Revision, want)
					}
					same(t, s, m, got.Revision)
				})
			}
		})
	}
}

// revisionAt returns the last revision at a time.
func (s *source) revisionAt(at time.Time) int64 {
	var revision int64
	for _, r := range s.between(1, 1<<62) {
		if !r.At.After(at) {
			revision = r.Revision
		}
	}
	return revision
}

// same compares a restored etcd with the source: the complete key space, and the hash of etcd if the source still has
// the revision.
func same(t *testing.T, s *source, m *member.Member, revision int64) {
	t.Helper()
	if got, want := stateOf(t, m, revision), s.state(revision); got != want {
		t.Errorf("at revision %d it holds %s, want %s", revision, got, want)
	}
	theirs, err := s.m.Client.HashKV(t.Context(), s.m.Endpoint, revision)
	if err != nil || revision < theirs.CompactRevision {
		return // compacted since: only the range can be compared
	}
	if theirs.CompactRevision > 0 {
		_, _ = m.Client.Compact(t.Context(), theirs.CompactRevision, clientv3.WithCompactPhysical()) // it may be compacted already
	}
	ours, err := m.Client.HashKV(t.Context(), m.Endpoint, revision)
	if err != nil {
		t.Fatal(err)
	}
	if ours.Hash != theirs.Hash || ours.CompactRevision != theirs.CompactRevision {
		t.Errorf("HashKV at revision %d is %d (compacted at %d), want %d (%d)", revision, ours.Hash, ours.CompactRevision, theirs.Hash, theirs.CompactRevision)
	}
}

// Two recorders save at the same time and cut the history differently. Whichever of their delta backups a plan takes,
// the restore equals the source.
func TestWhatIsRecordedIsRestored(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, minor, *seed+100)
			s.traffic(*changes / 6)
			full := s.full()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var running errgroup.Group
			var recorders []*delta.Recorder
			for i, size := range []int{20_000, 70_000} {
				r, err := delta.NewRecorder(delta.Config{
					Conn: s.m.Client.ActiveConnection(), Store: s.store, Lineage: string(lineage), ClusterID: uint64(full.ClusterID),
					Key: func(from, to int64, at time.Time) string {
						return catalog.DeltaKey(prefix, lineage, from, to, at.Add(time.Duration(i)*time.Hour))
					},
					From: full.Revision + 1, Period: delta.MinPeriod, MaxBytes: size,
				})
				if err != nil {
					t.Fatal(err)
				}
				recorders = append(recorders, r)
				running.Go(func() error { return r.Run(ctx) })
			}
			s.traffic(*changes / 3)
			if _, err := s.m.Client.Compact(ctx, s.revision(), clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			s.traffic(*changes / 3)
			var last int64
			for _, r := range recorders {
				var err error
				if last, err = r.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			if err := running.Wait(); err != nil {
				t.Fatal(err)
			}
			for range *points {
				revision := full.Revision + 1 + s.random.Int64N(last-full.Revision)
				got, m := restored(t, s, s.plan(catalog.Target{Revision: revision}), minor)
				if got.Revision != revision {
					t.Errorf("restored to revision %d, want %d", got.Revision, revision)
				}
				same(t, s, m, revision)
			}
		})
	}
}

// TestFullCompactedAtEndContinued: a full that was compacted at its end is continued.
// A compaction may remove records of the very last revision. What is left of that revision does not show it.
func TestFullCompactedAtEndContinued(t *testing.T) {
	for name, change := range map[string]func(*source) clientv3.Op{
		"put and deleted at once": func(s *source) clientv3.Op { return s.putAndDeleted("a") },
		"a deletion":              func(*source) clientv3.Op { return clientv3.OpDelete("b") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, newest, 11)
			s.put("a", "1")
			s.put("b", "1")
			s.do(change(s))
			base := s.revision()
			if _, err := s.m.Client.Compact(t.Context(), base, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			full := s.full()
			s.put("c", "3")
			s.revision() // until the watch reported it
			d := s.delta(base, base+1)
			got, m := restored(t, s, catalog.Plan{Full: s.named(full.Key), Deltas: []catalog.Delta{d}}, newest)
			if got.Revision != base+1 || full.Revision != base {
				t.Errorf("restored to revision %d from a full at %d, want %d from %d", got.Revision, full.Revision, base+1, base)
			}
			same(t, s, m, base+1)
		})
	}
}

// TestPhasePaceReported: the pace of a phase is reported also while it is unknown.
func TestPhasePaceReported(t *testing.T) {
	begun := time.Unix(1_790_000_000, 0)
	fetching := func(mib int64) Progress {
		return Progress{Phase: Fetching, Bytes: mib << 20, TotalBytes: 100 << 20, TotalDeltas: 3}
	}
	applying := func(events, bytes int64) Progress {
		return Progress{Phase: Applying, Events: events, DeltaBytes: bytes, TotalDeltaBytes: 1000, TotalDeltas: 3}
	}
	var p Pace
	for _, step := range []struct {
		after time.Duration
		at    Progress
		want  Speed
		words string
	}{
		{0, fetching(10), Speed{Part: 0.1}, "10 of 100 MiB, rate unknown, remaining time unknown; 3 delta backups follow"},
		{900 * time.Millisecond, fetching(20), Speed{Part: 0.2}, "remaining time unknown"},
		{2 * time.Second, fetching(30), Speed{0.3, 10 << 20, 7 * time.Second, true}, "10.0 MiB/s, about 7s remaining"},
		{9 * time.Second, fetching(100), Speed{1, 10 << 20, 0, true}, "about 0s remaining"},
		{10 * time.Second, applying(0, 0), Speed{}, "0 of 3, 0 events, rate unknown, revision 0, remaining time unknown"},
		{12 * time.Second, applying(50, 0), Speed{PerSecond: 25}, "25 events/s, revision 0, remaining time unknown"},
		{14 * time.Second, applying(100, 500), Speed{0.5, 25, 4 * time.Second, true}, "25 events/s, revision 0, about 4s remaining"},
		{20 * time.Second, Progress{Phase: Finishing, Revision: 7}, Speed{Part: 1}, "reached revision 7, making the data durable, remaining time unknown"},
	} {
		got := p.Observe(step.at, begun.Add(step.after))
		if diff := got.Part - step.want.Part; got.PerSecond != step.want.PerSecond || got.Left != step.want.Left || got.Known != step.want.Known || diff*diff > 1e-9 {
			t.Errorf("after %s: %+v, want %+v", step.after, got, step.want)
		}
		if words := got.Words(step.at); !strings.Contains(words, step.words) {
			t.Errorf("after %s it says %q, want %q", step.after, words, step.words)
		}
	}
}
