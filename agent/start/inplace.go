package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// What a recovery order and a dry run of a restore in place read from the backup store.

// targetOf is what a restore in place brings back. current is the lineage that the cluster record names.
func targetOf(t leases.RestoreTarget, current string) catalog.Target {
	return catalog.Target{Revision: t.Revision, Time: t.Time, Lineage: catalog.Lineage(cmp.Or(t.Lineage, current))}
}

// planOrdered plans what the order restores, without the full backups that contain more than its target. current is the lineage that
// the cluster record names. The plan of a restore in place follows from the target in the same way as in the dry run, because a plan
// in the lineage of the approved plan alone could continue after the fork.
func planOrdered(listed catalog.Catalog, order *leases.Recovery, current string, without []string) (catalog.Plan, error) {
	target := catalog.Target{Lineage: catalog.Lineage(order.Lineage)}
	switch {
	case order.Restores():
		target = targetOf(*order.Target, current)
	case order.Lineage != current: // the parent of a raft group that was lost: what follows the fork was replaced before
		target.Revision = order.Revision
	}
	target.Without = without
	plan, err := listed.Plan(target)
	switch {
	case err != nil:
		return plan, err
	case order.Restores() && string(plan.Full.Lineage) != order.Lineage:
		return plan, fmt.Errorf("recover: %w: they lead to %s in lineage %s, and the recovery order names lineage %s", errPlanned, order.Target,
			plan.Full.Lineage, order.Lineage)
	case plan.Reach < order.Revision:
		return plan, fmt.Errorf("recover: %w: those of lineage %s reach revision %d, and the recovery order names %d", errPlanned, order.Lineage,
			plan.Reach, order.Revision)
	}
	return plan, nil
}

// bumpAbove is what is added to the revision of the restored data, so that the new raft group starts above known, the highest revision
// of the old one. A recovery already raised the revision by restore.DefaultBump. So after it, DefaultBump does not lead above known
// from the backups of an earlier lineage. The restored revision becomes known later, and is not below that of the full backup.
func bumpAbove(known int64, plan *catalog.Plan) int64 {
	return restore.DefaultBump + max(0, known-plan.Full.Revision)
}

// runOrdered restores what the order names. A full backup can contain more than its name says. If one contains more than the target,
// the next older one is used.
func (b *Bootstrapper) runOrdered(ctx context.Context, backups store.Store, listed catalog.Catalog, current string, g *regroup,
	inform func(string)) (restore.Result, error) {
	var without []string
	for {
		plan, err := planOrdered(listed, &g.order, current, without)
		if err != nil {
			return restore.Result{}, err
		}
		crash.Before("restore-recovered")
		result, err := restore.Run(ctx, restore.Config{
			Store: backups, Plan: plan, DataDir: volume.RestoredPath(b.cfg.VolumePath), Name: b.cfg.Member, PeerURLs: []string{g.peerURL},
			InitialCluster: b.cfg.Member + "=" + g.peerURL, Token: g.token, EtcdVersion: b.cfg.EtcdVersion, Quota: b.cfg.Quota(), Auth: b.authData(),
			Bump: bumpAbove(g.order.Known, &plan), ClearAlarms: true, Progress: b.progress(ctx, inform),
		})
		crash.After("restore-recovered")
		if !errors.Is(err, restore.ErrTooNew) {
			return result, err
		}
		b.log.InfoContext(ctx, "full backup contains more than the target, an older one is used", "full", plan.Full.Key, "err", err)
		without = append(without, plan.Full.Key)
	}
}
