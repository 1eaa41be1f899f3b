package synthesis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// ErrNothing: no delta follows the full, so that it is what would be made of it.
var ErrNothing = errors.New("nothing to synthesise")

// Threshold says from when on a synthesis is worth its while: when so many revisions, or so many bytes of deltas, have to be
// applied to the full that a restore begins with. 0 of either is no reason.
type Threshold struct {
	Revisions, Bytes int64
}

// Exceeded tells whether the plan is longer.
func (t Threshold) Exceeded(p chain.Plan) bool {
	revisions, bytes := p.Tail()
	return t.Revisions > 0 && revisions > t.Revisions || t.Bytes > 0 && bytes > t.Bytes
}

// Source is a database that a plan led to, by package restore, up to a revision.
type Source struct {
	// Prefix of the cluster's keys in Store.
	Prefix   string
	Store    store.Store
	Plan     chain.Plan
	Path     string
	Revision int64
	// Level of the compression; the fastest for 0.
	Level zstd.EncoderLevel
	// Progress is told how many bytes of the database have passed, about once per MiB. It may be nil, and must not block.
	Progress func(bytes int64)
}

// Key is what a full that is made out of a plan is called, if it ends with revision.
func Key(prefix string, p chain.Plan, revision int64) string {
	return chain.SynthesisKey(prefix, p.Full.Lineage, revision, originOf(p), p.Ends())
}

// originOf is the revision of the full that etcd sent.
func originOf(p chain.Plan) int64 {
	if p.Full.Origin != 0 {
		return p.Full.Origin
	}
	return p.Full.Revision
}

// Put makes a full of the database, and reads it back. Where one of that name is, it was made out of the same: it stays,
// with store.ErrExists.
func Put(ctx context.Context, s Source) (snapshot.Result, error) {
	p := s.Plan
	if len(p.Deltas) == 0 || s.Revision <= p.Full.Revision {
		return snapshot.Result{}, fmt.Errorf("%w: no delta follows %s", ErrNothing, p.Full.Key)
	}
	t, err := snapshot.ReadTrailer(ctx, s.Store, p.Full.Key, p.Full.Size)
	if err != nil {
		return snapshot.Result{}, fmt.Errorf("synthesise: %w", err)
	}
	t.Revision, t.Upper = s.Revision, s.Revision
	t.Taken = p.Ends().UTC()
	t.Started = t.Taken
	t.Synthesized = snapshot.Synthesis{From: p.Full.Key, Deltas: len(p.Deltas), Origin: originOf(p), Made: time.Now().UTC()}
	made, err := snapshot.Synthesize(ctx, snapshot.Synthesized{
		Store: s.Store, Key: Key(s.Prefix, p, s.Revision), Path: s.Path, Trailer: t, Level: s.Level, Progress: s.Progress,
	})
	if err != nil {
		return snapshot.Result{}, fmt.Errorf("synthesise: %w", err)
	}
	if err := readBack(ctx, s.Store, made); err != nil {
		return made, fmt.Errorf("synthesise: read back: %w; a new full takes its place, until then restore without it", err)
	}
	return made, nil
}

// readBack reads to the end what was just put.
func readBack(ctx context.Context, s store.Store, made snapshot.Result) (err error) {
	source, err := s.Get(ctx, made.Key, 0, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	r, err := snapshot.Open(made.Key, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if got := r.Trailer().SHA256; got != made.SHA256 {
		return &snapshot.DamagedError{Object: made.Key, Reason: fmt.Sprintf("its content has sha256 %s, %s was put", got, made.SHA256)}
	}
	return nil
}
