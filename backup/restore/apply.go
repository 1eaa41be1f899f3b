package restore

import (
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/internal/loop"
)

const (
	// transaction is the size of a write in bytes. Larger ones use memory without being faster.
	transaction = 8 << 20
	// waiting is how many blocks of a delta backup, mostly 2 MiB each, are queued for the writer.
	waiting = 2
)

// apply passes the records of the plan's delta backups to run.
func apply(ctx context.Context, c *Config, r *reader, run func(context.Context, <-chan work) error) error {
	g, ctx := errgroup.WithContext(ctx)
	queue, out := prefetch(ctx, g, c.Store, c.Plan.Deltas), make(chan work, waiting)
	g.Go(loop.Recovered(func() error { return r.run(ctx, queue, out) }))
	g.Go(func() error { return guarded(func() error { return run(ctx, out) }) })
	return g.Wait()
}

// guarded returns an error for what bbolt does with an invalid database: a panic or a memory fault.
func guarded(work func() error) error {
	return loop.RecoverFault(work, func(panicked any) error { return fmt.Errorf("restore: the database is damaged: %v", panicked) })
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

// drain calls take for each item until the sender closes the channel.
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

// take counts what was read of the delta backups.
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
	// bbolt copies the key, but keeps a reference to the value until the transaction is written.
	if err := w.bucket.Put(r.Key, r.Value); err != nil {
		return fmt.Errorf("restore: append revision %d: %w", r.Revision, err)
	}
	w.pending += len(r.Key) + len(r.Value)
	return nil
}

// beginIn begins a transaction that writes to one bucket, unless one is open.
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
		return fmt.Errorf("restore: create bucket %s: %w", bucket, err)
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

// joint decides which records of the delta backups continue what is there. Overlap is allowed, a gap is not. Two
// leaders that back up at the same time cut the history at different revisions, but it must be the same history.
// Digests of single revisions verify that where two objects meet.
type joint struct {
	// target is the last revision to take; 0 means all. until is the last moment to take; zero means all.
	target int64
	until  time.Time
	// revision is the last revision that is there, digest its digest (zero if unknown), and object the source of both.
	revision int64
	digest   delta.Digest
	object   string
	// done reports that everything that follows is after target or until.
	done bool

	// These fields are about the current delta backup: its key, its header, the revision before it was entered, and
	// the digest that it has for that revision.
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

// enter begins a delta backup.
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

// take returns the part of the records that continues what is there. Records come in order. A revision may be spread
// over several calls.
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

// leave ends a delta backup.
func (j *joint) leave() {
	j.object, j.digest = j.key, delta.Digest{}
	if j.revision == j.header.To {
		j.digest = j.header.Last
	}
}

// agree compares the digest of the last revision that is there with that in the current delta backup. Either may be
// unknown.
func (j *joint) agree(theirs delta.Digest) error {
	if theirs.IsZero() || j.digest.IsZero() || theirs == j.digest {
		return nil
	}
	return fmt.Errorf("%w: revision %d has digest %s in %s, but %s in %s: two clusters wrote to one lineage, or one of the objects is broken; "+
		"restore without one of them",
		ErrFork, j.base, j.digest, j.object, theirs, j.key)
}
