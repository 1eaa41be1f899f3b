package backups

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
)

// gate is the raft leadership of member i, as the agent's observer sees it.
func (g *group) gate(i int) duties.Gate {
	return func(ctx context.Context, wanted bool) error {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for g.leads(i) != wanted {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
			}
		}
		return nil
	}
}

// raft is the campaign of a duty that needs no Lease.
func raft(ctx context.Context, lead func(context.Context)) error {
	lead(ctx)
	return nil
}

// moves is how often leadership moves. Run some hundred moves manually.
var moves = flag.Int("moves", 3, "how often leadership moves under writes")

// TestWritesSavedAcrossLeaderMoves: every acknowledged write is saved while leadership moves.
func TestWritesSavedAcrossLeaderMoves(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	c := directory(t.TempDir())
	for i := range g.members {
		a := g.newAgent(i, nil, "default")
		a.Configure(c)
		background(t, func(ctx context.Context) error {
			return duties.WhileLeader(ctx, g.gate(i), raft, func(ctx context.Context) { _ = a.Run(ctx) })
		})
	}
	var last int64
	client := g.client(0)
	writing, end := context.WithCancel(t.Context())
	stop := background(t, func(context.Context) error {
		for writing.Err() == nil {
			response, err := client.Put(writing, fmt.Sprintf("key-%d", counter.Add(1)%50), "v")
			if err == nil {
				last = response.Header.Revision // acknowledged
			}
		}
		return nil
	})
	s := opened(t, c)
	for range *moves {
		before := len(history(t, s).Deltas)
		eventually(t, "the leader saves something", func() error {
			if n := len(history(t, s).Deltas); n <= before {
				return fmt.Errorf("%d deltas", n)
			}
			return nil
		})
		g.move()
	}
	end()
	stop()
	savedUpTo(t, s, last)
	verifyAll(t, s, client, last)
	restored(t, s, client, last)
}

func TestTwoLeadersSaveOneCatalog(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	c := directory(t.TempDir())
	var stops []func()
	for i := range 2 {
		a := g.newAgent(i, nil, "default")
		a.Configure(c)
		stops = append(stops, a.start())
	}
	client, s := g.client(2), opened(t, c)
	last := put(t, client, 50)
	savedUpTo(t, s, last)
	last = put(t, client, 50)
	savedUpTo(t, s, last)
	for _, stop := range stops {
		stop()
	}
	verifyAll(t, s, client, last)
}

// TestLastDeltaSavedAtLeadershipEnd: the last delta is saved when leadership ends.
func TestLastDeltaSavedAtLeadershipEnd(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Delta.Period = config.Duration(time.Hour) // nothing but the end saves a delta
	a := g.newAgent(0, nil, "default")
	a.flushFor = maxWait
	a.Configure(c)
	stop := a.start()
	client, s := g.client(0), opened(t, c)
	savedUpTo(t, s, 1)
	eventually(t, "deltas are recorded", func() error {
		if a.fired("start-recording") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	last := put(t, client, 10)
	stop()
	if h := history(t, s); h.LastSaved() < last {
		t.Errorf("saved up to %d, want %d: %+v", h.LastSaved(), last, h)
	}
	verifyAll(t, s, client, last)
}

// savedBefore makes a full and a delta backup with an agent that runs before the agent of the test. It returns how
// many full backups there are then.
func savedBefore(t *testing.T, a *neighbour, c *config.Backup, client *clientv3.Client) (fulls int) {
	t.Helper()
	s := opened(t, c)
	put(t, client, 5)
	a.Configure(c)
	stop := a.start()
	savedUpTo(t, s, put(t, client, 5))
	stop()
	return len(history(t, s).Fulls)
}

// TestCompactedUnsavedWritesGetFull: a compaction of what was not saved is followed by a full.
func TestCompactedUnsavedWritesGetFull(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	before := savedBefore(t, agentOf(g, 0), c, client)
	lost := put(t, client, 20)
	if _, err := client.Compact(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	a := agentOf(g, 0)
	let := make(chan struct{})
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		return slow{s, let}, err
	}
	a.Configure(c)
	a.start()
	last := put(t, client, 5)
	eventually(t, "the gap is reported while nothing closes it", func() error {
		b, err := decoded(t, admin, namespace, leases.DeltaSnapshotName("demo"))
		if err != nil || !strings.Contains(b.Error, "do not continue to the revisions in etcd") || b.Lag == 0 {
			return fmt.Errorf("the Lease says %+v, %w", b, err)
		}
		return nil
	})
	if _, err := a.Snapshot(t.Context(), kindDelta); !errors.Is(err, ErrIdle) {
		t.Errorf("a delta that nothing leads to: %v, want ErrIdle", err)
	}
	close(let)
	eventually(t, "it is reported no more", func() error {
		b, err := decoded(t, admin, namespace, leases.DeltaSnapshotName("demo"))
		if err != nil || b.Error != "" {
			return fmt.Errorf("the Lease says %+v, %w", b, err)
		}
		return nil
	})
	savedUpTo(t, s, last)
	if n := len(history(t, s).Fulls); n <= before || a.fired("broken") == 0 {
		t.Errorf("%d fulls, %d before; rule broken fired %v times", n, before, a.fired("broken"))
	}
	verifyAll(t, s, client, last)
}

// slow accepts no full backup until it is allowed to.
type slow struct {
	store.Store
	let <-chan struct{}
}

func (s slow) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if _, full := catalog.ParseFull(prefix, key); full {
		select {
		case <-s.let:
		case <-ctx.Done():
		}
	}
	return s.Store.Put(ctx, key, r, o)
}

func TestNothingIsSavedOnTopOfAnotherHistory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// spoil changes the content of the store before the test.
		spoil func(t *testing.T, g *group, c *config.Backup)
		rule  string
	}{
		"revisions that etcd never had": {func(t *testing.T, g *group, c *config.Backup) {
			t.Helper()
			s := opened(t, c)
			mustPut(t, s, catalog.FullKey(prefix, lineage, 4, time.Now()), "full")
			mustPut(t, s, catalog.FullKey(prefix, lineage, 5, time.Now()), "full")
			mustPut(t, s, catalog.DeltaKey(prefix, lineage, 6, 5000, time.Now()), "delta")
		}, "catalog-ahead"},
		"a lineage of another cluster": {func(t *testing.T, g *group, c *config.Backup) {
			t.Helper()
			err := catalog.WriteBootstrap(t.Context(), opened(t, c), prefix,
				catalog.Formation{Lineage: lineage, ClusterID: "beef", ClusterUID: "other", Created: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
		}, "not-read"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, 1)
			c := directory(t.TempDir())
			put(t, g.client(0), 10)
			c.Retention = config.Retention{Count: 1}
			test.spoil(t, g, c)
			before := history(t, opened(t, c))
			a := g.newAgent(0, nil, "default")
			a.Configure(c)
			stop := a.start()
			prune := background(t, a.Prune)
			eventually(t, "the agent waits", func() error {
				if a.fired(test.rule) == 0 {
					return errors.New("not yet")
				}
				return nil
			})
			for range 2 { // one pass is over when the next one begins
				a.prune()
				eventually(t, "retention takes its turn", func() error {
					if len(a.pruning) > 0 {
						return errors.New("not yet")
					}
					return nil
				})
			}
			stop()
			prune()
			if after := history(t, opened(t, c)); len(after.Fulls) != len(before.Fulls) || len(after.Deltas) != len(before.Deltas) {
				t.Errorf("it saved or deleted something: %+v, before %+v", after, before)
			}
		})
	}
}

// TestConfigAndIdentityChange: the configuration and the identity may come, go and change.
func TestConfigAndIdentityChange(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	first, second := directory(t.TempDir()), directory(t.TempDir())
	a := g.newAgent(0, nil, "default")
	client := g.client(0)
	known := make(chan struct{})
	self := a.Self
	a.Self = func() (Identity, bool) {
		select {
		case <-known:
			return self()
		default:
			return Identity{}, false
		}
	}
	a.start()
	a.Configure(first)
	last := put(t, client, 5)
	if _, err := a.Snapshot(t.Context(), kindFull); !errors.Is(err, ErrIdle) {
		t.Errorf("a full on demand of who does not know its lineage: %v, want ErrIdle", err)
	}
	if h := history(t, opened(t, first)); len(h.Fulls)+len(h.Deltas) != 0 {
		t.Errorf("saved under a lineage that is not known: %+v", h)
	}
	close(known)
	savedUpTo(t, opened(t, first), last)

	a.Configure(second)
	last = put(t, client, 5)
	savedUpTo(t, opened(t, second), last)
	verifyAll(t, opened(t, second), client, last)
	verifyAll(t, opened(t, first), client, 5)

	a.Configure(nil)
	eventually(t, "backups end", func() error {
		if s, _ := a.at(); s != nil {
			return errors.New("not yet")
		}
		return nil
	})
	a.Configure(first)
	last = put(t, client, 5)
	savedUpTo(t, opened(t, first), last)
	verifyAll(t, opened(t, first), client, last)
}

func TestFullsComeByAgeAndOnDemand(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Full.MaxAge = config.Duration(2 * time.Second)
	a := g.newAgent(0, nil, "default")
	a.Configure(c)
	a.start()
	client, s := g.client(0), opened(t, c)
	eventually(t, "two fulls became due", func() error {
		if n := len(history(t, s).Fulls); n < 3 || a.fired("due") == 0 {
			return fmt.Errorf("%d fulls", n)
		}
		return nil
	})
	last := put(t, client, 5)
	full, err := a.Snapshot(t.Context(), kindFull)
	if err != nil || full.Revision < last || full.SHA256 == "" {
		t.Errorf("full on demand: %+v, %v; want revision %d", full, err, last)
	}
	last = put(t, client, 5)
	d, err := a.Snapshot(t.Context(), kindDelta)
	if err != nil || d.Revision < last {
		t.Errorf("delta on demand: %+v, %v; want revision %d", d, err, last)
	}
	if _, err := a.Snapshot(t.Context(), "Half"); !errors.Is(err, ErrKind) {
		t.Errorf("got %v, want ErrKind", err)
	}
	verifyAll(t, s, client, last)
}
