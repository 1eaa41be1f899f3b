package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// restore claims an attempt like form, writes its data next to the data directory, writes the identity file and
// renames the data into place.
//
// After a crash, the next start finds one of three states. Before the identity file is written there is no data, and
// the incomplete restore is deleted. Before the rename there is an identity file without data, which has no effect.
// After the rename there is intact data of the record's attempt, which is resumed. Each attempt has its own token, so
// the data of an earlier attempt is never continued.
func (b *Bootstrapper) restore(ctx context.Context, d Decision, o *observation) (*launch.Order, error) {
	a, err := b.claim(ctx, o)
	if a == nil || err != nil {
		return nil, err
	}
	if err := b.clearForRestore(ctx, o); err != nil {
		return nil, err
	}
	inform := func(words string) {
		b.decided(Published{Decision: Decision{Mode: d.Mode, Rule: d.Rule, Reason: words}, Data: Empty.String()})
	}
	result, err := b.fetch(ctx, o, a, inform)
	if err != nil {
		return nil, b.restoreFailed(ctx, o, inform, err)
	}
	b.restores = restores{}
	identityFile := b.identityFile(o, a.record, a.clusterID, a.memberID)
	if identityFile.File = o.storeAnswer.file.Key; identityFile.File == "" {
		identityFile = withFork(identityFile, &leases.Fork{Parent: string(o.storeAnswer.plan.Full.Lineage), Revision: result.Revision, At: time.Now().UTC()})
	}
	crash.Before("identity-file-restored")
	err = datadir.WriteIdentityFile(b.cfg.VolumePath, identityFile)
	crash.After("identity-file-restored")
	if err != nil {
		return nil, err
	}
	if err := datadir.PlaceRestored(b.cfg.VolumePath); err != nil {
		return nil, err
	}
	b.log.InfoContext(ctx, "data restored", "lineage", identityFile.Parent, "file", identityFile.File, "revision", result.Revision, "bumped", result.Bumped,
		"events", result.Events, "deltas", result.Deltas, "bytes", result.Size)
	inform("")
	// There is a log. If it vanishes before etcd opens it, these flags prevent an empty cluster.
	return b.order(identityFile, start{cluster: a.cluster(b.cfg.Member), token: a.token, maxLearners: a.record.MaxLearners})
}

// clearForRestore quarantines data of a lost attempt and deletes an incomplete restore next to it. No etcd ever ran on
// an incomplete restore.
func (b *Bootstrapper) clearForRestore(ctx context.Context, o *observation) error {
	if err := b.quarantine(ctx, o, "attempt-lost"); err != nil {
		return err
	}
	left, err := datadir.Leftovers(b.cfg.VolumePath)
	if len(left) == 0 || err != nil {
		return err
	}
	return datadir.DropLeftovers(b.cfg.VolumePath)
}

// fetch writes the data of the attempt next to the data directory. It raises the revision and marks all earlier
// revisions as compacted, because clients of the restored cluster can have seen later revisions. It drops NOSPACE
// alarms.
func (b *Bootstrapper) fetch(ctx context.Context, o *observation, a *attempt, inform func(string)) (restore.Result, error) {
	plan, file := o.storeAnswer.plan, o.storeAnswer.file
	b.log.InfoContext(ctx, "restore started", "full", plan.Full.Key, "file", file.Key, "deltas", len(plan.Deltas), "reach", plan.Reach, "notes", plan.Notes)
	if len(o.storeAnswer.around) > 0 {
		b.log.WarnContext(ctx, "damaged backups skipped", "objects", o.storeAnswer.around, "full", plan.Full.Key)
	}
	inform = reportAround(o.storeAnswer.around, inform)
	inform("restoring " + cmp.Or(file.Key, plan.Full.Key))
	c := restore.Config{
		Store: o.storeAnswer.source, Plan: plan, File: file, DataDir: volume.RestoredPath(b.cfg.VolumePath),
		Name: b.cfg.Member, PeerURLs: []string{a.peerURL}, InitialCluster: a.cluster(b.cfg.Member), Token: a.token,
		EtcdVersion: b.cfg.EtcdVersion, Quota: b.cfg.Quota(), Auth: b.authData(),
		Bump: restore.DefaultBump, ClearAlarms: true, Progress: b.progress(ctx, inform),
	}
	crash.Before("restore-data")
	result, err := restore.Run(ctx, c)
	crash.After("restore-data")
	switch {
	case err != nil:
		return result, err
	case result.ClusterID != a.clusterID || result.MemberID != a.memberID:
		return result, fmt.Errorf("restore: the data belongs to member %x in cluster %x, but the claim names %x in %x",
			result.MemberID, result.ClusterID, a.memberID, a.clusterID)
	}
	return result, nil
}

// authData says what happens with a backup in which authentication is on. With spec.auth, the agents log in with their certificate,
// and then make the users and roles equal to the spec.
func (b *Bootstrapper) authData() restore.AuthData {
	r, err := config.ReadReloadable(b.cfg.ConfigPath)
	if err == nil && r.Auth != nil && r.Auth.Enabled && b.cfg.ClientTLS == config.TLSMutual {
		return restore.AdmitAgent
	}
	return restore.RefuseAuth
}

// RuleAuthRequired is the rule in the member Lease while a backup in which authentication is on cannot be restored, because the
// spec does not require authentication. It replaces the rule for any other backup that cannot be used.
const RuleAuthRequired = "auth-required-not-configured"

// restoreFailed reports the error and waits: each attempt costs a claim in the record, and requests to the store.
func (b *Bootstrapper) restoreFailed(ctx context.Context, o *observation, inform func(string), err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.restores.failed(o.storeAnswer.plan, o.storeAnswer.file, err, time.Now())
	b.storeAnswer = storeAnswer{}
	if errors.Is(err, restore.ErrTooNew) {
		return err // an older full is planned with at once
	}
	inform(err.Error())
	loop.Sleep(ctx, doubling(b.restores.failures-1))
	return err
}

// spoiledFor is how long a plan with unusable objects is not tried again. In the meantime, a user can replace a broken
// object with a valid copy under its name.
const spoiledFor = 5 * time.Minute

// restores has the results of the attempts to restore that this process made.
type restores struct {
	// failures in a row.
	failures int
	// spoiled is why plan, or file, could not be restored at the time at.
	spoiled error
	plan    catalog.Plan
	file    store.Object
	at      time.Time
	// without are full backups that contain more than the target.
	without []string
	// damaged are the objects that an attempt found damaged, by key, with the error. The map only grows until all
	// objects are checked again, so each object causes one attempt with another plan.
	damaged map[string]error
}

// failed stores the result of an attempt.
func (r *restores) failed(plan catalog.Plan, file store.Object, err error, now time.Time) {
	r.failures++
	switch {
	case errors.Is(err, restore.ErrTooNew):
		r.without = append(r.without, plan.Full.Key)
	case isUnusable(err):
		r.spoiled, r.plan, r.file, r.at = err, plan, file, now
		if key, damaged := damagedIn(plan, err); damaged {
			if r.damaged == nil {
				r.damaged = map[string]error{}
			}
			r.damaged[key] = err
		}
	}
}

// recall changes the result to unusable if its plan failed recently.
func (r *restores) recall(answer *storeAnswer, auth restore.AuthData) {
	if r.spoiled != nil && (!errors.Is(r.spoiled, restore.ErrAuth) || auth == restore.RefuseAuth) && time.Since(r.at) < spoiledFor &&
		reflect.DeepEqual(r.plan, answer.plan) && r.file == answer.file {
		*answer = answer.because(BackupUnusable, r.spoiled)
	}
}

// others returns the full backups that a plan must not use, except one that is requested by name.
func (r *restores) others(name string) []string {
	return slices.DeleteFunc(slices.Clone(r.without), func(key string) bool { return name != "" && strings.HasSuffix(key, name) })
}

// isUnusable reports whether the same attempt would fail in the same way: because of the objects and not of the access
// to them, or because of too little disk space, which only shows when all objects are read. Objects that a newer druid
// wrote are unusable here.
func isUnusable(err error) bool {
	for _, known := range []error{
		restore.ErrSwapped, restore.ErrShort, restore.ErrFork, restore.ErrVersion, restore.ErrQuota, restore.ErrAuth, restore.ErrSpaceAlongside,
		store.ErrDamaged, store.ErrNewer,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, full := errors.AsType[*snapshot.DamagedError](err)
	_, file := errors.AsType[*snapshot.FileError](err)
	_, changes := errors.AsType[*delta.DamagedError](err)
	_, gap := errors.AsType[*restore.GapError](err)
	return full || file || changes || gap
}

// progressEvery is how often progress is reported. Each report costs a patch of the member Lease.
const progressEvery = 5 * time.Second

// progress reports a restore in the Lease and in the log.
func (b *Bootstrapper) progress(ctx context.Context, inform func(string)) func(restore.Progress) {
	reported, pace := time.Now(), restore.Pace{}
	return func(at restore.Progress) {
		b.attemptAt = at
		now := time.Now()
		speed := pace.Observe(at, now)
		if now.Sub(reported) < progressEvery {
			return
		}
		reported = now
		inform("restoring " + speed.Words(at))
		b.log.InfoContext(ctx, "restoring", "phase", string(at.Phase), "bytes", at.Bytes, "totalBytes", at.TotalBytes, "deltas", at.Deltas,
			"totalDeltas", at.TotalDeltas, "events", at.Events, "revision", at.Revision, "perSecond", int64(speed.PerSecond), "left", leftOf(speed))
	}
}

func leftOf(s restore.Speed) string {
	if !s.Known {
		return "unknown"
	}
	return s.Left.String()
}
