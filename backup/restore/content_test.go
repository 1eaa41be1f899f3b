package restore

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/test/member"
)

// newest is the minor for tests that are not about minors.
var newest = member.Minors[len(member.Minors)-1]

func (s *source) put(key, value string, o ...clientv3.OpOption) {
	s.tb.Helper()
	if _, err := s.m.Client.Put(s.tb.Context(), key, value, o...); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *source) grant(ttl int64) clientv3.LeaseID {
	s.tb.Helper()
	lease, err := s.m.Client.Grant(s.tb.Context(), ttl)
	if err != nil {
		s.tb.Fatal(err)
	}
	return lease.ID
}

// touch makes an etcd panic, now and at each start, if the lease of a key does not exist.
func touch(t *testing.T, m *member.Member, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	if _, err := m.Client.Put(ctx, key, "touched", clientv3.WithIgnoreLease()); err != nil {
		t.Errorf("a put that keeps the lease of %s: %v", key, err)
	}
}

func TestKeysKeepTheirLeases(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, minor, 1)
			before := s.grant(500)
			s.put("before", "", clientv3.WithLease(before))
			full := s.full()
			after, dying, unused := s.grant(700), s.grant(30), s.grant(900)
			s.put("after", "", clientv3.WithLease(after))
			s.put("dying", "", clientv3.WithLease(dying))
			s.put("replaced", "", clientv3.WithLease(unused))
			s.put("replaced", "")
			revision := s.revision()
			s.delta(full.Revision+1, revision)
			got, m := restored(t, s, s.plan(catalog.Target{Revision: revision}), minor)
			if got.Leases != 2 || got.Guessed != 0 {
				t.Errorf("it added %d leases, of which %d are guessed, want those of keys after and dying", got.Leases, got.Guessed)
			}
			for id, want := range map[clientv3.LeaseID]int64{before: 500, after: 700, unused: 0} {
				reported, err := m.Client.TimeToLive(t.Context(), id)
				if err != nil || reported.GrantedTTL != want || want > 0 && (reported.TTL < want-100 || reported.TTL > want) {
					t.Errorf("lease %x has TTL %d, %d granted (%v), want %d", id, reported.TTL, reported.GrantedTTL, err, want)
				}
			}
			touch(t, m, "before")
			touch(t, m, "after")
			s.await("the key of a lease that dies to go", func() bool {
				left, err := m.Client.Get(t.Context(), "dying")
				return err == nil && left.Count == 0
			})
		})
	}
}

func TestTheFullIsCutBackToTheTarget(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 2)
	s.stable(100)
	lease := s.grant(500)
	s.put("revoked", "", clientv3.WithLease(lease))
	target := s.revision()
	if _, err := s.m.Client.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	s.stable(100)
	full := s.full()
	f := s.catalog().Histories[0].Fulls[0]
	got, m := restored(t, s, catalog.Plan{Full: f, Revision: target}, newest)
	if want := len(s.between(target+1, full.Revision)); got.Revision != target || got.Trimmed != int64(want) || got.Events != 0 {
		t.Errorf("restored %+v, want revision %d by trimming %d records", got, target, want)
	}
	same(t, s, m, target)
	if got.Leases == 0 || got.Guessed != got.Leases {
		t.Errorf("it added %d leases, of which %d are guessed, want the revoked one among them", got.Leases, got.Guessed)
	}
	touch(t, m, "revoked")

	if _, err := s.m.Client.Compact(t.Context(), target+1, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	s.put("later", "")
	compacted := s.full()
	for name, p := range map[string]catalog.Plan{
		"compacted":      {Full: s.named(compacted.Key), Revision: target},
		"taken too late": {Full: f, Until: full.Taken.Add(-time.Second)},
	} {
		refused(t, s, name, p, newest, ErrTooNew, p.Full.Key)
	}
}

// named returns the full backup with a key.
func (s *source) named(key string) catalog.Full {
	s.tb.Helper()
	for _, f := range s.catalog().Histories[0].Fulls {
		if f.Key == key {
			return f
		}
	}
	s.tb.Fatalf("no full %s", key)
	return catalog.Full{}
}

// refused checks that the error names an object and that nothing is on the disk.
func refused(t *testing.T, s *source, name string, p catalog.Plan, minor string, want error, object string) {
	t.Helper()
	g := newTarget(t)
	got, err := Run(t.Context(), g.config(s, p, minor))
	if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), object) {
		t.Errorf("%s: restored %+v, err %v, want %v that names %q", name, got, err, want, object)
	} else {
		t.Logf("%s: %v", name, err)
	}
	untouched(t, g)
}

func untouched(t *testing.T, g *target) {
	t.Helper()
	for _, path := range []string{g.dir, g.dir + suffix} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
}

// TestBumpedRestoreRestartsWatchers: a bumped restore reports watchers to start again.
func TestBumpedRestoreRestartsWatchers(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, minor, 3)
			s.stable(50)
			full := s.full()
			s.stable(50)
			last := s.revision()
			s.delta(full.Revision+1, last)
			g := newTarget(t)
			cfg := g.config(s, s.plan(catalog.Target{}), minor)
			cfg.Bump = DefaultBump
			got, err := Run(t.Context(), cfg)
			if err != nil || got.Revision != last || got.Bumped != last+DefaultBump {
				t.Fatalf("restored %+v, err %v, want revision %d", got, err, last)
			}
			m := g.start(minor, member.Options{})
			watched := <-m.Client.Watch(t.Context(), "", clientv3.WithPrefix(), clientv3.WithRev(last-1))
			if !errors.Is(watched.Err(), rpctypes.ErrCompacted) || watched.CompactRevision != got.Bumped {
				t.Errorf("a watch from revision %d got %d events (%v), want compacted at %d", last-1, len(watched.Events), watched.Err(), got.Bumped)
			}
			if _, err := m.Client.Get(t.Context(), "key", clientv3.WithRev(last)); !errors.Is(err, rpctypes.ErrCompacted) {
				t.Errorf("a read at revision %d: %v", last, err)
			}
			if now, want := stateOf(t, m, 0), s.state(last); now != want {
				t.Errorf("it holds %s, want %s", now, want)
			}
			put, err := m.Client.Put(t.Context(), "key", "new")
			if err != nil || put.Header.Revision != got.Bumped+1 {
				t.Errorf("the next revision is %d (%v), want %d", put.Header.Revision, err, got.Bumped+1)
			}
			m.Stop(t)
			// A restored cluster can be backed up like any other.
			again := &source{tb: t, m: g.start(minor, member.Options{}), store: s.store, lineage: lineage}
			if full := again.full(); full.Revision != got.Bumped+1 {
				t.Errorf("a full of what was restored ends at %d, want %d", full.Revision, got.Bumped+1)
			}
		})
	}
}

func TestAlarmsGoWhenAskedTo(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 4)
	m := member.Start(t, newest, member.Options{Args: []string{"--quota-backend-bytes=8388608"}})
	s.m = m
	for {
		_, err := m.Client.Put(t.Context(), "large", strings.Repeat("x", 1<<20))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.full()
	p := s.plan(catalog.Target{})
	for _, clear := range []bool{false, true} {
		g := newTarget(t)
		cfg := g.config(s, p, newest)
		cfg.ClearAlarms = clear
		if _, err := Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		_, err := g.start(newest, member.Options{}).Client.Put(t.Context(), "key", "value")
		if clear && err != nil || !clear && !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("alarms cleared: %t; a put: %v", clear, err)
		}
	}
}

func TestUsersAndRolesComeAlong(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 5)
	s.put("key", "value")
	ctx := t.Context()
	_, err := s.m.Client.UserAdd(ctx, "root", "secret")
	if err == nil {
		_, err = s.m.Client.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = s.m.Client.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.m.Endpoint}, Username: "root", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s.m.Client = root
	full := s.full()
	g := newTarget(t)
	if _, err := Run(ctx, g.config(s, catalog.Plan{Full: s.named(full.Key)}, newest)); err != nil {
		t.Fatal(err)
	}
	m := g.start(newest, member.Options{User: "root", Password: "secret"})
	if got, err := m.Client.Get(ctx, "key"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("root reads %v, err %v", got, err)
	}
	anybody, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer anybody.Close()
	if _, err := anybody.Get(ctx, "key"); !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Errorf("anybody reads: %v", err)
	}
}

func TestEachMinorReadsWhatOlderOnesWrote(t *testing.T) {
	for i, from := range member.Minors {
		t.Run("from "+from, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, from, 6)
			s.traffic(30)
			s.m.AwaitStorageVersion(t)
			full := s.full()
			s.traffic(30)
			last := s.revision()
			s.delta(full.Revision+1, last)
			p := s.plan(catalog.Target{})
			for j, to := range member.Minors {
				if j < i {
					refused(t, s, "to "+to, p, to, ErrVersion, p.Full.Key)
				}
				if j > i {
					_, m := restored(t, s, p, to)
					same(t, s, m, last)
				}
			}
		})
	}
}
