package restore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

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
)

// All that follows is what etcdutl's snapshot restore does (go.etcd.io/etcd/etcdutl/v3/snapshot), by the same packages of
// etcd. etcdutl itself copies the database once more, and opens it three times; a test compares the results.

// birthTerm is the raft term of the log that a restored cluster begins with.
const bootstrapTerm = 1

// Prefixes of the old store, which etcd before 3.7 reads the members from.
const (
	storeClusterPrefix = "/0"
	storeKeysPrefix    = "/1"
)

// newCluster is the cluster that will run on the data.
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

// replaceMembers forgets the members that the snapshot is of.
func replaceMembers(tx *bolt.Tx, cluster *membership.RaftCluster) error {
	if _, err := empty(tx, schema.MembersRemoved.Name()); err != nil {
		return err
	}
	members, err := empty(tx, schema.Members.Name())
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucketIfNotExists(schema.Cluster.Name()); err != nil {
		return fmt.Errorf("make bucket %s: %w", schema.Cluster.Name(), err)
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

// writeLog writes the log of a cluster to which its members were just added, and the snapshot of it that etcd begins at.
func writeLog(data string, cluster *membership.RaftCluster, self *membership.Member) (err error) {
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(uint64(self.ID)), ClusterID: new(uint64(cluster.ID()))})
	if err != nil {
		return fmt.Errorf("encode the log's metadata: %w", err)
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

// additions are the log's entries, one for each member, in the order of their IDs.
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
