package restore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v2store"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/delta"
)

const (
	// growth is the step in which the file grows. The excess is removed at the end.
	growth = 64 << 20
	// fill leaves a little space in each page, because keys are only added at the end.
	fill = 0.9
	// spread is the maximum size of records in the database for each byte of a delta backup. It only affects the
	// address space.
	spread = 8
)

// openDatabase opens the fetched database. Nothing that bbolt writes is durable before the final sync. If the process
// dies before, the next restore deletes the workspace.
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

// createDatabase creates an empty database for so many bytes of records. As with openDatabase, nothing is durable
// before the final sync.
func createDatabase(path string, page int, content int64) (*bolt.DB, error) {
	db, err := bolt.Open(path, fileMode, &bolt.Options{
		NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, Timeout: time.Second,
		PageSize: page, InitialMmapSize: int(2 * content), NoStatistics: true,
	})
	if err != nil {
		return nil, fmt.Errorf("create the database: %w", spaceError(err))
	}
	db.AllocSize = growth
	return db, nil
}

// finish closes the database, removes the space that it allocated in advance, and makes it durable. It returns the size.
func finish(db *bolt.DB) (size int64, err error) {
	path := db.Path()
	err = db.View(func(tx *bolt.Tx) error {
		size = tx.Size()
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return 0, fmt.Errorf("close the database: %w", err)
	}
	if err := os.Truncate(path, size); err != nil {
		return 0, fmt.Errorf("truncate the database: %w", err)
	}
	return size, syncFile(path)
}

// state is the revision that a database has reached.
type state struct {
	// revision is that of the last change. compacted is the revision up to which older ones may be gone.
	revision, compacted int64
	// digest is that of revision. It is zero unless the revision is certainly complete.
	digest delta.Digest
}

func readState(tx *bolt.Tx) (state, error) {
	s := state{revision: 1} // the revision of an empty key space
	keys, meta := tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Meta.Name())
	if keys == nil || meta == nil {
		return s, errors.New("the database is not one of etcd: it has no bucket key or meta")
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

// digestOf returns the unknown digest for the mark of a bumped revision, which no watch delivers.
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
		return 0, fmt.Errorf("%x is not a revision", key)
	}
	revision := int64(binary.BigEndian.Uint64(key))
	if revision < 0 {
		return 0, fmt.Errorf("%x is not a revision", key)
	}
	return revision, nil
}

// trim removes what was written after target. Keys under leases that were revoked after it come back, but the leases
// do not. Therefore, trim searches all records for missing leases.
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
			return 0, fmt.Errorf("trim the full backup to revision %d: %w", target, err)
		}
	}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(schema.Key.Name()).ForEach(func(k, v []byte) error {
			return leases.observe(v, len(k) == len(delta.AppendKey(nil, 0, 0, true)))
		})
	})
	return trimmed, err
}

// bump increases the revision by a large number and marks everything before as compacted, as etcdutl does. etcd
// compacts when it starts, and rejects watches from a revision whose content may differ in the old history.
func bump(tx *bolt.Tx, revision int64) error {
	mark := delta.AppendKey(nil, revision, 0, false)
	if err := tx.Bucket(schema.Key.Name()).Put(mark, nil); err != nil {
		return fmt.Errorf("bump the revision to %d: %w", revision, err)
	}
	if err := tx.Bucket(schema.Meta.Name()).Put(schema.ScheduledCompactKeyName, mark); err != nil {
		return fmt.Errorf("mark revision %d as compacted: %w", revision, err)
	}
	return nil
}

// empty removes everything from a bucket.
func empty(tx *bolt.Tx, name []byte) (*bolt.Bucket, error) {
	if tx.Bucket(name) != nil {
		if err := tx.DeleteBucket(name); err != nil {
			return nil, fmt.Errorf("empty bucket %s: %w", name, err)
		}
	}
	bucket, err := tx.CreateBucket(name)
	if err != nil {
		return nil, fmt.Errorf("create bucket %s: %w", name, err)
	}
	return bucket, nil
}

// All that follows is what etcdutl's snapshot restore does (go.etcd.io/etcd/etcdutl/v3/snapshot), by the same packages of
// etcd. etcdutl itself copies the database once more, and opens it three times; a test compares the results.

// bootstrapTerm is the raft term with which the log of a restored cluster begins.
const bootstrapTerm = 1

// Prefixes of the old store, which etcd before 3.7 reads the members from.
const (
	storeClusterPrefix = "/0"
	storeKeysPrefix    = "/1"
)

// newCluster returns the cluster that will run on the data.
func newCluster(c *Config) (*membership.RaftCluster, *membership.Member, error) {
	urls, err := types.NewURLsMap(c.InitialCluster)
	if err != nil {
		return nil, nil, fmt.Errorf("restore: initial cluster %q: %w", c.InitialCluster, err)
	}
	cluster, err := membership.NewClusterFromURLsMap(zap.NewNop(), c.Token, urls)
	if err != nil {
		return nil, nil, fmt.Errorf("restore: initial cluster %q: %w", c.InitialCluster, err)
	}
	self := cluster.MemberByName(c.Name)
	if self == nil {
		return nil, nil, fmt.Errorf("restore: initial cluster %q has no member %q", c.InitialCluster, c.Name)
	}
	mine, err := types.NewURLs(c.PeerURLs)
	if err != nil {
		return nil, nil, fmt.Errorf("restore: peer URLs %v: %w", c.PeerURLs, err)
	}
	listed, wanted := slices.Sorted(slices.Values(self.PeerURLs)), slices.Sorted(slices.Values(mine.StringSlice()))
	if !slices.Equal(listed, wanted) {
		return nil, nil, fmt.Errorf("restore: initial cluster %q lists %q under %v, its peer URLs are %v", c.InitialCluster, c.Name, listed, wanted)
	}
	return cluster, self, nil
}

// replaceMembers replaces the members of the cluster from which the backup was taken.
func replaceMembers(tx *bolt.Tx, cluster *membership.RaftCluster) error {
	if _, err := empty(tx, schema.MembersRemoved.Name()); err != nil {
		return err
	}
	members, err := empty(tx, schema.Members.Name())
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucketIfNotExists(schema.Cluster.Name()); err != nil {
		return fmt.Errorf("create bucket %s: %w", schema.Cluster.Name(), err)
	}
	for _, m := range cluster.Members() {
		value, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("encode member %s: %w", m.Name, err)
		}
		if err := members.Put(schema.BackendMemberKey(m.ID), value); err != nil {
			return fmt.Errorf("put member %s: %w", m.Name, err)
		}
	}
	meta := tx.Bucket(schema.Meta.Name())
	return errors.Join(
		meta.Put(schema.MetaConsistentIndexKeyName, binary.BigEndian.AppendUint64(nil, uint64(len(cluster.MemberIDs())))),
		meta.Put(schema.MetaTermKeyName, binary.BigEndian.AppendUint64(nil, bootstrapTerm)),
	)
}

// writeLog writes the log of a cluster to which its members were just added, and its snapshot, from which etcd starts.
func writeLog(data string, cluster *membership.RaftCluster, self *membership.Member) (err error) {
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(uint64(self.ID)), ClusterID: new(uint64(cluster.ID()))})
	if err != nil {
		return fmt.Errorf("encode the metadata of the log: %w", err)
	}
	log, err := wal.Create(zap.NewNop(), filepath.Join(data, "member", "wal"), metadata)
	if err != nil {
		return fmt.Errorf("create the log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	entries, voters, err := additions(cluster)
	if err != nil {
		return err
	}
	commit := uint64(len(entries))
	hard := raftpb.HardState{Term: new(uint64(bootstrapTerm)), Vote: new(voters[0]), Commit: new(commit)}
	if err := log.Save(&hard, entries); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	store := v2store.New(storeClusterPrefix, storeKeysPrefix)
	cluster.Store(store)
	members, err := store.SaveNoCopy()
	if err != nil {
		return fmt.Errorf("encode the members: %w", err)
	}
	confState := &raftpb.ConfState{Voters: voters}
	err = snap.New(zap.NewNop(), filepath.Join(data, "member", "snap")).SaveSnap(&raftpb.Snapshot{
		Data: members, Metadata: &raftpb.SnapshotMetadata{Index: new(commit), Term: new(uint64(bootstrapTerm)), ConfState: confState},
	})
	if err != nil {
		return fmt.Errorf("write the snapshot of the members: %w", err)
	}
	if err := log.SaveSnapshot(&walpb.Snapshot{Index: new(commit), Term: new(uint64(bootstrapTerm)), ConfState: confState}); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// additions returns the entries of the log, one for each member, in the order of their IDs.
func additions(cluster *membership.RaftCluster) ([]*raftpb.Entry, []uint64, error) {
	var entries []*raftpb.Entry
	var voters []uint64
	for i, id := range cluster.MemberIDs() {
		member, err := json.Marshal(cluster.Member(id))
		if err != nil {
			return nil, nil, fmt.Errorf("encode member %s: %w", id, err)
		}
		change, err := proto.Marshal(&raftpb.ConfChange{
			Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(id)), Context: member,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("encode the addition of member %s: %w", id, err)
		}
		entries = append(entries, &raftpb.Entry{
			Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(bootstrapTerm)), Index: new(uint64(i + 1)), Data: change,
		})
		voters = append(voters, uint64(id))
	}
	return entries, voters, nil
}
