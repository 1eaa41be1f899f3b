package start

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/survivor"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// lineageTimeout bounds the write of the lineage to the backup store during a recovery, which does not depend on the store. The
// cluster record and the identity files have the parent and the fork too. So the agent of each later leader writes them before
// its first backup.
const lineageTimeout = 30 * time.Second

// regroup is a claimed recovery order.
type regroup struct {
	order   leases.Recovery
	attempt leases.RecoveryAttempt
	// record is as it will be after the recovery.
	record              leases.Record
	token, peerURL      string
	memberID, clusterID uint64
}

// recover forms the raft group again. It claims the order with a token of its own, builds the data next to the old data, and
// records the raft group as Formed. After that, the next decision puts the data in place. It never continues what an
// earlier attempt built, because the token of that attempt can be known to others.
func (b *Bootstrapper) recover(ctx context.Context, d Decision, o *observation) error {
	inform := func(words string) {
		b.decided(Published{Decision: Decision{Mode: d.Mode, Rule: d.Rule, Reason: words}, Data: o.dataText()})
	}
	if b.awaitsRelease(ctx, o.record.record.Order(), inform) {
		return nil
	}
	g, err := b.claimOrder(ctx, o)
	if g == nil || err != nil {
		return err
	}
	b.attemptAt = restore.Progress{}
	done, fork, err := b.build(ctx, o, g, func(words string) {
		b.reportFurther(o)
		inform(words)
	})
	b.forgetVolume()
	b.attempted(ctx, o, &g.order, err)
	if err != nil {
		b.rebuilds++
		inform(err.Error())
		if g.order.Restores() && b.failureIn(g.order.Name()) != "" {
			return err
		}
		loop.Sleep(ctx, doubling(b.rebuilds-1)) // each attempt costs a write of the record
		return err
	}
	b.rebuilds = 0
	if err = b.reform(ctx, g, done, fork); err != nil {
		inform(err.Error())
	}
	return err
}

// claimOrder writes the attempt to the record. It returns nil after a conflicting write: the agent must then observe again.
func (b *Bootstrapper) claimOrder(ctx context.Context, o *observation) (*regroup, error) {
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	g := &regroup{order: *o.record.record.Order(), record: o.record.record, peerURL: b.peerURL(b.cfg.Member)}
	g.record.Phase, g.record.Epoch, g.record.Nonce = leases.PhaseFormed, g.order.Epoch, nonce
	g.record.Lineage = leases.LineageOf(g.order.Epoch, nonce)
	g.token = g.record.Token(b.cfg.Namespace, b.cfg.Cluster, b.cfg.ClusterUID)
	if g.memberID, g.clusterID, err = membership.ExpectedIDs(b.cfg.Member, g.peerURL, g.token); err != nil {
		return nil, err
	}
	g.attempt = leases.RecoveryAttempt{Order: g.order.Name(), Nonce: nonce, PodUID: b.cfg.PodUID, ClusterID: leases.FormatID(g.clusterID)}
	claimed, err := o.record.record.Claimed(g.attempt)
	if err != nil {
		return nil, err
	}
	crash.Before("claim-recovery")
	_, err = b.store.UpdateRecord(ctx, o.record.version, claimed)
	crash.After("claim-recovery")
	if errors.Is(err, leases.ErrConflict) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("claim recovery order %s: %w", g.order.Name(), err)
	}
	b.log.InfoContext(ctx, "recovery order claimed", "order", g.order.Name(), "mode", string(g.order.Mode), "clusterID", g.attempt.ClusterID)
	return g, nil
}

// build makes the data of the raft group and its identity file, next to the data directory.
func (b *Bootstrapper) build(ctx context.Context, o *observation, g *regroup, inform func(string)) (done leases.Recovered, fork leases.Fork, err error) {
	if left, err := datadir.Leftovers(b.cfg.VolumePath); err != nil || len(left) > 0 {
		if err = errors.Join(err, datadir.DropLeftovers(b.cfg.VolumePath)); err != nil {
			return done, fork, err
		}
	}
	source, parent := b.fromDisk, o.volume.identityFile.Lineage
	if g.order.Mode != leases.RecoverSurvivor {
		source, parent = b.fromBackup, g.order.Lineage
	}
	result, err := source(ctx, o, g, inform)
	if err != nil {
		return done, fork, err
	}
	if result.ClusterID != g.clusterID || result.MemberID != g.memberID {
		return done, fork, fmt.Errorf("recover: the data belongs to member %x in cluster %x, but the disk report names %x in %x",
			result.MemberID, result.ClusterID, g.memberID, g.clusterID)
	}
	fork = leases.Fork{Parent: parent, Revision: result.Revision, At: time.Now().UTC()}
	g.record.Fork = &fork
	limit, err := b.limitAtBootstrap()
	if err != nil {
		return done, fork, err
	}
	built := IdentityFileOf(&b.cfg, Limited(g.record, o.volume.identityFile, limit), o.own.member, g.clusterID, g.memberID)
	crash.Before("identity-file-built")
	err = datadir.WriteBuilt(b.cfg.VolumePath, built)
	crash.After("identity-file-built")
	return leases.Recovered{Epoch: g.order.Epoch, Mode: g.order.Mode, Member: b.cfg.Member, Revision: result.Bumped}, fork, err
}

// fromDisk builds the data from the database and the complete log of this volume. The order names what the volume holds, so
// a damaged log was shown in the plan.
func (b *Bootstrapper) fromDisk(ctx context.Context, o *observation, g *regroup, inform func(string)) (restore.Result, error) {
	crash.Before("build-survivor")
	result, err := survivor.Run(ctx, survivor.Config{
		Volume: b.cfg.VolumePath, EtcdVersion: b.cfg.EtcdVersion, Name: b.cfg.Member, PeerURL: g.peerURL, Token: g.token, Seen: g.order.Known,
		Damaged: o.report.State == leases.DiskCorrupt, MinLeaseTTL: b.minLeaseTTL(), Progress: b.progress(ctx, inform),
	})
	crash.After("build-survivor")
	if err == nil {
		b.log.InfoContext(ctx, "data of the recovered cluster built", "entries", result.Applied, "last", result.Last, "revision", result.Revision,
			"bumped", result.Bumped, "damage", result.Damage)
	}
	return result.Result, err
}

// minLeaseTTL is the shortest time to live of an etcd lease: one and a half election timeouts, in whole seconds.
func (b *Bootstrapper) minLeaseTTL() int64 {
	return int64(math.Ceil((b.electionTimeout() * 3 / 2).Seconds()))
}

// errNoBackups says that the configuration has no backup store.
var errNoBackups = errors.New("the configuration file does not name a backup store; set spec.backup")

// fromBackup builds the data from what the order names in the backup store: the newest revision of a lineage, or the target of a
// restore in place.
func (b *Bootstrapper) fromBackup(ctx context.Context, o *observation, g *regroup, inform func(string)) (restore.Result, error) {
	reloadable, err := config.ReadReloadable(b.cfg.ConfigPath)
	if err != nil {
		return restore.Result{}, err
	}
	if reloadable.Backup == nil {
		return restore.Result{}, errNoBackups
	}
	patient, cancel := store.Patient(ctx, store.MaxWait)
	defer cancel()
	backups, listed, err := b.catalog(patient, reloadable.Backup.Store, reloadable.Backup.Prefix)
	if err != nil {
		return restore.Result{}, err
	}
	broken, err := b.knownBroken(ctx)
	if err != nil {
		return restore.Result{}, err
	}
	return b.runOrdered(ctx, backups, listed, o.record.record.Lineage, g, broken, inform)
}

// reform records the raft group as Formed. This is the commit point: no etcd of the new raft group ran before, and the old
// one never continues after.
func (b *Bootstrapper) reform(ctx context.Context, g *regroup, done leases.Recovered, fork leases.Fork) error {
	for ctx.Err() == nil {
		r := b.readRecord(ctx)
		if r.err != nil {
			return fmt.Errorf("record the recovered cluster as Formed: %w", r.err)
		}
		formed, err := r.record.Reformed(g.attempt, done, fork)
		if errors.Is(err, leases.ErrOrder) {
			b.log.InfoContext(ctx, "recovery order replaced or released before the cluster was formed", "order", g.order.Name())
			return nil
		}
		if err != nil {
			return err
		}
		crash.Before("record-recovered")
		_, err = b.store.UpdateRecord(ctx, r.version, formed)
		crash.After("record-recovered")
		if errors.Is(err, leases.ErrConflict) {
			continue // look again: only an order that still stands is carried out
		}
		if err != nil {
			return fmt.Errorf("record the recovered cluster as Formed: %w", err)
		}
		b.log.InfoContext(ctx, "cluster formed again", "order", g.order.Name(), "clusterID", g.attempt.ClusterID, "revision", done.Revision)
		return nil
	}
	return context.Cause(ctx)
}

// place quarantines the old data and puts the built data in place. After a crash, the built data still is next to the data
// directory, and place is repeated. It writes the lineage to the backup store before etcd starts, so before clients write.
func (b *Bootstrapper) place(ctx context.Context, o *observation) error {
	built := o.volume.built
	lineage, cancel := context.WithTimeout(ctx, lineageTimeout)
	defer cancel()
	if err := b.recordParent(lineage, built); err != nil {
		b.log.WarnContext(ctx, "lineage of the recovered cluster not written", "err", err)
	}
	if err := b.quarantineAs(ctx, o, replacedContent(b.cfg.Member, o)); err != nil {
		return err
	}
	defer b.forgetVolume()
	crash.Before("identity-file-recovered")
	err := datadir.WriteIdentityFile(b.cfg.VolumePath, built)
	crash.After("identity-file-recovered")
	if err != nil {
		return err
	}
	return datadir.PlaceRestored(b.cfg.VolumePath)
}

// replacedContent describes the data that a recovery replaces on the volume of the member called name. The raft group has all of it only
// if the record says that this member formed the raft group from its disk, and if the data is intact. A record that druid made again does
// not say that. What follows the damage of a log is not in the raft group.
func replacedContent(name string, o *observation) datadir.Content {
	done, built := o.record.record.Recovered, o.volume.built
	if done == nil || done.Mode != leases.RecoverSurvivor || done.Member != name || done.Epoch != built.Epoch {
		return datadir.ContentOf(datadir.ReasonSuperseded, o.volume.report)
	}
	content := datadir.ContentOf(datadir.ReasonSurvivor, o.volume.report)
	if content.Intact {
		content.FormedInto = built.Lineage
	}
	return content
}
