package datadir

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Holding is what a database and the tail of its log say about the cluster.
type Holding struct {
	// Revision of the database. Entries of the tail can add to it.
	Revision int64
	// Voters are the IDs of the voters in the database and in later changes in the log, in order. A removal that is not
	// committed may never happen, so the voter is still among them.
	Voters []uint64
	// Tail is the number of entries that the database has not applied.
	Tail uint64
}

// ReadHolding reads the database of data that was inspected, and the changes of members in its log.
func ReadHolding(ctx context.Context, dir string, r Report) (Holding, error) {
	h, voters := Holding{}, map[uint64]bool{}
	db, err := bolt.Open(r.DB, 0, &bolt.Options{ReadOnly: true, Timeout: openTimeout, NoStatistics: true})
	if err != nil {
		return h, fmt.Errorf("open %s: %w", r.DB, err)
	}
	err = guarded(func() error {
		return db.View(func(tx *bolt.Tx) error {
			h.Revision = revisionIn(tx)
			return votersIn(tx, voters)
		})
	})
	if closed := db.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return Holding{}, fmt.Errorf("read %s: %w", r.DB, err)
	}
	tail, err := ReadTail(ctx, dir, r.ConsistentIndex)
	if err != nil {
		return Holding{}, err
	}
	err = tail.Each(ctx, func(e *raftpb.Entry) error {
		h.Tail++
		return changeVoters(e, voters, r.Commit)
	})
	if err != nil {
		return Holding{}, err
	}
	h.Voters = slices.Sorted(maps.Keys(voters))
	return h, nil
}

// revisionSize is the size of the main part of a key in etcd's key bucket.
const revisionSize = 8

func revisionIn(tx *bolt.Tx) int64 {
	keys := tx.Bucket(schema.Key.Name())
	if keys == nil {
		return 0
	}
	last, _ := keys.Cursor().Last()
	if len(last) < revisionSize {
		return 0
	}
	return int64(binary.BigEndian.Uint64(last)) //nolint:gosec // etcd writes an int64
}

func votersIn(tx *bolt.Tx, voters map[uint64]bool) error {
	members := tx.Bucket(schema.Members.Name())
	if members == nil {
		return nil
	}
	return members.ForEach(func(_, value []byte) error {
		var m membership.Member
		if err := json.Unmarshal(value, &m); err != nil {
			return damaged(BadBackend, "decode a member: %v", err)
		}
		if !m.IsLearner {
			voters[uint64(m.ID)] = true
		}
		return nil
	})
}

func changeVoters(e *raftpb.Entry, voters map[uint64]bool, commit uint64) error {
	if e.GetType() != raftpb.EntryConfChange {
		return nil
	}
	var c raftpb.ConfChange
	if err := proto.Unmarshal(e.Data, &c); err != nil {
		return fmt.Errorf("decode the change of members at index %d: %w", e.GetIndex(), err)
	}
	switch c.GetType() {
	case raftpb.ConfChangeAddNode:
		voters[c.GetNodeId()] = true
	case raftpb.ConfChangeRemoveNode:
		if e.GetIndex() <= commit {
			delete(voters, c.GetNodeId())
		}
	case raftpb.ConfChangeUpdateNode, raftpb.ConfChangeAddLearnerNode:
	}
	return nil
}
