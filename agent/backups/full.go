package backups

import (
	"context"
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

// takeFull starts a full. It ends with ctx, and nothing of it is in the store then.
func (s *session) takeFull(ctx context.Context, why string) {
	s.fulling = true
	kind, answer := s.orders.take()
	name := catalog.FullKey
	if kind == kindFinal {
		name = catalog.FinalKey
	}
	began := time.Now()
	s.log.InfoContext(ctx, "full began", "rule", why, "kind", kind)
	s.group.Go(func() error {
		var result snapshot.Result
		err := loop.Recover(func() (err error) {
			result, err = s.snapshot(ctx, s.client, s.store, name)
			return err
		})
		took := time.Since(began)
		s.ended <- func(ctx context.Context) { s.fullEnded(ctx, why, result, took, err) }
		answer(Artifact{
			Kind: kind, Key: result.Key, URI: s.orders.uri(result.Key), Revision: result.Revision, Size: result.ObjectSize,
			SHA256: result.SHA256, StorageVersion: result.StorageVersion,
		}, err)
		return nil
	})
}

// snapshot puts a full of our member into a store, under a name of the lineage's.
func (s *session) snapshot(
	ctx context.Context, client *clientv3.Client, in store.Store, name func(string, catalog.Lineage, int64, time.Time) string,
) (snapshot.Result, error) {
	defer crash.Around("take-full")()
	return snapshot.Take(ctx, snapshot.Config{
		Client: client, Store: in, Lineage: string(s.self.Lineage), Level: levelOf(s.config.Compression),
		Key: func(revision int64, at time.Time) string { return name(s.config.Prefix, s.self.Lineage, revision, at) },
	})
}

// levelOf is what zstd calls a level: the same words.
func levelOf(c config.Compression) zstd.EncoderLevel {
	if known, level := zstd.EncoderLevelFromString(c.Level); known {
		return level
	}
	return zstd.SpeedFastest
}

func (s *session) fullEnded(ctx context.Context, why string, r snapshot.Result, took time.Duration, err error) {
	s.fulling = false
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.full.failed(time.Now())
		s.Metrics.failed(kindFull)
		s.inform.fullFailed(ctx, err)
		return
	}
	s.full.succeeded()
	s.replacing.fulls = append(s.replacing.fulls, r.Key)
	if why == ruleDisproved { // one that did not come to be is no matter of this member's database
		s.replacing.taken.failed(time.Now())
	}
	s.Metrics.saved(kindFull, r.ObjectSize, took)
	s.log.InfoContext(ctx, "full taken", "object", r.Key, "revision", r.Revision, "bytes", r.ObjectSize, "took", took)
	taken := catalog.Full{Lineage: s.self.Lineage, Key: r.Key, Revision: r.Revision, At: r.Taken, Size: r.ObjectSize, Final: catalog.IsFinal(r.Key)}
	s.joined(taken)
	if err := s.know(catalog.History{Fulls: []catalog.Full{taken}}, time.Now()); err != nil {
		s.inform.fullFailed(ctx, err) // a schedule without a date was refused before
		return
	}
	s.inform.fullTaken(leases.Backup{
		Revision: r.Revision, Lineage: string(s.self.Lineage), Object: r.Key, Size: r.ObjectSize, SHA256: r.SHA256, Taken: r.Taken,
	}, s.newest, s.catalogState)
	s.prune()
}

// joined says what a new full makes of the chain: whole, where the recorder saves what follows it. A recorder that began
// later ends, and the next one goes on where the full left off.
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

// prune lets go what the new object made superfluous, once the leader's Lease is held.
func (d *Duty) prune() {
	select {
	case d.pruning <- struct{}{}:
	default:
	}
}

// fewBroken is how many fulls may be found broken in a row before it is no matter of this member alone: the one that was broken
// first, and the one that replaced it.
const fewBroken = 2

// Replacement is what is done about a newest full that was found to be broken.
type Replacement string

// The replacements. HandOn moves leadership to another member: the database of this one may have a damaged page.
const (
	NoReplacement Replacement = "Nothing"
	ReplaceNow    Replacement = "Full"
	HandOn        Replacement = "HandOn"
	ReplaceLater  Replacement = "Rest"
)

// ReplaceFacts are all that DecideReplacement may look at.
type ReplaceFacts struct {
	// Broken: the newest full was restored, and found to be broken.
	Broken rules.YesNo `fact:"newest full is broken"`
	// Repeated: this leader took a full for that already.
	Repeated rules.YesNo `fact:"this leader replaced one"`
	// Few: no more than fewBroken fulls were taken since the last one that was proven, and this leader has not handed on yet.
	Few rules.YesNo `fact:"two at most, not handed on"`
	// Rested: the pause since this leader's last such full is over.
	Rested rules.YesNo `fact:"pause is over"`
}

// replaceRules say what follows a full that was found to be broken. First match wins.
var replaceRules = rules.New(NoReplacement, []rules.Row[ReplaceFacts, Replacement]{
	{Name: "sound", When: ReplaceFacts{Broken: rules.No}, Verdict: NoReplacement,
		Why: "the newest full is not known to be broken"},
	{Name: "replace", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.No}, Verdict: ReplaceNow,
		Why: "what is saved leads to no state that the cluster had"},
	{Name: "hand-on", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.Yes}, Verdict: HandOn,
		Why: "two in a row may come from a damaged page of this member's database; another member's may be whole"},
	{Name: "replace-later", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.No, Rested: rules.No}, Verdict: ReplaceLater,
		Why: "fulls one after the other would fill the store and cure nothing"},
	{Name: "replace-again", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.No, Rested: rules.Yes}, Verdict: ReplaceNow,
		Why: "what made the fulls before it broken may have passed"},
})

// DecideReplacement says what to do about the newest full, and by which rule.
func DecideReplacement(f ReplaceFacts) rules.Decision[Replacement] { return replaceRules.Decide(f) }

// replacing is what a session remembers of the fulls that were found to be broken.
type replacing struct {
	// taken are the fulls that this session took for that.
	taken attempts
	// fulls are the keys of the lineage's full backups, oldest first: those of the last listing, and those that this session took since.
	fulls []string
	// handed says that leadership was to move for broken full backups.
	handed bool
}

// unverified counts the full backups that are newer than the last verified one. The verdict can come at any time, so it is counted again for
// each decision.
func (r replacing) unverified(isVerified string) (n int) {
	for i := len(r.fulls) - 1; i >= 0 && r.fulls[i] != isVerified; i-- {
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

// replacement of the newest full. A full that is proven ends what was remembered.
func (s *session) replacement(now time.Time) Replacement {
	broken := s.inform.disproved(s.newest.Key)
	if !broken && s.newest.Key != "" && s.inform.isVerified() == s.newest.Key {
		s.replacing.taken.succeeded()
		s.replacing.handed = false
	}
	return DecideReplacement(ReplaceFacts{
		Broken: rules.YesNoOf(broken), Repeated: rules.YesNoOf(s.replacing.taken.failures > 0),
		Few:    rules.YesNoOf(s.replacing.unverified(s.inform.isVerified()) <= fewBroken && !s.replacing.handed),
		Rested: rules.YesNoOf(!s.replacing.taken.resting(now)),
	}).Verdict
}

// handOn moves leadership once for fulls that are found to be broken, where there is another member to lead.
func (s *session) handOn(ctx context.Context) {
	if s.fulling || s.replacement(time.Now()) != HandOn {
		return
	}
	s.replacing.handed = true
	s.log.WarnContext(ctx, "leadership is to move: fulls of this member were found to be broken", "full", s.newest.Key, "rule", "hand-on")
	if s.HandOn != nil {
		s.HandOn(ctx)
	}
}
