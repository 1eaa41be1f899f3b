package restore

import (
	"context"
	"fmt"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/guard"
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
	g.Go(guard.Func(func() error { return r.run(ctx, queue, out) }))
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
