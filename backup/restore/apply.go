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

// apply appends the records of the plan's deltas.
func apply(ctx context.Context, c *Config, r *reader, w *writer) error {
	g, ctx := errgroup.WithContext(ctx)
	queue, out := prefetch(ctx, g, c.Store, c.Plan.Deltas), make(chan work, waiting)
	g.Go(guard.Func(func() error { return r.run(ctx, queue, out) }))
	g.Go(func() error { return guarded(func() error { return w.run(ctx, out) }) })
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

func (w *writer) run(ctx context.Context, in <-chan work) error {
	defer w.rollback()
	for {
		select {
		case item, ok := <-in:
			if !ok {
				return w.commit()
			}
			if item.ended {
				w.progress.Deltas++
				w.progress.DeltaBytes += item.size
			}
			if err := w.append(item.records); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *writer) append(records []delta.Record) error {
	if len(records) == 0 {
		return nil
	}
	if err := w.begin(); err != nil {
		return err
	}
	for _, r := range records {
		// bbolt keeps the value until the transaction is written, and copies the key.
		if err := w.bucket.Put(r.Key, r.Value); err != nil {
			return fmt.Errorf("restore: append revision %d: %w", r.Revision, err)
		}
		if err := w.leases.observe(r.Value, r.IsDelete()); err != nil {
			return fmt.Errorf("restore: revision %d: %w", r.Revision, err)
		}
		w.pending += len(r.Key) + len(r.Value)
	}
	w.progress.Events += int64(len(records))
	w.progress.Revision = records[len(records)-1].Revision
	if w.pending < transaction {
		return nil
	}
	return w.commit()
}

func (w *writer) begin() error {
	if w.tx != nil {
		return nil
	}
	tx, err := w.db.Begin(true)
	if err != nil {
		return fmt.Errorf("restore: begin: %w", err)
	}
	w.tx, w.bucket = tx, tx.Bucket(schema.Key.Name())
	w.bucket.FillPercent = fill
	return nil
}

func (w *writer) commit() error {
	if w.tx == nil {
		return nil
	}
	tx := w.tx
	w.tx, w.bucket, w.pending = nil, nil, 0
	w.progress.Bytes = tx.Size()
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("restore: write records up to revision %d: %w", w.progress.Revision, err)
	}
	w.c.report(w.progress)
	return nil
}

func (w *writer) rollback() {
	if w.tx != nil {
		_ = w.tx.Rollback() // an error is on its way, and the database will be dropped
	}
}
