package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// knownBroken returns the objects that verifications found broken, as the Lease of full backups reports them. If that Lease cannot be
// understood, nothing is known about them, and druid asks for an approval.
func (b *Bootstrapper) knownBroken(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	_, v, err := b.store.Full(ctx)
	switch {
	case errors.Is(err, leases.ErrAbsent):
		return nil, nil
	case errors.Is(err, leases.ErrUnreadable):
		b.log.WarnContext(ctx, "results of verifications not understood, no backup counts as broken", "err", err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read which backups are broken: %w", err)
	}
	return v.AllBroken(), nil
}

// brokenIn returns the objects of a plan that are broken.
func brokenIn(p catalog.Plan, broken []string) []string {
	return slices.DeleteFunc(objectsOf(p), func(key string) bool { return !slices.Contains(broken, key) })
}

// planOrdered plans what the order restores, without some objects: the full backups that contain more than its target, and what is damaged
// or broken. current is the lineage that the cluster record names. The plan of a restore in place follows from the target in the same way as
// in the dry run, because a plan in the lineage of the approved plan alone could continue after the fork.
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
// the next older one is used. An object that is damaged, or that a verification found broken, is left out if the others lead as far as the
// order says. A broken one is used otherwise: you approved that.
func (b *Bootstrapper) runOrdered(ctx context.Context, backups store.Store, listed catalog.Catalog, current string, g *regroup, broken []string,
	inform func(string)) (restore.Result, error) {
	var without, around []string
	var damage error
	for {
		plan, err := planOrdered(listed, &g.order, current, slices.Concat(without, around, broken))
		if err != nil {
			plan, err = planOrdered(listed, &g.order, current, slices.Concat(without, around))
		}
		switch {
		case err != nil && damage != nil:
			return restore.Result{}, fmt.Errorf("%w; without it: %w", damage, err)
		case err != nil:
			return restore.Result{}, err
		}
		b.log.InfoContext(ctx, "restore started", "full", plan.Full.Key, "deltas", len(plan.Deltas), "reach", plan.Reach, "notes", plan.Notes)
		report := reportAround(around, reportBroken(brokenIn(plan, broken), inform))
		report("restoring " + plan.Full.Key)
		result, err := b.runPlan(ctx, backups, plan, g, report)
		key, damaged := damagedIn(plan, err)
		switch {
		case errors.Is(err, restore.ErrTooNew):
			b.log.InfoContext(ctx, "full backup contains more than the target, an older one is used", "full", plan.Full.Key, "err", err)
			without = append(without, plan.Full.Key)
		case damaged:
			b.log.WarnContext(ctx, "damaged backup skipped", "object", key, "err", err)
			around, damage = append(around, key), err
		default:
			return result, err
		}
	}
}

// runPlan restores a plan next to the data directory.
func (b *Bootstrapper) runPlan(ctx context.Context, backups store.Store, plan catalog.Plan, g *regroup, inform func(string)) (restore.Result, error) {
	crash.Before("restore-recovered")
	result, err := restore.Run(ctx, restore.Config{
		Store: backups, Plan: plan, DataDir: volume.RestoredPath(b.cfg.VolumePath), Name: b.cfg.Member, PeerURLs: []string{g.peerURL},
		InitialCluster: b.cfg.Member + "=" + g.peerURL, Token: g.token, EtcdVersion: b.cfg.EtcdVersion, Quota: b.cfg.Quota(), Auth: b.authData(),
		Bump: bumpAbove(g.order.Known, &plan), ClearAlarms: true, Progress: b.progress(ctx, inform),
	})
	crash.After("restore-recovered")
	return result, err
}

// reportBroken adds the broken objects that a restore uses to its reported progress.
func reportBroken(used []string, inform func(string)) func(string) {
	if len(used) == 0 {
		return inform
	}
	return func(words string) {
		inform(words + ", with objects that a verification found broken: " + strings.Join(used, ", "))
	}
}
