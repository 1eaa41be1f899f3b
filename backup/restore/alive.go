package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/internal/loop"
)

// fetchedSuffix is the suffix of the fetched full backup, next to the database that is made from it.
const fetchedSuffix = ".fetched"

// A restore that bumps the revision marks all before it as compacted. etcd drops such history when it starts, so it is not written: of
// each key only the last record is, where it leaves the key alive. That takes two passes. The first reads all of the full and
// the deltas, verifies them, and finds the last record of each key. The second reads the full, and of the deltas those that have
// such records, and writes them. Records are written as they are. So time and space follow what is alive, and not what was written
// since the full.

// condense makes the database at path from the fetched full backup and the delta backups. The database has only what
// is alive at the target. If it does not fit next to the fetched database, condense brings the fetched database itself
// to the target, with its history. etcd drops that history when it starts, and then needs no more space than the
// source did.
func condense(ctx context.Context, c *Config, t snapshot.Trailer, path string, cluster *membership.RaftCluster) (Result, error) {
	fetched := path + fetchedSuffix
	result, err := writeAlive(ctx, c, t, path, cluster)
	if !errors.Is(err, ErrSpaceAlongside) {
		return result, errors.Join(err, os.Remove(fetched))
	}
	free, unknown := freeAt(filepath.Dir(path))
	if need := inflation*deltaBytes(c.Plan) + logSpace; unknown != nil || free < need {
		return Result{}, errors.Join(err, unknown, os.Remove(fetched))
	}
	if err := os.Rename(fetched, path); err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	inPlace, changed := change(ctx, c, t, path, cluster)
	if changed == nil {
		changed = checkQuota(c, inPlace.Size)
	}
	if errors.Is(changed, ErrQuota) || errors.Is(changed, ErrSpace) {
		return Result{}, err // a larger volume solves it
	}
	return inPlace, changed
}

// inflation is the assumed ratio of the size of records in the database to their size in a delta backup, the same as
// in package backups.
const inflation = 4

// writeAlive is condense with enough space.
func writeAlive(ctx context.Context, c *Config, t snapshot.Trailer, path string, cluster *membership.RaftCluster) (result Result, err error) {
	fetched := path + fetchedSuffix
	if err := checkPages(ctx, c, fetched); err != nil {
		return Result{}, err
	}
	full, err := bolt.Open(fetched, fileMode, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return Result{}, fmt.Errorf("restore: %s: open the database: %w", c.Subject(), err)
	}
	defer func() { err = errors.Join(err, full.Close()) }()
	l, err := newLasts(filepath.Dir(path))
	if err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, l.close()) }()
	b := &builder{c: c, db: full, trailer: t}
	if err := b.survey(ctx, l); err != nil {
		return Result{}, err
	}
	if err := checkAlive(c, path, l); err != nil {
		return Result{}, err
	}
	db, err := createDatabase(path, full.Info().PageSize, l.content)
	if err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	b.writer.db = db
	if err := b.rewrite(ctx, full, l, cluster); err != nil {
		return Result{}, errors.Join(err, db.Close())
	}
	c.report(b.writer.progress)
	if b.result.Size, err = finish(db); err != nil {
		return Result{}, fmt.Errorf("restore: %w", spaceError(err))
	}
	return b.result, checkQuota(c, b.result.Size)
}

// survey is the first pass.
func (b *builder) survey(ctx context.Context, l *lasts) error {
	if err := guarded(b.begin); err != nil {
		return err
	}
	s := &surveyor{c: b.c, lasts: l, progress: b.writer.progress}
	err := guarded(func() error {
		return b.db.View(func(tx *bolt.Tx) (err error) {
			b.result.Trimmed, err = s.full(ctx, tx, b.reader.joint.revision)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("restore: %s: %w", b.c.Subject(), err)
	}
	b.reader.segmented = true
	err = apply(ctx, b.c, b.reader, s.run)
	b.writer.progress = s.progress
	if err != nil {
		return err
	}
	l.count(b.reader.segments)
	return b.reached()
}

// rewrite is the second pass.
func (b *builder) rewrite(ctx context.Context, full *bolt.DB, l *lasts, cluster *membership.RaftCluster) error {
	w := b.writer
	w.progress.Phase, w.progress.Bytes, w.progress.TotalBytes = Writing, 0, l.content
	p := &picker{writer: w, lasts: l}
	defer w.rollback()
	err := guarded(func() error {
		return full.View(func(tx *bolt.Tx) error {
			if err := w.copyBuckets(tx); err != nil {
				return err
			}
			until := b.reader.joint.revision
			if len(b.reader.segments) > 0 {
				until = b.reader.segments[0].first - 1
			}
			if err := eachRecord(ctx, tx, func(r delta.Record) error { return p.pick(r, until) }); err != nil {
				return err
			}
			return w.commit() // while what it holds is there
		})
	})
	if err != nil {
		return fmt.Errorf("restore: write the keys of %s that are alive: %w", b.c.Subject(), err)
	}
	if err := p.deltas(ctx, b.c, b.reader.segments); err != nil {
		return err
	}
	if p.picked != l.alive {
		return fmt.Errorf("restore: %w: the second pass found %d keys alive, the first one %d", ErrSwapped, p.picked, l.alive)
	}
	b.result.Keys = p.picked
	return guarded(func() error { return b.finish(cluster) })
}

// picker writes the records that are alive.
type picker struct {
	writer *writer
	lasts  *lasts
	picked int64
}

// pick writes a record if it is alive and not after revision until.
func (p *picker) pick(r delta.Record, until int64) error {
	if r.IsDelete() || r.Revision > until {
		return nil
	}
	key, err := keyOf(r.Value)
	if err != nil || !p.lasts.isAlive(key, placeOf(r)) {
		return err
	}
	p.picked++
	if err := p.writer.put(r); err != nil {
		return err
	}
	if err := p.writer.leases.attach(r.Value); err != nil {
		return err
	}
	return p.writer.commitFull()
}

// deltas reads those delta backups again that have records that are alive. The first pass read all of them completely
// and checked that they fit together. The content must not have changed since.
func (p *picker) deltas(ctx context.Context, c *Config, all []segment) error {
	var needed []segment
	for _, s := range all {
		if s.alive > 0 {
			needed = append(needed, s)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	queue, out := prefetch(ctx, g, c.Store, deltasOf(needed)), make(chan work, waiting)
	g.Go(loop.Recovered(func() error {
		defer close(out)
		for _, s := range needed {
			select {
			case f := <-queue:
				if err := s.read(ctx, c, f, out); err != nil {
					return err
				}
				f.release()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}))
	g.Go(func() error {
		return guarded(func() error {
			defer p.writer.rollback()
			err := drain(ctx, out, func(item work) error {
				for _, r := range item.records {
					if err := p.pick(r, r.Revision); err != nil {
						return fmt.Errorf("restore: revision %d: %w", r.Revision, err)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return p.writer.commit()
		})
	})
	return g.Wait()
}

// read delivers the records of the segment.
func (s segment) read(ctx context.Context, c *Config, f *fetched, out chan<- work) (err error) {
	d, done, err := f.reader(ctx, c.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if d.Header() != s.header {
		return fmt.Errorf("restore: delta backup %s: %w: it changed while it was read", f.Key, ErrSwapped)
	}
	for {
		records, err := d.Next()
		if err == io.EOF { //nolint:errorlint // a broken connection may wrap it
			return nil
		}
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		for len(records) > 0 && records[0].Revision < s.first {
			records = records[1:]
		}
		for len(records) > 0 && records[len(records)-1].Revision > s.last {
			records = records[:len(records)-1]
		}
		select {
		case out <- work{records: records}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// copyBuckets copies all buckets except the keys.
func (w *writer) copyBuckets(from *bolt.Tx) error {
	return from.ForEach(func(name []byte, source *bolt.Bucket) error {
		if string(name) == schema.Key.String() {
			return nil
		}
		if err := w.beginIn(name); err != nil {
			return err
		}
		err := source.ForEach(func(k, v []byte) error {
			if v == nil {
				return fmt.Errorf("the database is not one of etcd: there is a bucket in bucket %s", name)
			}
			if err := w.beginIn(name); err != nil {
				return err
			}
			if err := w.bucket.Put(k, v); err != nil {
				return fmt.Errorf("copy bucket %s: %w", name, err)
			}
			w.pending += len(k) + len(v)
			return w.commitFull()
		})
		if err != nil {
			return err
		}
		return w.commit()
	})
}
