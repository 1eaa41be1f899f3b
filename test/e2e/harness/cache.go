package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// Cache holds all keys as a controller does. It lists them, and watches from the revision after the list. It lists again only if etcd
// has compacted what the watch needs. After each other end of the watch, it continues after the last revision that it has.
type Cache struct {
	name  string
	etcd  *clientv3.Client
	group errgroup.Group

	mu      sync.Mutex
	now     map[string]Value
	at      int64 // now is complete up to this revision
	spans   []*Span
	lastErr error
	missed  error // the first change that shows that the watch omitted another one
}

// Span is what a Cache saw from one list to the next one.
type Span struct {
	// Revision of the list, and the keys that it had.
	Revision int64
	Listed   map[string]Value
	// Changes that the watch delivered after the list, in order.
	Changes []Change
}

// Change is one key at one revision.
type Change struct {
	Key      string
	Revision int64
	// Value is nil if the key was deleted.
	Value *Value
	// Seen is when the watch delivered it.
	Seen time.Time
}

// StartCache starts a cache that reads through a client, and returns when it has its first list. It ends with the test.
func StartCache(t testing.TB, name string, etcd *clientv3.Client) *Cache {
	t.Helper()
	k := &Cache{name: name, etcd: etcd}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	k.group.Go(func() error { k.run(ctx); return nil })
	t.Cleanup(func() {
		stop()
		_ = k.group.Wait()
	})
	k.AwaitLists(t, 1)
	return k
}

func (k *Cache) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := attempt(ctx, k.list)
		if err == nil {
			err = k.follow(ctx)
		}
		k.note(err)
		pause(ctx, pollInterval)
	}
}

func (k *Cache) list(ctx context.Context) error {
	answer, err := k.etcd.Get(ctx, "", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	span := &Span{Revision: answer.Header.Revision, Listed: ValuesOf(answer)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now, k.at, k.spans = maps.Clone(span.Listed), span.Revision, append(k.spans, span)
	return nil
}

// ValuesOf are the keys that etcd returned.
func ValuesOf(answer *clientv3.GetResponse) map[string]Value {
	keys := map[string]Value{}
	for _, kv := range answer.Kvs {
		keys[string(kv.Key)] = ValueOf(kv)
	}
	return keys
}

// follow watches until etcd has compacted what the watch needs.
func (k *Cache) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		err := k.watch(ctx)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
		k.note(err)
		pause(ctx, pollInterval)
	}
	return ctx.Err()
}

func (k *Cache) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	_, after := k.state()
	for response := range k.etcd.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithProgressNotify()) {
		if err := response.Err(); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		k.apply(response)
	}
	return errors.New("the watch ended without an error")
}

// apply takes over the changes of a response, which has all changes of each of its revisions.
func (k *Cache) apply(response clientv3.WatchResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	span := k.spans[len(k.spans)-1]
	for _, e := range response.Events {
		key, change := string(e.Kv.Key), Change{Key: string(e.Kv.Key), Revision: e.Kv.ModRevision, Seen: time.Now()}
		before, had := k.now[key]
		if e.Type == clientv3.EventTypeDelete {
			delete(k.now, key)
		} else {
			change.Value = new(ValueOf(e.Kv))
			k.now[key] = *change.Value
		}
		if k.missed == nil {
			k.missed = omitted(change, before, had)
		}
		span.Changes = append(span.Changes, change)
		k.at = change.Revision
	}
	if response.IsProgressNotify() {
		k.at = max(k.at, response.Header.Revision)
	}
}

// omitted returns an error if a change does not follow the value that the key had before.
func omitted(c Change, before Value, had bool) error {
	switch {
	case c.Value == nil && !had:
		return fmt.Errorf("revision %d deletes key %s, which the cache did not have", c.Revision, c.Key)
	case c.Value != nil && c.Value.Version != before.Version+1:
		return fmt.Errorf("revision %d puts version %d of key %s, and the cache had version %d", c.Revision, c.Value.Version, c.Key, before.Version)
	case c.Revision <= before.ModRevision:
		return fmt.Errorf("revision %d changes key %s, which the cache had of revision %d", c.Revision, c.Key, before.ModRevision)
	}
	return nil
}

func (k *Cache) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastErr = err
}

// state are the keys, and the revision up to which they are complete.
func (k *Cache) state() (map[string]Value, int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.now), k.at
}

// Spans returns what the cache saw so far, from each of its lists on.
func (k *Cache) Spans() (spans []Span) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spans {
		spans = append(spans, *s)
	}
	return spans
}

// AwaitLists waits until the cache listed so many times. Each list but the first one follows the error that etcd compacted a revision. The
// test fails if the cache listed more often.
func (k *Cache) AwaitLists(t testing.TB, want int) {
	t.Helper()
	got := 0
	Eventually(t, maxWait, fmt.Sprintf("list %d of the cache %s", want, k.name), func(context.Context) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if got = len(k.spans); got < want {
			return fmt.Errorf("it listed %d times; its last error is: %w", got, k.lastErr)
		}
		return nil
	})
	if got > want {
		t.Errorf("the cache %s listed %d times, want %d", k.name, got, want)
	}
}

// Equals waits until the cache has all that the store has now, and compares both at one revision. It is unsafe if a key differs, or if the
// watch omitted a change. Clients can write meanwhile.
func (k *Cache) Equals(t testing.TB, etcd *clientv3.Client) {
	t.Helper()
	var target int64
	var got, want map[string]Value
	Eventually(t, maxWait, "cache "+k.name+" with all that the store has", func(ctx context.Context) error {
		if target == 0 {
			answer, err := etcd.Get(ctx, "revision")
			if err != nil {
				return err
			}
			target = answer.Header.Revision
		}
		keys, revision := k.state()
		if revision < target {
			k.mu.Lock()
			defer k.mu.Unlock()
			return fmt.Errorf("the cache has revision %d, and the store %d; its last error is: %w", revision, target, k.lastErr)
		}
		answer, err := etcd.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(revision))
		if err != nil {
			return fmt.Errorf("read the store at revision %d: %w", revision, err)
		}
		got, want = keys, ValuesOf(answer)
		return nil
	})
	if diff := cmp.Diff(got, want); diff != "" {
		Unsafe(t, "the cache %s differs from the store (-cache +store)\n%s", k.name, diff)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.missed != nil {
		Unsafe(t, "the watch of the cache %s omitted a change: %v", k.name, k.missed)
	}
	changes := 0
	for _, s := range k.spans {
		changes += len(s.Changes)
	}
	t.Logf("the cache %s equals the store: %d keys, after %d lists and %d changes", k.name, len(got), len(k.spans), changes)
}

// At returns the keys at a revision, and false if the span does not have that revision.
func (s Span) At(revision int64) (map[string]Value, bool) {
	if revision < s.Revision || revision > s.Last() {
		return nil, false
	}
	keys := maps.Clone(s.Listed)
	for _, c := range s.Changes {
		switch {
		case c.Revision > revision:
			return keys, true
		case c.Value == nil:
			delete(keys, c.Key)
		default:
			keys[c.Key] = *c.Value
		}
	}
	return keys, true
}

// Last is the last revision of the span.
func (s Span) Last() int64 {
	if len(s.Changes) == 0 {
		return s.Revision
	}
	return s.Changes[len(s.Changes)-1].Revision
}
