package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"maps"
	"math"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
)

// Reasons why a database cannot be compared at a revision.
var (
	// ErrCompacted: the database no longer has what etcd hashed.
	ErrCompacted = errors.New("the database was compacted at a later revision than etcd")
	// ErrEmpty: no key was alive. etcd then hashes whatever its compaction has not reached yet, which depends on the
	// moment.
	ErrEmpty = errors.New("no key was alive")
)

// State is the key space at one revision.
type State struct {
	// HashKV is the result of etcd's call of that name. etcd 3.5.16 and all later versions compute it in the same way.
	HashKV uint32
	// Keys that were alive.
	Keys int64
}

// mostKeys is how many keys are distinguished at once, which takes about 60 MiB. With more keys, the database is read
// several times.
const mostKeys = 1 << 20

// checkEvery is how many records are read between two checks whether the context ended.
const checkEvery = 1 << 12

// StateAt reads the state of a database at a revision, as an etcd has it that was compacted at compacted; a value
// below 1 means never. Later revisions in the database do not count.
//
// etcd hashes (go.etcd.io/etcd/server/v3/storage/mvcc/hash.go) all records up to the revision. Of the records up to
// the compact revision, it hashes only the last one of each key that was alive at the revision, whether the compaction
// has run or not.
func StateAt(ctx context.Context, db *bolt.DB, revision, compacted int64) (s State, err error) {
	return stateAt(ctx, db, revision, compacted, mostKeys)
}

func stateAt(ctx context.Context, db *bolt.DB, revision, compacted int64, most int) (s State, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return errors.New("the database is none of etcd's: it has no bucket key")
		}
		late, err := compactedAt(tx)
		if err != nil {
			return err
		}
		if late > compacted && late > 0 {
			return fmt.Errorf("%w: at %d, while etcd hashed revision %d with compact revision %d", ErrCompacted, late, revision, compacted)
		}
		k, err := survivors(ctx, keys, revision, compacted, most)
		if err != nil {
			return err
		}
		s.Keys = k.alive
		if k.none && k.below > 0 {
			return fmt.Errorf("%w at revision %d", ErrEmpty, revision)
		}
		s.HashKV, err = k.hash(ctx, keys, revision, compacted)
		return err
	})
	return s, err
}

// hash computes etcd's hash.
func (s *survey) hash(ctx context.Context, keys *bolt.Bucket, revision, compacted int64) (uint32, error) {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, schema.Key.Name())
	err := each(ctx, keys, revision, func(n, main int64, _ bool, key, value []byte) error {
		if main <= compacted && !s.kept.has(n) {
			return nil // deletions that old always go, also the one at the compact revision, which etcd's compaction keeps
		}
		sum = crc32.Update(sum, table, key)
		sum = crc32.Update(sum, table, value)
		return nil
	})
	return sum, err
}

// Keys of the bucket `key`: 8 bytes of revision, '_', 8 bytes of sub-revision, and 't' for a deletion.
const (
	recordKey    = 17
	recordDelete = 18
)

// each calls do with the records up to a revision, in order, and with their numbers.
func each(ctx context.Context, keys *bolt.Bucket, revision int64, do func(n, main int64, deletes bool, key, value []byte) error) error {
	cursor := keys.Cursor()
	var n int64
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(k) != recordKey && len(k) != recordDelete {
			return fmt.Errorf("%x in the database is not a revision", k)
		}
		main := int64(binary.BigEndian.Uint64(k))
		if main > revision {
			return nil
		}
		if err := do(n, main, len(k) == recordDelete, k, v); err != nil {
			return err
		}
		n++
	}
	return nil
}

// compactedAt returns the revision up to which records can be compacted, 0 for none.
func compactedAt(tx *bolt.Tx) (at int64, err error) {
	meta := tx.Bucket(schema.Meta.Name())
	if meta == nil {
		return 0, errors.New("the database is none of etcd's: it has no bucket meta")
	}
	for _, name := range [][]byte{schema.ScheduledCompactKeyName, schema.FinishedCompactKeyName} {
		switch value := meta.Get(name); {
		case value == nil:
		case len(value) != recordKey:
			return 0, fmt.Errorf("%s is %x in the database, which is not a revision", name, value)
		default:
			at = max(at, int64(binary.BigEndian.Uint64(value)))
		}
	}
	return at, nil
}

// fieldKey is the number of the field of mvccpb.KeyValue.
const fieldKey = 1

// keyOf reads the key out of a KeyValue message, in which it is the first field. A bumped revision is an empty
// message.
func keyOf(value []byte) ([]byte, error) {
	for len(value) > 0 {
		field, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return nil, fmt.Errorf("the value of a record is not a KeyValue message of etcd: %w", protowire.ParseError(n))
		}
		value = value[n:]
		if field == fieldKey && kind == protowire.BytesType {
			key, n := protowire.ConsumeBytes(value)
			return key, protowire.ParseError(min(n, 0))
		}
		if n = protowire.ConsumeFieldValue(field, kind, value); n < 0 {
			return nil, fmt.Errorf("the value of a record is not a KeyValue message of etcd: %w", protowire.ParseError(n))
		}
		value = value[n:]
	}
	return nil, nil
}

// survey says which records of a database survive a compaction.
type survey struct {
	// kept are the numbers of the surviving records among the below records that are not younger than the compaction.
	kept  set
	below int64
	// alive is the number of keys at the revision. none says that etcd's own index is empty too. A bumped revision
	// adds a key without a name to that index.
	alive int64
	none  bool

	seeds [2]maphash.Seed
}

// fingerprint identifies a key by 128 bits. No two keys are assumed to share one.
type fingerprint [2]uint64

// What is known of the last record of a key, other than the number of a record that is as old as the compaction.
const (
	dead  = -1
	young = -2
)

// survivors reads the complete database. With more than most keys, it reads it several times, and each time takes the
// keys whose fingerprints are in one range.
func survivors(ctx context.Context, keys *bolt.Bucket, revision, compacted int64, most int) (*survey, error) {
	s := &survey{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, none: true}
	for low := uint64(0); ; {
		last, high, err := s.between(ctx, keys, revision, compacted, low, most)
		if err != nil {
			return nil, err
		}
		for key, n := range last {
			s.count(key, n)
		}
		if high == math.MaxUint64 {
			return s, nil
		}
		low = high + 1
	}
}

func (s *survey) count(key fingerprint, n int64) {
	if n == dead {
		return
	}
	s.none = false
	if key != s.print(nil) {
		s.alive++
	}
	if n != young {
		s.kept.add(n)
	}
}

func (s *survey) print(key []byte) fingerprint {
	return fingerprint{maphash.Bytes(s.seeds[0], key), maphash.Bytes(s.seeds[1], key)}
}

// between finds the last record of each key from a fingerprint on, for at most most keys.
func (s *survey) between(ctx context.Context, keys *bolt.Bucket, revision, compacted int64, low uint64, most int) (map[fingerprint]int64, uint64, error) {
	last, high := map[fingerprint]int64{}, uint64(math.MaxUint64)
	s.below = 0
	err := each(ctx, keys, revision, func(n, main int64, deletes bool, _, value []byte) error {
		if main <= compacted {
			s.below++
		}
		key, err := keyOf(value)
		if err != nil {
			return err
		}
		p := s.print(key)
		if p[0] < low || p[0] > high {
			return nil
		}
		switch {
		case deletes:
			last[p] = dead
		case main > compacted:
			last[p] = young
		default:
			last[p] = n
		}
		for len(last) > most && low < high {
			high = low + (high-low)/2
			maps.DeleteFunc(last, func(p fingerprint, _ int64) bool { return p[0] > high })
		}
		return nil
	})
	return last, high, err
}

// set is a set of small numbers, with one bit for each.
type set []uint64

func (s *set) add(n int64) {
	for int64(len(*s)) <= n/64 {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s set) has(n int64) bool { return n/64 < int64(len(s)) && s[n/64]&(1<<(n%64)) != 0 }
