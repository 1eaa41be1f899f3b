package delta

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/etcd-druid/druid/internal/loop"
)

const (
	// askers request leases concurrently. At a millisecond for each response, they manage some thousand per second.
	askers = 4
	// leaseTimeout limits one request for a lease, and the total wait of a delta backup for its leases.
	leaseTimeout = 5 * time.Second
	// leaseMemory is how long the book keeps a lease that is gone or not known to be alive.
	leaseMemory = time.Minute
)

// leaseBook keeps the leases that were seen. A lease may be gone when a delta backup is closed, so the book requests
// its data when it is first seen.
type leaseBook struct {
	client etcdserverpb.LeaseClient
	now    func() time.Time

	mu      sync.Mutex
	known   map[int64]*leaseEntry
	queue   []*leaseEntry
	work    chan struct{} // something is queued
	changed loop.Signal   // sent with each answer
}

// leaseEntry is what is known of a lease. A holder of an entry can use it after the book dropped it.
type leaseEntry struct {
	lease    Lease
	answered bool
}

func newLeaseBook(conn grpc.ClientConnInterface, now func() time.Time) *leaseBook {
	return &leaseBook{
		client: etcdserverpb.NewLeaseClient(conn), now: now,
		known: map[int64]*leaseEntry{}, work: make(chan struct{}, askers),
	}
}

// see requests the data of a lease unless the book has it. isNew reports whether the lease was new.
func (b *leaseBook) see(id int64) (entry *leaseEntry, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if entry, ok := b.known[id]; ok {
		return entry, false
	}
	entry = &leaseEntry{lease: Lease{ID: id, At: b.now()}}
	b.known[id] = entry
	b.enqueue(entry)
	return entry, true
}

func (b *leaseBook) enqueue(entry *leaseEntry) {
	b.queue = append(b.queue, entry)
	b.wake()
}

func (b *leaseBook) wake() {
	select {
	case b.work <- struct{}{}:
	default: // all of them are awake
	}
}

// run sends requests until ctx ends.
func (b *leaseBook) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range askers {
		g.Go(loop.Recovered(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-b.work:
				}
				for entry := b.next(); entry != nil; entry = b.next() {
					if !b.ask(ctx, entry) && !pause(ctx, firstBackoff) {
						return nil
					}
				}
			}
		}))
	}
	return g.Wait()
}

func (b *leaseBook) next() *leaseEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.queue = nil
		return nil
	}
	entry := b.queue[0]
	if b.queue = b.queue[1:]; len(b.queue) > 0 {
		b.wake()
	}
	return entry
}

// ask returns false if there was no response. The lease is then requested again.
func (b *leaseBook) ask(ctx context.Context, entry *leaseEntry) bool {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	response, err := b.client.LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: entry.lease.ID})
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.enqueue(entry)
		return false
	}
	// For a lease that is gone, etcd reports a remaining time of -1 seconds and a granted time of 0.
	entry.lease.TTL, entry.lease.Remaining, entry.lease.At = response.GrantedTTL, max(response.TTL, 0), b.now()
	entry.answered = true
	b.changed.Send()
	return true
}

// collect returns the leases of a delta backup, from those that it references. What etcd does not report in time stays
// unknown, because saving the delta backup matters more than its leases.
func (b *leaseBook) collect(ctx context.Context, referenced map[int64]*leaseEntry) Leases {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	var l Leases
	entries := make([]*leaseEntry, 0, len(referenced))
	for _, entry := range referenced {
		entries = append(entries, entry)
	}
	if response, err := b.client.LeaseLeases(ctx, &etcdserverpb.LeaseLeasesRequest{}); err == nil && len(response.Leases) <= MaxAlive {
		l.Known = true
		for _, status := range response.Leases {
			l.Alive = append(l.Alive, status.ID)
			if entry, isNew := b.see(status.ID); isNew {
				entries = append(entries, entry)
			}
		}
		slices.Sort(l.Alive)
	}
	b.wait(ctx, entries)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, entry := range entries {
		l.Records = append(l.Records, entry.lease)
	}
	slices.SortFunc(l.Records, func(x, y Lease) int {
		if x.ID < y.ID {
			return -1
		}
		return 1
	})
	b.forget(func(id int64) bool {
		if !l.Known {
			return referenced[id] != nil
		}
		_, isAlive := slices.BinarySearch(l.Alive, id)
		return isAlive
	})
	return l
}

// wait returns when all entries have a response, or when ctx ends.
func (b *leaseBook) wait(ctx context.Context, entries []*leaseEntry) {
	for {
		b.mu.Lock()
		for len(entries) > 0 && entries[0].answered {
			entries = entries[1:]
		}
		changed := b.changed.Wait()
		b.mu.Unlock()
		if len(entries) == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// forget drops leases that are not alive. If it is not known which are alive, it drops those that are not referenced.
// This bounds the size of the book. A dropped lease is requested again when it is seen again.
func (b *leaseBook) forget(needed func(id int64) bool) {
	for id, entry := range b.known {
		if entry.answered && b.now().Sub(entry.lease.At) > leaseMemory && !needed(id) {
			delete(b.known, id)
		}
	}
}
