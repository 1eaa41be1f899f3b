package backups

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/verify"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	// verificationLook is the pause between two checks whether a verification is due. Schedules have a resolution of
	// minutes.
	verificationLook = time.Minute
	// verificationPause is the pause after a verification without a result: a full disk can have space again, or etcd
	// an answer. If the store did not respond, the pause ends when it does.
	verificationPause = time.Hour
	// verificationRate limits the reads from the store in bytes per second, so that the traffic of the members has
	// priority. 8 GiB take nine minutes.
	verificationRate = 16 << 20
	// verificationReserve is the part of the scratch directory's file system that stays free, in percent. The kubelet
	// evicts Pods from a node with less than 10.
	verificationReserve = 12
	// hashTimeout bounds a member's hash of its database.
	hashTimeout = 2 * time.Minute
)

// VerifyBackups verifies the backups whenever that is due and it is this agent's turn, until ctx ends. It restores the
// newest backups into the scratch directory, compares them, and writes the result to the Lease of full backups.
func (d *Duty) VerifyBackups(ctx context.Context) error {
	if err := verify.Clean(d.Scratch); err != nil {
		d.Log.WarnContext(ctx, "scratch directory not cleaned", "err", err)
	}
	var reported loop.Change[Decision]
	for ctx.Err() == nil {
		c, changed := d.configured()
		self, known := d.Self()
		if c != nil && known && c.Verify.Schedule != "" {
			facts, v := d.observeVerification(ctx, *c, self, time.Now())
			if facts.Resting == rules.Yes && d.away && d.lists(ctx, *c) {
				d.away, facts.Resting = false, rules.No
			}
			decision := DecideVerification(facts)
			if reported.To(decision) && ctx.Err() == nil {
				d.Metrics.decisions.WithLabelValues(verificationTable, decision.Rule).Inc()
				d.Log.InfoContext(ctx, "verification decision changed", "verdict", string(decision.Verdict), "rule", decision.Rule)
			}
			if decision.Verdict == VerifyBackups {
				d.verifyBackups(ctx, *c, self, v)
			}
		}
		await(ctx, changed, d.verificationLook)
	}
	return nil
}

// observeVerification gathers the facts. Only the agent whose turn it is reads the Lease.
func (d *Duty) observeVerification(ctx context.Context, c config.Backup, self Identity, now time.Time) (VerificationFacts, leases.Verification) {
	f := VerificationFacts{Turn: d.turn(ctx, self), Reported: ReportedUnknown, Resting: rules.No, Newer: rules.No, Due: rules.No}
	if f.Turn != TurnOurs {
		return f, leases.Verification{}
	}
	b, v, err := d.Leases.Full(ctx)
	if err != nil {
		return f, v
	}
	f.Reported = reportedBy(b, v, string(self.Lineage))
	f.Resting = rules.YesNoOf(v.Tried.After(v.At) && !v.Tried.After(now) && now.Before(v.Tried.Add(verificationPause)))
	f.Newer = rules.YesNoOf(b.Object != v.Full)
	f.Due = rules.YesNoOf(verificationDue(c.Verify, v.At, now, 1))
	return f, v
}

// verificationDue reports whether the schedule has fired at least times times since a moment. A moment in the future
// comes from a clock that was ahead.
func verificationDue(c config.Verify, since, now time.Time, times int) bool {
	schedule, err := config.ParseSchedule(c.Schedule, c.TimeZone)
	if err != nil || since.After(now) {
		return err == nil
	}
	for range times {
		next, comes := schedule.Next(since)
		if !comes || next.After(now) {
			return false
		}
		since = next
	}
	return true
}

// verifyBackups restores, compares and reports.
func (d *Duty) verifyBackups(ctx context.Context, c config.Backup, self Identity, before leases.Verification) {
	d.Log.InfoContext(ctx, "verification started")
	r := d.verify(ctx, c, self)
	if ctx.Err() != nil {
		return
	}
	d.Metrics.verifications.WithLabelValues(string(r.Verdict)).Inc()
	d.Log.InfoContext(ctx, "verification ended", "found", string(r.Verdict), "reason", r.Reason, "object", r.Object,
		"full", r.Full, "revision", r.Revision, "keys", r.Keys, "compared", r.Compared, "notCompared", r.NotCompared, "took", r.Took)
	d.away = r.Verdict == verify.Unknown && !d.lists(ctx, c)
	latest := before
	if _, v, err := d.Leases.Full(ctx); err == nil {
		latest = v
	}
	now := time.Now()
	v := found(latest, r, self, now, verificationDue(c.Verify, latest.At, now, 2))
	if brokenSince(before, latest) && latest.Full != r.Full {
		latest.VerifiedFull, latest.KnownBroken, latest.Tried = v.VerifiedFull, v.KnownBroken, v.Tried
		v = latest
	}
	v.KnownBroken = d.thereStill(ctx, c, v.KnownBroken)
	if err := d.Leases.ReportVerification(ctx, v); err != nil && ctx.Err() == nil {
		d.Log.WarnContext(ctx, "result of verification not written to the Lease", "err", err)
	}
}

// brokenSince reports whether another agent found a backup broken since the Lease was read. The agents of two members can verify at the
// same time: the leader's agent verifies a requested backup while a follower's agent verifies by schedule.
func brokenSince(before, latest leases.Verification) bool {
	return latest.Verdict == leases.VerdictBroken && (before.Full != latest.Full || !before.At.Equal(latest.At))
}

// found returns the new content of the Lease. A result of Unknown keeps the earlier verdict until that is two
// schedules old. A verdict of Broken stays.
func found(before leases.Verification, r verify.Result, self Identity, now time.Time, old bool) leases.Verification {
	if before.Lineage != string(self.Lineage) {
		before = leases.Verification{VerifiedFull: before.VerifiedFull, KnownBroken: before.KnownBroken}
	}
	known := slices.Clone(before.KnownBroken)
	v := leases.Verification{At: now, Full: r.Full, Lineage: string(self.Lineage), VerifiedFull: before.VerifiedFull, KnownBroken: known,
		Trouble: r.Reason, Tried: now}
	switch r.Verdict {
	case verify.Verified:
		v.Verdict, v.Revision, v.VerifiedFull, v.Trouble = leases.VerdictVerified, r.Checkpoint.Revision, r.Full, ""
		v.KnownBroken = slices.DeleteFunc(known, func(key string) bool { return key == r.Full })
		return v
	case verify.Broken:
		v.Verdict, v.Broken = leases.VerdictBroken, r.Object
		// One of several suspects can be intact, and so is the full backup that was verified.
		if len(r.Suspects) <= 1 && r.Object != before.VerifiedFull {
			v.KnownBroken = v.AllBroken()
		}
		return v
	case verify.Unknown:
	}
	v = before
	v.Lineage, v.Tried, v.KnownBroken = string(self.Lineage), now, known
	if v.Verdict == leases.VerdictVerified && old {
		v.Verdict = ""
	}
	if v.Verdict != leases.VerdictBroken {
		v.Trouble = r.Reason
	}
	return v
}

// thereStill removes the objects that the store no longer has. It keeps all of them if the listing fails.
func (d *Duty) thereStill(ctx context.Context, c config.Backup, keys []string) []string {
	if len(keys) == 0 {
		return nil
	}
	_, listed, err := d.listed(ctx, c)
	if err != nil {
		return keys
	}
	return slices.DeleteFunc(keys, func(key string) bool { return !listed.Holds(key) })
}

// verify verifies the newest backups.
func (d *Duty) verify(ctx context.Context, c config.Backup, self Identity) verify.Result {
	return d.verifyTarget(ctx, c, self, catalog.Target{Lineage: self.Lineage})
}

// verifyTarget opens the store again, because verifications are rare and the configuration can change in between. Only
// one verification runs at a time, because each needs space for a complete database.
func (d *Duty) verifyTarget(ctx context.Context, c config.Backup, self Identity, target catalog.Target) verify.Result {
	unknown := func(err error) verify.Result { return verify.Result{Verdict: verify.Unknown, Reason: store.Brief(err)} }
	select {
	case d.verifying <- struct{}{}:
		defer func() { <-d.verifying }()
	case <-ctx.Done(): // a former leader must not keep the leader Lease until a verification ends
		return unknown(fmt.Errorf("another verification is in progress: %w", ctx.Err()))
	}
	opened, listed, err := d.listed(ctx, c)
	if err != nil {
		return unknown(err)
	}
	trusted, err := d.trusted(ctx, self)
	if err != nil {
		return unknown(fmt.Errorf("the backups cannot be compared with the members: %w", err))
	}
	r := verify.Result{}
	err = loop.Recover(func() error {
		r = verify.Run(ctx, verify.Config{
			Store: opened, Catalog: listed, Target: target, Scratch: d.Scratch, Rate: verificationRate, Reserve: d.verificationReserve, Trusted: trusted,
			Ask: func(ctx context.Context, revision int64) (delta.Checkpoint, error) {
				return d.hash(ctx, self, revision)
			},
		})
		return nil
	})
	if err != nil {
		return unknown(err)
	}
	r.Full = reportedOf(r, listed, self.Lineage)
	return r
}

// trusted says the hashes of which members count: those whose data is that of a majority of all voters. A member whose data differs
// reports the hash of its own error. The hashes of members that compact at that moment cannot be compared, so trusted tries again. If the data
// cannot be compared, nothing is known to differ, and all members are trusted.
func (d *Duty) trusted(ctx context.Context, self Identity) (func(memberID uint64) bool, error) {
	if d.Majority == nil {
		return nil, nil
	}
	for try := 1; ; try++ {
		ids, differ, err := d.Majority(ctx, self.ClusterID)
		switch {
		case err == nil:
			return func(memberID uint64) bool { return slices.Contains(ids, memberID) }, nil
		case ctx.Err() != nil, differ:
			return nil, err
		case try == verifyTries:
			d.Log.WarnContext(ctx, "members not compared before a verification", "err", err)
			return nil, nil
		}
		await(ctx, nil, d.verifyPause)
	}
}

// reportedOf returns the full backup of a lineage to which a result applies. If nothing could be planned, it is the
// newest one, so that a new full backup follows.
func reportedOf(r verify.Result, c catalog.Catalog, l catalog.Lineage) string {
	h, _ := c.History(l)
	if n := len(h.Fulls); n > 0 && r.Full == "" {
		return h.Fulls[n-1].Key
	}
	return r.Full
}

// lists says whether the store responds now.
func (d *Duty) lists(ctx context.Context, c config.Backup) bool {
	_, _, err := d.listed(ctx, c)
	return err == nil
}

// listed opens the store and lists it.
func (d *Duty) listed(ctx context.Context, c config.Backup) (store.Store, catalog.Catalog, error) {
	parsed, err := store.ParseConfig(c.Store)
	if err != nil {
		return nil, catalog.Catalog{}, fmt.Errorf("backup store: %w", err)
	}
	opened, err := d.Open(ctx, parsed)
	if err != nil {
		return nil, catalog.Catalog{}, fmt.Errorf("backup store: %w", err)
	}
	listed, _, err := catalogOf(ctx, opened, c.Prefix) // of our own lineage, whose record a verification does not need
	return opened, listed, err
}

// hash asks the agent's own member, for backups without a checkpoint: those of a cluster without writes, or right
// after a full backup.
func (d *Duty) hash(ctx context.Context, self Identity, revision int64) (point delta.Checkpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, hashTimeout)
	defer cancel()
	client, done, err := d.Dial(ctx, d.Local)
	if err != nil {
		return delta.Checkpoint{}, err
	}
	defer func() { done(err) }()
	// A follower can be behind the revision that the leader has saved. HashKV does not wait, but the read does.
	if err := membership.Linearizable(ctx, client); err != nil {
		return delta.Checkpoint{}, err
	}
	return hashOf(ctx, client, d.Local, self, revision)
}

func hashOf(ctx context.Context, client *clientv3.Client, endpoint string, self Identity, revision int64) (delta.Checkpoint, error) {
	r, err := client.HashKV(ctx, endpoint, revision)
	if err != nil {
		return delta.Checkpoint{}, fmt.Errorf("hash of revision %d: %w", revision, err)
	}
	if id := r.Header.GetClusterId(); id != self.ClusterID {
		return delta.Checkpoint{}, fmt.Errorf("%w: %s, want %s", errOtherCluster, leases.FormatID(id), leases.FormatID(self.ClusterID))
	}
	// etcd 3.5 does not report which revision it hashed.
	if r.HashRevision != 0 && r.HashRevision != revision {
		return delta.Checkpoint{}, fmt.Errorf("etcd returned the hash of revision %d, want revision %d", r.HashRevision, revision)
	}
	return delta.Checkpoint{
		Revision: revision, CompactRevision: r.CompactRevision, HashKV: r.Hash, MemberID: r.Header.GetMemberId(),
		Alongside: delta.AskAlongside(ctx, client.ActiveConnection(), revision),
	}, nil
}
