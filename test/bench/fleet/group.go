package fleet

import (
	"context"
	"sync"

	"github.com/etcd-druid/druid/leases"
)

// group stands for the raft group of one cluster: who joined, and whether that is everybody.
type group struct {
	cluster string
	formed  chan struct{}
	whole   chan struct{}

	mu      sync.Mutex
	record  leases.Record
	members map[string]bool
}

// groupOf is the group of a cluster, for all its members the same.
func (f *Fleet) groupOf(cluster string) *group {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.groups[cluster] == nil {
		f.groups[cluster] = &group{
			cluster: cluster, formed: make(chan struct{}), whole: make(chan struct{}), members: map[string]bool{},
		}
	}
	return f.groups[cluster]
}

// form makes the group as the record has it.
func (g *group) form(record leases.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.record = record
	close(g.formed)
}

func (g *group) recorded() leases.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.record
}

// join adds a member. With the last one the group is whole, and all are promoted.
func (g *group) join(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.members)
	g.members[name] = true
	if len(g.members) == len(g.record.Members) && len(g.members) > before {
		close(g.whole)
	}
}

func (g *group) awaitFormed(ctx context.Context) bool { return await(ctx, g.formed) }

func (g *group) awaitWhole(ctx context.Context) bool { return await(ctx, g.whole) }

func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return true
	}
}
