package restore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/backup/delta"
)

const (
	// growth is the step in which the file grows; what is too much of it goes in the end.
	growth = 64 << 20
	// fill leaves a little room in a page: keys only ever come at the end.
	fill = 0.9
	// spread is the most that records take in the database, for each byte of a delta: only address space depends on it.
	spread = 8
)

// openDatabase opens the backend that was fetched. Nothing that bbolt writes is durable before sync: anyone who dies before
// leaves a workspace that is thrown away.
func openDatabase(path string, size, deltas int64) (*bolt.DB, error) {
	db, err := bolt.Open(path, fileMode, &bolt.Options{
		NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, Timeout: time.Second,
		InitialMmapSize: int(size + spread*deltas), NoStatistics: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.AllocSize = growth
	return db, nil
}

// createDatabase makes an empty database for so many bytes of records. It is as little durable as one of openDatabase.
func createDatabase(path string, page int, content int64) (*bolt.DB, error) {
	db, err := bolt.Open(path, fileMode, &bolt.Options{
		NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, Timeout: time.Second,
		PageSize: page, InitialMmapSize: int(2 * content), NoStatistics: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the database: %w", spaceError(err))
	}
	db.AllocSize = growth
	return db, nil
}

// seal closes the database, cuts off what it took in advance, and makes it durable. It returns the size.
func seal(db *bolt.DB) (size int64, err error) {
	path := db.Path()
	err = db.View(func(tx *bolt.Tx) error {
		size = tx.Size()
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return 0, fmt.Errorf("close the database: %w", err)
	}
	if err := os.Truncate(path, size); err != nil {
		return 0, fmt.Errorf("cut the database: %w", err)
	}
	return size, syncFile(path)
}

// state is where a database stands.
type state struct {
	// revision of the last change, compacted the revision up to which older ones may be gone.
	revision, compacted int64
	// digest of that revision, zero where not all of it is there for sure.
	digest delta.Digest
}

func readState(tx *bolt.Tx) (state, error) {
	s := state{revision: 1} // of a key space in which nothing was ever written
	keys, meta := tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Meta.Name())
	if keys == nil || meta == nil {
		return s, errors.New("the database is none of etcd's: it has no bucket key or meta")
	}
	if last, _ := keys.Cursor().Last(); last != nil {
		var err error
		if s.revision, err = revisionOf(last); err != nil {
			return s, err
		}
	}
	for _, name := range [][]byte{schema.ScheduledCompactKeyName, schema.FinishedCompactKeyName} {
		if raw := meta.Get(name); raw != nil {
			compacted, err := revisionOf(raw)
			if err != nil {
				return s, fmt.Errorf("%s: %w", name, err)
			}
			s.compacted = max(s.compacted, compacted)
		}
	}
	if s.compacted < s.revision {
		s.digest = digestOf(keys, s.revision)
	}
	s.revision = max(s.revision, s.compacted)
	return s, nil
}

// digestOf is unknown for the mark of a bumped revision, which no watch ever reports.
func digestOf(keys *bolt.Bucket, revision int64) delta.Digest {
	var sum delta.Digester
	cursor := keys.Cursor()
	for k, v := cursor.Seek(delta.AppendKey(nil, revision, 0, false)); k != nil; k, v = cursor.Next() {
		if len(v) == 0 {
			return delta.Digest{}
		}
		sum.Add(k, v)
	}
	return sum.Sum()
}

func revisionOf(key []byte) (int64, error) {
	if len(key) != len(delta.AppendKey(nil, 0, 0, false)) && len(key) != len(delta.AppendKey(nil, 0, 0, true)) {
		return 0, fmt.Errorf("%x is no revision", key)
	}
	revision := int64(binary.BigEndian.Uint64(key))
	if revision < 0 {
		return 0, fmt.Errorf("%x is no revision", key)
	}
	return revision, nil
}

// trim takes away what was written after target. Keys under leases that were revoked after it come back; leases do not,
// which is why all records are looked at for leases that are missing.
func trim(db *bolt.DB, target int64, leases *tracker) (trimmed int64, err error) {
	const step = 10_000 // keys that are held at once
	for more := true; more; {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket := tx.Bucket(schema.Key.Name())
			var keys [][]byte
			cursor := bucket.Cursor()
			for k, _ := cursor.Seek(delta.AppendKey(nil, target+1, 0, false)); k != nil && len(keys) < step; k, _ = cursor.Next() {
				keys = append(keys, append([]byte(nil), k...))
			}
			for _, k := range keys {
				if err := bucket.Delete(k); err != nil {
					return err
				}
			}
			more = len(keys) == step
			trimmed += int64(len(keys))
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("trim the full to revision %d: %w", target, err)
		}
	}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(schema.Key.Name()).ForEach(func(k, v []byte) error {
			return leases.observe(v, len(k) == len(delta.AppendKey(nil, 0, 0, true)))
		})
	})
	return trimmed, err
}

// bump sets the revision far ahead and marks all before as compacted, as etcdutl does: etcd compacts when it starts, and
// refuses to watch from a revision that the old history may have had otherwise.
func bump(tx *bolt.Tx, revision int64) error {
	mark := delta.AppendKey(nil, revision, 0, false)
	if err := tx.Bucket(schema.Key.Name()).Put(mark, nil); err != nil {
		return fmt.Errorf("bump the revision to %d: %w", revision, err)
	}
	if err := tx.Bucket(schema.Meta.Name()).Put(schema.ScheduledCompactKeyName, mark); err != nil {
		return fmt.Errorf("mark revision %d compacted: %w", revision, err)
	}
	return nil
}

// empty drops all that is in a bucket.
func empty(tx *bolt.Tx, name []byte) (*bolt.Bucket, error) {
	if tx.Bucket(name) != nil {
		if err := tx.DeleteBucket(name); err != nil {
			return nil, fmt.Errorf("empty bucket %s: %w", name, err)
		}
	}
	bucket, err := tx.CreateBucket(name)
	if err != nil {
		return nil, fmt.Errorf("make bucket %s: %w", name, err)
	}
	return bucket, nil
}
