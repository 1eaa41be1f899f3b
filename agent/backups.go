package agent

import (
	"cmp"
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/backups"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/leader"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
)

func (a *Agent) newBackups(store *leases.Store) (*backups.Duty, error) {
	metrics, err := backups.NewMetrics(a.options.Registry, a.metrics.decisions)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return backups.New(backups.Options{
		Leases: store, Dial: a.options.Transport.Etcd, Listen: a.options.Transport.Listener, Local: a.local(), Self: a.history, Open: open.Open,
		HandOn:  decider{agent: a}.transfer,
		Scratch: cmp.Or(a.options.Scratch, config.ScratchDir), Quota: a.options.Config.QuotaBackendBytes, Metrics: metrics, Log: a.log,
	}), nil
}

// history is whose history our member has, as the stamp on its volume says. What was not formed for certain is none.
func (a *Agent) history() (backups.Identity, bool) {
	stamp, known := a.bootstrapper.Identity()
	lineage, err := chain.ParseLineage(stamp.Lineage)
	return backups.Identity{
		Lineage: lineage, ClusterID: uint64(stamp.ClusterID), MemberID: uint64(stamp.MemberID), ClusterUID: stamp.Cluster,
		Parent: chain.Lineage(stamp.Parent), Fork: stamp.Fork,
	}, known && stamp.Formed && err == nil
}

// backUp saves while this member is the raft leader: that needs no Lease, so it goes on while the Kubernetes API is away.
func (a *Agent) backUp(ctx context.Context) error {
	raft := func(ctx context.Context, lead func(context.Context)) error {
		lead(ctx)
		return nil
	}
	return leader.WhileLeader(ctx, a.observer.leads, raft, func(ctx context.Context) { a.keep(ctx, "saving", a.backups.Run) })
}

// handOver moves leadership away, and saves what was not saved yet: where no one else is there to lead, no one else saves
// it.
func (d decider) handOver(ctx context.Context) {
	var group errgroup.Group
	group.Go(func() error {
		d.transfer(ctx)
		return nil
	})
	group.Go(func() error {
		if err := d.agent.backups.Flush(ctx); err != nil {
			d.agent.log.WarnContext(ctx, "last delta not saved", "err", err)
		}
		return nil
	})
	_ = group.Wait() // both have reported what went wrong
}
