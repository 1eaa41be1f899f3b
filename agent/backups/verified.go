package backups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/proof"
)

const (
	// verifyTries of a backup that was ordered with its proof, verifyPause apart: what is compacted meanwhile, or a store that
	// does not answer, passes.
	verifyTries = 3
	verifyPause = 20 * time.Second
)

// errNotVerified: a backup was made, and it is not known to be good. It is final: who ordered it orders another one.
var errNotVerified = errors.New("saved, but not verified")

// verified saves, and then restores and compares the very full that was saved.
func (d *Duty) verified(ctx context.Context, save func() (Artifact, error)) (Artifact, error) {
	artifact, err := save()
	if err != nil {
		return Artifact{}, err
	}
	for try := 1; ; try++ {
		r := d.verifyOne(ctx, artifact.Key)
		d.Metrics.proofs.WithLabelValues(string(r.Verdict)).Inc()
		d.Log.InfoContext(ctx, "ordered backup verified", "object", artifact.Key, "found", string(r.Verdict), "reason", r.Reason,
			"revision", r.Revision, "keys", r.Keys, "compared", r.Compared, "took", r.Took)
		switch {
		case ctx.Err() != nil:
			return Artifact{}, ctx.Err()
		case r.Verdict == proof.Proven:
			return artifact, nil
		case r.Verdict == proof.Broken:
			d.reportBroken(ctx, r)
			fallthrough
		case try == verifyTries:
			return Artifact{}, fmt.Errorf("%s: %w: %s", artifact.Key, errNotVerified, r.Reason)
		}
		await(ctx, nil, d.verifyPause)
	}
}

// tellBroken reports the full backups' Lease what is broken, as a proof by schedule would: retention and restores read it there, and the
// leader makes a new full.
func (d *Duty) reportBroken(ctx context.Context, r proof.Result) {
	self, known := d.Self()
	if !known {
		return
	}
	_, before, err := d.Leases.Full(ctx)
	if err == nil {
		err = d.Leases.ReportVerification(ctx, found(before, r, self, time.Now(), false))
	}
	if err != nil && ctx.Err() == nil {
		d.Log.WarnContext(ctx, "broken backup not reported", "object", r.Object, "err", err)
	}
}

// verifyOne restores the full called key as it is, and compares it with what our own member says of its revision.
func (d *Duty) verifyOne(ctx context.Context, key string) proof.Result {
	c, _ := d.configured()
	self, known := d.Self()
	if c == nil || !known {
		return proof.Result{Verdict: proof.Unknown, Reason: ErrIdle.Error()}
	}
	return d.proveTarget(ctx, *c, self, chain.Target{Name: key})
}
