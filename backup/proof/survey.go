package proof

import (
	"context"
	"hash/maphash"
	"maps"
	"math"

	bolt "go.etcd.io/bbolt"
)

// survey is which records of a database outlive a compaction.
type survey struct {
	// kept are the numbers of those, among the below that are not younger than the compaction.
	kept  set
	below int64
	// alive is the number of keys at the revision. none says that etcd's own index is empty as well, which has a nameless
	// key where the revision was bumped.
	alive int64
	none  bool

	seeds [2]maphash.Seed
}

// fingerprint stands for a key: 128 bits, which no two of them share.
type fingerprint [2]uint64

// What is known of the last record of a key, where it is not the number of one that is as old as the compaction.
const (
	dead  = -1
	young = -2
)

// survivors reads the whole database, more than once where there are more than most keys: each time it takes the keys whose
// fingerprints lie in one range.
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

// between finds the last record of each key from a fingerprint on, up to where there are most of them.
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

// set is one of small numbers: a bit for each.
type set []uint64

func (s *set) add(n int64) {
	for int64(len(*s)) <= n/64 {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s set) has(n int64) bool { return n/64 < int64(len(s)) && s[n/64]&(1<<(n%64)) != 0 }
