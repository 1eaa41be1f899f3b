package restore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/delta"
)

// checkEvery is how many records of the full are read before it is asked whether anybody still wants them.
const checkEvery = 1 << 12

// segment is the part of the history that a delta adds to what is in front of it.
type segment struct {
	chain.Delta
	header delta.Header
	// first and last revision of the part.
	first, last int64
	// alive is how many of its records are the last ones of keys that are alive.
	alive int64
}

// surveyor takes all of the history, and writes nothing: it finds the last record of each key.
type surveyor struct {
	c        *Config
	lasts    *lasts
	progress Progress
}

func (s *surveyor) note(r delta.Record) error {
	key, err := keyOf(r.Value)
	if err == nil {
		err = s.lasts.note(key, placeOf(r), len(r.Key)+len(r.Value))
	}
	if err != nil {
		return fmt.Errorf("restore: revision %d: %w", r.Revision, err)
	}
	return nil
}

// run takes what the reader of the deltas hands on.
func (s *surveyor) run(ctx context.Context, in <-chan work) error {
	return drain(ctx, in, func(item work) error {
		for _, r := range item.records {
			if err := s.note(r); err != nil {
				return err
			}
		}
		s.progress.take(item)
		if item.ended {
			s.c.report(s.progress)
		}
		return nil
	})
}

// full takes the records of the full up to a revision, and returns how many are beyond it.
func (s *surveyor) full(ctx context.Context, tx *bolt.Tx, revision int64) (beyond int64, err error) {
	err = eachRecord(ctx, tx, func(r delta.Record) error {
		if r.Revision > revision {
			beyond++
			return nil
		}
		return s.note(r)
	})
	return beyond, err
}

// eachRecord calls do with each record of a database, in their order. What it gets is there for as long as the transaction.
func eachRecord(ctx context.Context, tx *bolt.Tx, do func(delta.Record) error) error {
	n := 0
	cursor := tx.Bucket(schema.Key.Name()).Cursor()
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		if n++; n%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		revision, err := revisionOf(k)
		if err != nil {
			return err
		}
		if err := do(delta.Record{Key: k, Value: v, Revision: revision}); err != nil {
			return err
		}
	}
	return nil
}

func deltasOf(segments []segment) []chain.Delta {
	deltas := make([]chain.Delta, 0, len(segments))
	for _, s := range segments {
		deltas = append(deltas, s.Delta)
	}
	return deltas
}

func placeOf(r delta.Record) place {
	return place{main: r.Revision, sub: int64(binary.BigEndian.Uint64(r.Key[9:])), deletes: r.IsDelete()}
}

// count reports each segment how many of its records are alive. Segments are in the order of their revisions.
func (l *lasts) count(segments []segment) {
	l.revisions(func(main int64) {
		i, found := slices.BinarySearchFunc(segments, main, func(s segment, main int64) int {
			switch {
			case s.last < main:
				return -1
			case s.first > main:
				return 1
			}
			return 0
		})
		if found {
			segments[i].alive++
		}
	})
}
