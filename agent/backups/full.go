package backups

import (
	"context"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// takeFull starts a full backup. If ctx ends, the backup ends too and leaves nothing in the store.
func (s *session) takeFull(ctx context.Context, why string) {
	s.fulling = true
	kind, answer := s.orders.take()
	name := catalog.FullKey
	if kind == kindFinal {
		name = catalog.FinalKey
	}
	began := time.Now()
	changed := s.authDue(began)
	auth := s.authNow() // before the backup: it has what was changed until then
	s.log.InfoContext(ctx, "full backup started", "rule", why, "kind", kind)
	s.group.Go(func() error {
		var result snapshot.Result
		err := loop.Recover(func() (err error) {
			result, err = s.snapshot(ctx, s.client, s.store, name)
			return err
		})
		took := time.Since(began)
		var saved leases.BackupAuth
		if auth != nil {
			saved = leases.BackupAuth{Object: result.Key, Revision: auth.Revision, Enabled: auth.Enabled}
		}
		s.ended <- func(ctx context.Context) { s.fullEnded(ctx, fullResult{result, saved, why, changed, took}, err) }
		answer(Artifact{
			Kind: kind, Key: result.Key, URI: s.orders.uri(result.Key), Revision: result.Revision, Size: result.ObjectSize,
			SHA256: result.SHA256, StorageVersion: result.StorageVersion,
		}, err)
		return nil
	})
}

// snapshot writes a full backup of the agent's own member into a store, with a name of the lineage.
func (s *session) snapshot(
	ctx context.Context, client *clientv3.Client, in store.Store, name func(string, catalog.Lineage, int64, time.Time) string,
) (snapshot.Result, error) {
	defer crash.Around("take-full")()
	return snapshot.Take(ctx, snapshot.Config{
		Client: client, Store: in, Lineage: string(s.self.Lineage), Level: levelOf(s.config.Compression),
		Key: func(revision int64, at time.Time) string { return name(s.config.Prefix, s.self.Lineage, revision, at) },
	})
}

// levelOf converts a compression level of the API to that of zstd. The names are equal.
func levelOf(c config.Compression) zstd.EncoderLevel {
	if known, level := zstd.EncoderLevelFromString(c.Level); known {
		return level
	}
	return zstd.SpeedFastest
}

// fullResult is a full backup that ended: what it has of authentication, the rule that ordered it, whether users or roles had changed, and how
// long it took.
type fullResult struct {
	snapshot.Result
	auth    leases.BackupAuth
	why     string
	changed bool
	took    time.Duration
}

func (s *session) fullEnded(ctx context.Context, r fullResult, err error) {
	s.fulling = false
	if ctx.Err() != nil {
		return
	}
	if err != nil && r.why == ruleAsked {
		// The request gets the error. None is due, so no later one would remove the error from the Lease.
		s.Metrics.failed(kindFull)
		s.log.WarnContext(ctx, "requested full backup failed", "err", err)
		return
	}
	if err != nil {
		s.full.failed(time.Now())
		s.Metrics.failed(kindFull)
		s.reporter.fullFailed(ctx, err)
		return
	}
	s.full.succeeded()
	s.replacing.fulls = append(s.replacing.fulls, r.Key)
	if r.why == ruleFoundBroken { // one that did not come to be is no matter of this member's database
		s.replacing.taken.failed(time.Now())
	}
	s.Metrics.saved(kindFull, r.ObjectSize, r.took)
	s.log.InfoContext(ctx, "full backup saved", "object", r.Key, "revision", r.Revision, "bytes", r.ObjectSize, "took", r.took)
	taken := catalog.Full{Lineage: s.self.Lineage, Key: r.Key, Revision: r.Revision, At: r.Taken, Size: r.ObjectSize, Final: catalog.IsFinal(r.Key)}
	if s.catalogState&unsound != 0 { // no earlier backup leads to this one
		s.since = r.Taken
	}
	s.joined(taken)
	s.authFulls.taken(r.auth, r.changed, time.Now(), r.took, r.Taken.Sub(s.newest.At))
	s.newestBy = s.self.MemberID
	if err := s.know(catalog.History{Fulls: []catalog.Full{taken}}, time.Now()); err != nil {
		s.reporter.fullFailed(ctx, err) // a schedule without a date was refused before
		return
	}
	s.reporter.fullTaken(leases.Backup{
		Revision: r.Revision, Lineage: string(s.self.Lineage), Object: r.Key, Size: r.ObjectSize, SHA256: r.SHA256, Taken: r.Taken, Since: s.since,
		Auth: r.auth,
	}, s.newest, s.catalogState)
	s.prune()
}

// joined returns the state after a new full backup: CatalogComplete if the recorder saves all changes after it. A
// recorder that began later ends, and the next one starts after the full backup.
func (s *session) joined(full catalog.Full) {
	switch {
	case s.catalogState == CatalogComplete && s.recorder != nil:
	case s.recorder != nil && s.catalogState&unsound != 0 && s.recorder.from <= full.Revision+1:
		s.catalogState = CatalogComplete
	default:
		s.catalogState = CatalogUnknown
		s.recorder.end()
	}
}

// prune requests a retention run. It deletes what the new object made superfluous, once the leader's Lease is held.
func (d *Duty) prune() {
	select {
	case d.pruning <- struct{}{}:
	default:
	}
}

// fewBroken is how many full backups in a row may be invalid before the cause is not only this member: the first
// invalid one and its replacement.
const fewBroken = 2

// Replacement is what to do about a newest full backup that was found to be invalid.
type Replacement string

// The replacements. MoveLeader moves leadership to another member, because the database of this one can have a damaged
// page.
const (
	NoReplacement Replacement = "Nothing"
	ReplaceNow    Replacement = "Full"
	MoveLeader    Replacement = "MoveLeader"
	ReplaceLater  Replacement = "Rest"
)

// ReplaceFacts is the complete input of DecideReplacement.
type ReplaceFacts struct {
	// Broken: the newest full backup was restored and found to be invalid, or it was never verified, and it is of a member whose data was
	// found to differ from that of a majority.
	Broken rules.YesNo `fact:"newest full is broken"`
	// Repeated: this leader has already taken a full backup for that reason.
	Repeated rules.YesNo `fact:"this leader replaced one"`
	// Few: at most fewBroken full backups were taken since the last verified one, and this leader has not moved
	// leadership yet.
	Few rules.YesNo `fact:"at most two, leadership not moved"`
	// Rested: the pause since this leader's last replacement is over.
	Rested rules.YesNo `fact:"pause is over"`
}

// replaceRules decide what follows a full backup that was found to be invalid. The first match wins.
var replaceRules = rules.New(NoReplacement, []rules.Row[ReplaceFacts, Replacement]{
	{Name: "not-broken", When: ReplaceFacts{Broken: rules.No}, Verdict: NoReplacement,
		Why: "the newest full backup is not known to be invalid"},
	{Name: "replace", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.No}, Verdict: ReplaceNow,
		Why: "the saved backups do not restore a state that the cluster had"},
	{Name: "move-leader", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.Yes}, Verdict: MoveLeader,
		Why: "two invalid backups in a row can come from a damaged page of this member's database; that of another member can be intact"},
	{Name: "replace-later", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.No, Rested: rules.No}, Verdict: ReplaceLater,
		Why: "more full backups would fill the store and not solve the problem"},
	{Name: "replace-again", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.No, Rested: rules.Yes}, Verdict: ReplaceNow,
		Why: "the cause of the invalid full backups might be gone"},
})

// DecideReplacement says what to do about the newest full backup, and by which rule.
func DecideReplacement(f ReplaceFacts) rules.Decision[Replacement] { return replaceRules.Decide(f) }

// replacing is what a session remembers of invalid full backups.
type replacing struct {
	// taken counts the full backups that this session took as replacements.
	taken attempts
	// fulls are the keys of the lineage's full backups, oldest first: those of the last listing, and those that this
	// session took since then.
	fulls []string
	// handed says that this session requested a transfer of leadership because of invalid full backups.
	handed bool
}

// unverified counts the full backups that are newer than the last verified one. The verdict can come at any time, so it
// is counted again for each decision.
func (r replacing) unverified(verifiedFull string) (n int) {
	for i := len(r.fulls) - 1; i >= 0 && r.fulls[i] != verifiedFull; i-- {
		n++
	}
	return n
}

func keysOf(fulls []catalog.Full) (keys []string) {
	for _, full := range fulls {
		keys = append(keys, full.Key)
	}
	return keys
}

// replacement decides about the newest full backup. A verified full backup resets the state.
func (s *session) replacement(now time.Time) Replacement {
	broken := s.reporter.foundBroken(s.newest.Key) || s.differed(s.newestBy) && s.reporter.notVerified(s.newest.Key)
	if !broken && s.newest.Key != "" && s.reporter.verifiedFull() == s.newest.Key {
		s.replacing.taken.succeeded()
		s.replacing.handed = false
	}
	return DecideReplacement(ReplaceFacts{
		Broken: rules.YesNoOf(broken), Repeated: rules.YesNoOf(s.replacing.taken.failures > 0),
		Few:    rules.YesNoOf(s.replacing.unverified(s.reporter.verifiedFull()) <= fewBroken && !s.replacing.handed),
		Rested: rules.YesNoOf(!s.replacing.taken.resting(now)),
	}).Verdict
}

// differed says whether the data of the member was found to differ from that of a majority. 0 is an unknown member.
func (s *session) differed(memberID uint64) bool {
	return memberID != 0 && s.Differed != nil && slices.Contains(s.Differed(), memberID)
}

// moveLeader moves leadership once because of invalid full backups, if another member can lead.
func (s *session) moveLeader(ctx context.Context) {
	if s.fulling || s.replacement(time.Now()) != MoveLeader {
		return
	}
	s.replacing.handed = true
	s.log.WarnContext(ctx, "leadership transfer requested because full backups of this member are invalid", "full", s.newest.Key, "rule", "move-leader")
	if s.MoveLeader != nil {
		s.MoveLeader(ctx)
	}
}
