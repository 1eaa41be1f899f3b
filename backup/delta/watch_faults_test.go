package delta

import (
	"context"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-druid/druid/test/member"
)

// A compaction that overtakes the watch ends the recorder. What it saved is complete.
func TestCompactionRacesTheWatch(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			m, s := member.Start(t, minor, member.Options{}), &faulty{Store: directory(t)}
			f := newTraffic(t, m)
			f.run(100)
			content := database(t, m, 2)
			r := record(t, m, s, 2, func(c *Config) { c.MaxBytes = 5 << 10 })
			r.flush()
			for range 20 { // right behind the watch, which does not notice
				f.run(10)
				more := database(t, m, content[len(content)-1].Revision+1)
				content = append(content, more...)
				if _, err := m.Client.Compact(t.Context(), more[len(more)-1].Revision, clientv3.WithCompactPhysical()); err != nil {
					t.Fatal(err)
				}
			}
			saved := r.flush()
			s.set(down)
			f.large = 100 << 10
			f.run(600) // more than is held here, and on the way
			last := f.put("last", "")
			if _, err := m.Client.Compact(t.Context(), last-1); err != nil {
				t.Fatal(err)
			}
			f.run(5)
			s.set(nil)
			r.ends(ErrCompacted)
			all := objects(t, s)
			records := joined(t, 2, all)
			until := 0
			for until < len(records) && records[until].Revision <= saved {
				until++
			}
			same(t, content, records[:until])
			if to := all[len(all)-1].To; to != r.all()[len(r.all())-1].Saved {
				t.Errorf("the store ends at %d, and the last status is %+v", to, r.all()[len(r.all())-1])
			}
		})
	}
}

// severed is a connection to a member on which a test breaks and restores watches.
type severed struct {
	grpc.ClientConnInterface
	mu     sync.Mutex
	broken bool
	breaks []context.CancelFunc
}

func (c *severed) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return nil, status.Error(codes.Unavailable, "severed")
	}
	ctx, cancel := context.WithCancel(ctx)
	c.breaks = append(c.breaks, cancel)
	return c.ClientConnInterface.NewStream(ctx, desc, method, options...)
}

func (c *severed) sever(broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
	for _, cancel := range c.breaks {
		cancel()
	}
	c.breaks = nil
}

// TestCompactionAfterBrokenWatchNoticed: a compaction at the revision after a broken watch is noticed.
// While the watch is broken, the next revision is written and compacted: it is lost, wherever the recorder began. Only
// the revision before the first one may be missing.
func TestCompactionAfterBrokenWatchNoticed(t *testing.T) {
	for name, received := range map[string]bool{"after the first revisions came": true, "before any came": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, s := member.Start(t, "3.6", member.Options{}), directory(t)
			f := newTraffic(t, m)
			for range 3 {
				f.put("a", "b")
			}
			conn := &severed{ClientConnInterface: m.Client.ActiveConnection()}
			conn.sever(!received)
			from := f.put("a", "b") + 1
			r := record(t, m, s, from, func(c *Config) { c.Conn = conn })
			if received {
				f.put("a", "b")
				from = r.flush() + 1
				conn.sever(true)
			}
			r.await("a broken watch", func(s Status) bool { return s.WatchError != nil })
			at := from - 1 // which is the one before the first
			if received {
				at = f.put("a", "b")
			}
			if _, err := m.Client.Compact(t.Context(), at, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			last := f.put("a", "b")
			conn.sever(false)
			if received {
				r.ends(ErrCompacted)
				if saved := r.all()[len(r.all())-1].Saved; saved != from-1 {
					t.Errorf("saved up to %d, want %d: what follows is lost", saved, from-1)
				}
				return
			}
			if saved := r.flush(); saved != last {
				t.Errorf("saved up to %d, want %d", saved, last)
			}
			r.stop()
			holds(t, m, from, objects(t, s))
		})
	}
}
