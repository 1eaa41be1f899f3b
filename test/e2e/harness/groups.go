package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/leases"
)

// Groups asks each member up to 20 times per second in which raft group it has a leader. One raft group at most has one at a time: after the
// first answer of the raft group that a recovery formed, no member finds a leader in another one.
type Groups struct {
	group *errgroup.Group
	stop  context.CancelFunc

	mu    sync.Mutex
	looks int
	led   map[string]led // by the ID of the raft group, hex
}

// led is from the end of the first answer to the begin of the last question.
type led struct {
	first, last time.Time
	member      string // that gave the last answer
}

// WatchGroups begins to ask these members. It ends with End, or with the test.
func (c *Cluster) WatchGroups(t testing.TB, members ...string) *Groups {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	g := &Groups{group: &errgroup.Group{}, stop: stop, led: map[string]led{}}
	t.Cleanup(func() { stop(); _ = g.group.Wait() })
	for _, name := range members {
		etcd, err := c.dialEtcd(Endpoint(name))
		if err != nil {
			t.Fatalf("watch the raft group of %s: %v", name, err)
		}
		g.group.Go(func() error {
			defer etcd.Close()
			for pause(ctx, samplePace) {
				g.look(ctx, name, etcd)
			}
			return nil
		})
	}
	return g
}

func (g *Groups) look(ctx context.Context, member string, etcd *clientv3.Client) {
	l := lookAt(ctx, etcd)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks++
	if l.err != nil || l.leader == 0 {
		return
	}
	id := leases.FormatID(l.group)
	s, known := g.led[id]
	if !known {
		s.first = time.Now()
	}
	s.last, s.member = l.begun, member
	g.led[id] = s
}

// End fails the test if two raft groups had a leader at a time, or if there were others than the two of a recovery.
func (g *Groups) End(t testing.TB, before, after string) {
	t.Helper()
	g.stop()
	_ = g.group.Wait() // nothing in it returns an error
	old, formed := g.led[before], g.led[after]
	switch {
	case len(g.led) != 2 || old.first.IsZero() || formed.first.IsZero():
		t.Errorf("raft groups with a leader: %s, want %s and then %s", g, before, after)
	case old.last.After(formed.first):
		Unsafe(t, "two raft groups had a leader at a time: %s", g)
	}
	t.Logf("%d answers about the raft groups during the recovery: %s", g.looks, g)
}

func (g *Groups) String() string {
	const clock = "15:04:05.000"
	var all []string
	for id, led := range g.led {
		all = append(all, fmt.Sprintf("%s from %s to %s (%s)", id, led.first.Format(clock), led.last.Format(clock), led.member))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
