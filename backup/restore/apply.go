package restore

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/internal/loop"
)

const (
	// transaction is how many bytes of records are written at once. Larger ones take memory and gain nothing.
	transaction = 8 << 20
	// waiting is how many blocks of a delta, of 2 MiB mostly, wait for the writer.
	waiting = 2
)

// apply hands the records of the plan's deltas to run.
func apply(ctx context.Context, c *Config, r *reader, run func(context.Context, <-chan work) error) error {
	g, ctx := errgroup.WithContext(ctx)
	queue, out := prefetch(ctx, g, c.Store, c.Plan.Deltas), make(chan work, waiting)
	g.Go(loop.Recovered(func() error { return r.run(ctx, queue, out) }))
	g.Go(func() error { return guarded(func() error { return run(ctx, out) }) })
	return g.Wait()
}

// guarded turns into an error what bbolt does about a database that is not what it expects: a panic, or a fault.
func guarded(work func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("restore: the database is damaged: %v", r)
		}
	}()
	return work()
}

// writer appends records to the database.
type writer struct {
	c      *Config
	db     *bolt.DB
	leases *tracker

	tx       *bolt.Tx
	bucket   *bolt.Bucket
	pending  int
	progress Progress
}

// drain calls take with what comes, until its sender closes the channel.
func drain(ctx context.Context, in <-chan work, take func(work) error) error {
	for {
		select {
		case item, ok := <-in:
			if !ok {
				return nil
			}
			if err := take(item); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take counts what comes of the deltas.
func (p *Progress) take(item work) {
	if item.ended {
		p.Deltas++
		p.DeltaBytes += item.size
	}
	if n := len(item.records); n > 0 {
		p.Events += int64(n)
		p.Revision = item.records[n-1].Revision
	}
}

func (w *writer) run(ctx context.Context, in <-chan work) error {
	defer w.rollback()
	err := drain(ctx, in, func(item work) error {
		w.progress.take(item)
		return w.append(item.records)
	})
	if err != nil {
		return err
	}
	return w.commit()
}

func (w *writer) append(records []delta.Record) error {
	for _, r := range records {
		if err := w.put(r); err != nil {
			return err
		}
		if err := w.leases.observe(r.Value, r.IsDelete()); err != nil {
			return fmt.Errorf("restore: revision %d: %w", r.Revision, err)
		}
	}
	return w.commitFull()
}

func (w *writer) put(r delta.Record) error {
	if err := w.beginIn(schema.Key.Name()); err != nil {
		return err
	}
	// bbolt keeps the value until the transaction is written, and copies the key.
	if err := w.bucket.Put(r.Key, r.Value); err != nil {
		return fmt.Errorf("restore: append revision %d: %w", r.Revision, err)
	}
	w.pending += len(r.Key) + len(r.Value)
	return nil
}

// beginIn begins a transaction that writes to one bucket, unless there is one.
func (w *writer) beginIn(bucket []byte) error {
	if w.tx != nil {
		return nil
	}
	tx, err := w.db.Begin(true)
	if err != nil {
		return fmt.Errorf("restore: begin: %w", err)
	}
	w.tx = tx
	if w.bucket, err = tx.CreateBucketIfNotExists(bucket); err != nil {
		return fmt.Errorf("restore: make bucket %s: %w", bucket, err)
	}
	w.bucket.FillPercent = fill
	return nil
}

// commitFull commits a transaction that is large enough.
func (w *writer) commitFull() error {
	if w.pending < transaction {
		return nil
	}
	return w.commit()
}

func (w *writer) commit() error {
	if w.tx == nil {
		return nil
	}
	tx := w.tx
	w.tx, w.bucket, w.pending = nil, nil, 0
	w.progress.Bytes = tx.Size()
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("restore: write records up to revision %d: %w", w.progress.Revision, spaceError(err))
	}
	w.c.report(w.progress)
	return checkQuota(w.c, w.progress.Bytes)
}

func (w *writer) rollback() {
	if w.tx != nil {
		_ = w.tx.Rollback() // an error is on its way, and the database will be dropped
		w.tx = nil
	}
}

// joint decides what of the deltas follows on what is there. Overlap is legal, a hole is not: two leaders that back up at
// once cut the history at different revisions, but it must be the same history, and digests of single revisions prove
// that where two objects meet.
type joint struct {
	// target is the last revision to take, 0 for all; until the last moment, zero for all.
	target int64
	until  time.Time
	// revision is the last one that is there, digest its digest (zero where no one knows), and object who reported both.
	revision int64
	digest   delta.Digest
	object   string
	// done: what follows is beyond target or until.
	done bool

	// Of the delta at hand: its key, its header, the revision before it was entered, and the digest of that revision as
	// this delta has it.
	key    string
	closed time.Time // when it was closed at the latest, zero where that is not known: no record of it is younger
	header delta.Header
	base   int64
	sum    delta.Digester
}

// needs reports whether revisions up to to add anything.
func (j *joint) needs(to int64) bool {
	return !j.done && to > j.revision && (j.target == 0 || j.revision < j.target)
}

// enter begins a delta.
func (j *joint) enter(key string, closed time.Time, h delta.Header) error {
	if h.From > j.revision+1 {
		return &GapError{From: j.revision + 1, To: h.From - 1, After: j.object, Before: key}
	}
	j.key, j.closed, j.header, j.base = key, closed, h, j.revision
	j.sum.Reset()
	if h.From == j.base+1 {
		return j.agree(h.Before)
	}
	return nil
}

// take returns the part of the records that follows on what is there. Records come in order, and a revision may come in
// several calls.
func (j *joint) take(records []delta.Record) ([]delta.Record, error) {
	first := 0
	for first < len(records) && records[first].Revision <= j.base {
		if r := records[first]; r.Revision == j.base {
			j.sum.Add(r.Key, r.Value)
		}
		first++
	}
	records = records[first:]
	if len(records) == 0 {
		return nil, nil
	}
	if j.revision == j.base && !j.done && j.header.From <= j.base {
		if err := j.agree(j.sum.Sum()); err != nil {
			return nil, err
		}
	}
	for i, r := range records {
		if j.done = j.done || j.beyond(r); j.done {
			return records[:i], nil
		}
		j.revision = r.Revision
	}
	return records, nil
}

func (j *joint) beyond(r delta.Record) bool {
	at := r.At
	if !j.closed.IsZero() && at.After(j.closed) {
		at = j.closed // by a clock that was ahead
	}
	return j.target > 0 && r.Revision > j.target || !j.until.IsZero() && at.UnixMilli() > j.until.UnixMilli()
}

// leave ends a delta.
func (j *joint) leave() {
	j.object, j.digest = j.key, delta.Digest{}
	if j.revision == j.header.To {
		j.digest = j.header.Last
	}
}

// agree compares the digest of the last revision that is there with what the delta at hand says of it. No one is obliged
// to know it.
func (j *joint) agree(theirs delta.Digest) error {
	if theirs.IsZero() || j.digest.IsZero() || theirs == j.digest {
		return nil
	}
	return fmt.Errorf("%w: revision %d is %s in %s, and %s in %s: two clusters wrote under one lineage, or one of both is broken; plan without either",
		ErrFork, j.base, j.digest, j.object, theirs, j.key)
}
