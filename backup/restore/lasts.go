package restore

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
)

const (
	// slotSize is what a key takes in the table: two halves of its fingerprint, and of its last record the revision,
	// the sub-revision (32 bits), the length (31 bits) and whether it deletes the key (1 bit).
	slotSize = 32
	// firstSlots of a table. The table doubles when three quarters of them are used, so a key takes 43 to 86 bytes,
	// and half as much again while the table grows.
	firstSlots = 1 << 12
	// maxSub and maxLength are far above the limits of etcd, whose requests have at most 1.5 MiB unless configured
	// otherwise.
	maxSub, maxLength = math.MaxUint32, math.MaxInt32
)

// place is the position of a record in the history.
type place struct {
	main, sub int64
	deletes   bool
}

// lasts has the last record of each key. It is a hash table with open addressing in a file that is mapped into memory.
// If memory is short, the kernel writes it to disk, and the heap does not grow with the number of keys. The file has
// no name and disappears with the process. Keys are identified by a fingerprint of 128 bits, so that a collision is
// practically impossible.
type lasts struct {
	dir   string
	table []byte
	slots uint64
	keys  uint64
	seeds [2]maphash.Seed
	// alive counts the keys whose last record does not delete them. content is the size of these records in bytes.
	alive, content int64
}

func newLasts(dir string) (*lasts, error) {
	l := &lasts{dir: dir, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, slots: firstSlots}
	var err error
	l.table, err = mapped(dir, firstSlots*slotSize)
	return l, err
}

// mapped allocates memory that is backed by a file. It first writes the complete file, so that a full disk gives an
// error now and not a memory fault later.
func mapped(dir string, size int) ([]byte, error) {
	f, err := os.CreateTemp(dir, "lasts-")
	if err != nil {
		return nil, fmt.Errorf("create the table of keys: %w", err)
	}
	defer f.Close() // the mapping keeps it
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("create the table of keys: %w", err)
	}
	for zeros := make([]byte, min(size, chunk)); size > 0; size -= len(zeros) {
		if _, err := f.Write(zeros); err != nil {
			return nil, fmt.Errorf("create the table of keys: %w", spaceError(err))
		}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("create the table of keys: %w", err)
	}
	table, err := mapFile(f, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("map the table of keys: %w", err)
	}
	return table, nil
}

// close releases the table.
func (l *lasts) close() error {
	table := l.table
	if l.table = nil; table == nil {
		return nil
	}
	if err := unmap(table); err != nil {
		return fmt.Errorf("release the table of keys: %w", err)
	}
	return nil
}

// slot returns the slot of the key, or the empty one that it would take.
func slot(table []byte, slots, a, b uint64) []byte {
	for i := a & (slots - 1); ; i = (i + 1) & (slots - 1) {
		s := table[i*slotSize : (i+1)*slotSize : (i+1)*slotSize]
		if binary.LittleEndian.Uint64(s[16:]) == 0 || binary.LittleEndian.Uint64(s) == a && binary.LittleEndian.Uint64(s[8:]) == b {
			return s
		}
	}
}

func (l *lasts) of(key []byte) (s []byte, a, b uint64) {
	a, b = maphash.Bytes(l.seeds[0], key), maphash.Bytes(l.seeds[1], key)
	return slot(l.table, l.slots, a, b), a, b
}

// note takes the next record of the history. length is that of its key and value in the database.
func (l *lasts) note(key []byte, p place, length int) error {
	if p.main < 1 || p.sub < 0 || p.sub > maxSub || length > maxLength {
		return fmt.Errorf("change %d of revision %d has %d bytes, which etcd never writes", p.sub, p.main, length)
	}
	if l.keys >= l.slots/4*3 {
		if err := l.grow(); err != nil {
			return err
		}
	}
	s, a, b := l.of(key)
	if binary.LittleEndian.Uint64(s[16:]) == 0 {
		l.keys++
		binary.LittleEndian.PutUint64(s, a)
		binary.LittleEndian.PutUint64(s[8:], b)
	} else if _, length, deletes := unpack(s); !deletes {
		l.alive--
		l.content -= length
	}
	rest := uint64(p.sub)<<32 | uint64(length)<<1
	if p.deletes {
		rest |= 1
	} else {
		l.alive++
		l.content += int64(length)
	}
	binary.LittleEndian.PutUint64(s[16:], uint64(p.main))
	binary.LittleEndian.PutUint64(s[24:], rest)
	return nil
}

func unpack(s []byte) (sub, length int64, deletes bool) {
	rest := binary.LittleEndian.Uint64(s[24:])
	return int64(rest >> 32), int64(rest & math.MaxUint32 >> 1), rest&1 != 0
}

// isAlive reports whether a record is the last one of its key and does not delete it.
func (l *lasts) isAlive(key []byte, p place) bool {
	s, _, _ := l.of(key)
	sub, _, deletes := unpack(s)
	return !p.deletes && !deletes && int64(binary.LittleEndian.Uint64(s[16:])) == p.main && sub == p.sub
}

// revisions calls do with the revision of the last record of each key that is alive, in no order.
func (l *lasts) revisions(do func(main int64)) {
	for i := range l.slots {
		s := l.table[i*slotSize : (i+1)*slotSize]
		main := int64(binary.LittleEndian.Uint64(s[16:]))
		if _, _, deletes := unpack(s); main != 0 && !deletes {
			do(main)
		}
	}
}

func (l *lasts) grow() error {
	slots := l.slots * 2
	table, err := mapped(l.dir, int(slots*slotSize))
	if err != nil {
		return err
	}
	for i := range l.slots {
		s := l.table[i*slotSize : (i+1)*slotSize]
		if binary.LittleEndian.Uint64(s[16:]) != 0 {
			copy(slot(table, slots, binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])), s)
		}
	}
	err = l.close()
	l.table, l.slots = table, slots
	return err
}

// checkEvery is how many records of the full backup are read between checks of the context.
const checkEvery = 1 << 12

// segment is the part of the history that a delta backup adds to those before it.
type segment struct {
	catalog.Delta
	header delta.Header
	// first and last revision of the part.
	first, last int64
	// alive counts its records that are the last ones of keys that are alive.
	alive int64
}

// surveyor reads the complete history to find the last record of each key. It writes nothing.
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

// run takes what the reader of the delta backups delivers.
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

// full takes the records of the full backup up to a revision, and returns how many are after it.
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

// eachRecord calls do with each record of a database, in order. The record is valid as long as the transaction.
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

func deltasOf(segments []segment) []catalog.Delta {
	deltas := make([]catalog.Delta, 0, len(segments))
	for _, s := range segments {
		deltas = append(deltas, s.Delta)
	}
	return deltas
}

func placeOf(r delta.Record) place {
	return place{main: r.Revision, sub: int64(binary.BigEndian.Uint64(r.Key[9:])), deletes: r.IsDelete()}
}

// count sets in each segment how many of its records are alive. Segments are in the order of their revisions.
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
