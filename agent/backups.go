package agent

import (
	"cmp"
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/backups"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
)

func (a *Agent) newBackups(store *leases.Store) (*backups.Duty, error) {
	metrics, err := backups.NewMetrics(a.options.Registry, a.metrics.decisions)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return backups.New(backups.Options{
		Leases: store, Dial: a.clients.Dial, Listen: a.transport.Listener, Local: a.local(), Self: a.history, Open: open.Open,
		Equal: a.equal.Load, Differed: func() []uint64 { return *cmp.Or(a.differed.Load(), &[]uint64{}) },
		Majority: func(ctx context.Context, clusterID uint64) ([]uint64, bool, error) {
			return duties.Majority(ctx, a.clients.Dial, a.local(), clusterID)
		},
		MoveLeader: decider{agent: a}.transfer,
		Scratch:    cmp.Or(a.options.Scratch, config.ScratchDir), Quota: a.options.Config.QuotaBackendBytes, Metrics: metrics, Log: a.log,
	}), nil
}

// history returns the identity of the member's data for backups, from the identity file on its volume. It returns
// false if it is not certain that the raft group was formed.
func (a *Agent) history() (backups.Identity, bool) {
	identityFile, known := a.bootstrapper.Identity()
	lineage, err := catalog.ParseLineage(identityFile.Lineage)
	return backups.Identity{
		Lineage: lineage, ClusterID: uint64(identityFile.ClusterID), MemberID: uint64(identityFile.MemberID), ClusterUID: identityFile.Cluster,
		Parent: catalog.Lineage(identityFile.Parent), Fork: identityFile.Fork, Forked: identityFile.Forked,
	}, known && identityFile.Formed && err == nil
}

// backUp makes backups while this member is the raft leader. It needs no Lease, so it continues while the Kubernetes
// API is unavailable.
func (a *Agent) backUp(ctx context.Context) error {
	raft := func(ctx context.Context, lead func(context.Context)) error {
		lead(ctx)
		return nil
	}
	return duties.WhileLeader(ctx, a.observer.leads, raft, func(ctx context.Context) { a.keep(ctx, "saving", a.backups.Run) })
}

// handOver moves leadership away, and backs up the remaining changes: without another leader, no agent would do that.
func (d decider) handOver(ctx context.Context) {
	var group errgroup.Group
	group.Go(func() error {
		d.transfer(ctx)
		return nil
	})
	group.Go(func() error {
		if err := d.agent.backups.Flush(ctx); err != nil {
			d.agent.log.WarnContext(ctx, "last delta backup failed", "err", err)
		}
		return nil
	})
	_ = group.Wait() // both have reported what went wrong
}
