package backups

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/guard"
	"github.com/etcd-druid/druid/backup/proof"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/synthesis"
)

// lengthLook between two listings that tell how much a restore has to apply: twenty thousand objects are twenty requests.
// It is also the pause after a synthesis that failed.
const lengthLook = time.Hour

func thresholdOf(c config.Backup) synthesis.Threshold {
	if c.Full.Synthesize == nil {
		return synthesis.Threshold{}
	}
	return synthesis.Threshold{Revisions: c.Full.Synthesize.AfterRevisions, Bytes: c.Full.Synthesize.AfterBytes}
}

// lengthNow lists the store now and then, where it matters how long the chain is. What it finds out is acted upon at once, or
// not at all before the next look.
func (d *Duty) lengthNow(ctx context.Context, c config.Backup, self Identity, f ProofFacts, next *time.Time) Length {
	now := time.Now()
	if c.Full.Synthesize == nil || f.Turn != TurnOurs || f.Told != ToldProven || f.Resting == Yes || now.Before(*next) {
		return LengthUnknown
	}
	*next = now.Add(d.lengthLook)
	_, catalog, err := d.listed(ctx, c)
	if err != nil {
		d.Log.DebugContext(ctx, "length of the chain not found out", "err", err)
		return LengthUnknown
	}
	return lengthOf(catalog, self.Lineage, thresholdOf(c))
}

// lengthOf what a restore of the latest state would apply.
func lengthOf(c chain.Catalog, l chain.Lineage, threshold synthesis.Threshold) Length {
	p, err := c.Plan(chain.Target{Lineage: l})
	switch {
	case err != nil:
		return LengthUnknown // a proof says what is wrong
	case synthesizes(p, l, threshold):
		return LengthLong
	}
	return LengthShort
}

// synthesizes tells whether a full is to be made of a plan: never into a lineage that is not ours, from which a plan begins
// where ours has no full yet.
func synthesizes(p chain.Plan, l chain.Lineage, threshold synthesis.Threshold) bool {
	return p.Full.Lineage == l && threshold.Exceeded(p)
}

// synthesize makes a full of what was just proven, where that was long. It changes nothing of what is known of the backups,
// and nothing waits for it: what goes wrong is told, and tried again.
func (d *Duty) synthesize(ctx context.Context, c config.Backup, self Identity, proven proof.Database) {
	if !synthesizes(proven.Plan, self.Lineage, thresholdOf(c)) {
		return
	}
	began := time.Now()
	var made snapshot.Result
	err := guard.Run(func() (err error) {
		made, err = synthesis.Put(ctx, synthesis.Source{
			Prefix: c.Prefix, Store: proven.Store, Plan: proven.Plan, Path: proven.Path, Revision: proven.Revision,
			Level: levelOf(c.Compression),
		})
		return err
	})
	switch {
	case errors.Is(err, store.ErrExists):
		d.Log.DebugContext(ctx, "full synthesised before", "revision", proven.Revision)
	case err != nil && ctx.Err() == nil:
		d.Metrics.failed(kindSynthesis)
		d.Log.WarnContext(ctx, "full not synthesised", "err", err)
	case err == nil:
		d.Metrics.saved(kindSynthesis, made.ObjectSize, time.Since(began))
		d.Log.InfoContext(ctx, "full synthesised", "object", made.Key, "revision", made.Revision, "bytes", made.ObjectSize,
			"deltas", len(proven.Plan.Deltas), "took", time.Since(began))
	}
}
