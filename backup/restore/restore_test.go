package restore

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/chain"
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

// target is a data directory to come.
type target struct {
	tb      testing.TB
	dir     string
	peerURL string
}

func newTarget(tb testing.TB) *target {
	tb.Helper()
	return &target{tb: tb, dir: filepath.Join(tb.TempDir(), "data"), peerURL: "http://" + machine.Address(tb)}
}

func (g *target) config(s *source, p chain.Plan, minor string) Config {
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
func restored(tb testing.TB, s *source, p chain.Plan, minor string) (Result, *member.Member) {
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
	// Leases that ran out since then are revoked, which makes revisions.
	if got.Bumped > status.Header.Revision {
		tb.Errorf("etcd starts at revision %d, the restore said %d", status.Header.Revision, got.Bumped)
	}
	return got, m
}

// soundPages lets bbolt look at every page of the database, and wants the file to end with the last one.
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

// history makes a source with three fulls, one of them taken under writes, deltas over all of it, and a compaction.
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
					p := s.plan(chain.Target{Revision: revision})
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
					p := s.plan(chain.Target{Time: at})
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

// revisionAt is the last revision at a time.
func (s *source) revisionAt(at time.Time) int64 {
	var revision int64
	for _, r := range s.between(1, 1<<62) {
		if !r.At.After(at) {
			revision = r.Revision
		}
	}
	return revision
}

// same compares a restored etcd with the source: all of a range, and etcd's own hash where the source still has the
// revision.
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
