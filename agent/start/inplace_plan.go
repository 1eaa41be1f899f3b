package start

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
)

// PlanRestore is the dry run of a restore in place: it plans the target as the order will be planned, and changes nothing. current is the
// lineage that the cluster record names. An error is a sentence for the user. It can be called at any time, by several goroutines.
func (b *Bootstrapper) PlanRestore(ctx context.Context, target leases.RestoreTarget, current string) (leases.RestorePlan, error) {
	reloadable, err := config.ReadReloadable(b.cfg.ConfigPath)
	if err != nil {
		return leases.RestorePlan{}, err
	}
	if reloadable.Backup == nil {
		return leases.RestorePlan{}, errNoBackups
	}
	ctx, cancel := store.Patient(ctx, store.MaxWait)
	defer cancel()
	backups, listed, err := b.catalog(ctx, reloadable.Backup.Store, reloadable.Backup.Prefix)
	if err != nil {
		return leases.RestorePlan{}, fmt.Errorf("the backup store cannot be read, the agent tries again: %w", err)
	}
	broken, err := b.knownBroken(ctx)
	if err != nil {
		return leases.RestorePlan{}, fmt.Errorf("the agent tries again: %w", err)
	}
	plan, size, err := b.planTarget(ctx, backups, listed, targetOf(target, current), broken)
	switch {
	case isUnplanned(err):
		return leases.RestorePlan{}, fmt.Errorf("set another target in spec.recovery.restore: no backup leads to %s: %w", target, err)
	case err != nil:
		return leases.RestorePlan{}, fmt.Errorf("the backups that lead to %s cannot be used: %w", target, err)
	}
	answer := leases.RestorePlan{
		Lineage: string(plan.Full.Lineage), Full: plan.Full.Key, Deltas: len(plan.Deltas), Revision: plan.Reach, Bytes: plan.Full.Size, Database: size,
	}
	for _, d := range plan.Deltas {
		answer.Bytes += d.Size
	}
	answer.Notes = append(b.roomNotes(size), plan.Notes...)
	return answer, nil
}

// planTarget plans what leads to the target, and returns the size that the database will have at least. It reads the end of the full
// backup, and uses an older one instead of one that is known to contain more than the target.
func (b *Bootstrapper) planTarget(ctx context.Context, backups store.Store, listed catalog.Catalog, target catalog.Target,
	broken []string) (catalog.Plan, int64, error) {
	for {
		plan, err := planSound(listed, target, broken)
		if err != nil {
			return plan, 0, err
		}
		size, err := restore.CheckPlan(ctx, restore.Config{Store: backups, Plan: plan, EtcdVersion: b.cfg.EtcdVersion})
		if !errors.Is(err, restore.ErrTooNew) {
			return plan, size, err
		}
		target = target.Except(plan.Full.Key)
	}
}

// planSound plans without the broken objects if that leads as far as with them. Otherwise, notes name those in the plan.
func planSound(listed catalog.Catalog, t catalog.Target, broken []string) (catalog.Plan, error) {
	plan, err := listed.Plan(t)
	used := brokenIn(plan, broken)
	if err != nil || len(used) == 0 {
		return plan, err
	}
	for _, key := range broken {
		t = t.Except(key)
	}
	sound, lost := listed.Plan(t)
	if restOf(plan, sound, catalog.Plan{}, lost) == RestEqual {
		return sound, nil
	}
	for _, key := range used {
		plan.Notes = append(plan.Notes, fmt.Sprintf("a verification found %s broken, and no other backup leads as far: the restored values can be wrong", key))
	}
	return plan, nil
}

// isUnplanned reports whether the catalog has no plan for a target.
func isUnplanned(err error) bool {
	return slices.ContainsFunc([]error{catalog.ErrEmpty, catalog.ErrUnknown, catalog.ErrOutside, catalog.ErrGap, catalog.ErrAmbiguous, catalog.ErrTarget},
		func(known error) bool { return errors.Is(err, known) })
}

// roomNotes say whether a database of size bytes can fail to fit. The restore writes only what is alive, so the size is not certain. The
// selected member can be another one than this one.
func (b *Bootstrapper) roomNotes(size int64) (notes []string) {
	if quota := b.cfg.Quota(); size > quota {
		notes = append(notes, fmt.Sprintf("the database in the backups has about %d MiB, and the quota of etcd is %d MiB; if the restore fails, "+
			"increase spec.etcd.quotaBackendBytes",
			size>>20, quota>>20))
	}
	need := size + datadir.LogRoom
	if free, err := volume.Free(b.cfg.VolumePath); err == nil && free < need {
		notes = append(notes, fmt.Sprintf("the volume of member %s has %d MiB free, and the restore can need %d MiB next to the old data; increase spec.storage.size",
			b.cfg.Member, free>>20, need>>20))
	}
	return notes
}
