package datadir

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
	// Uncommitted are the voters that only changes after the commit index add. Such a change may never happen either.
	Uncommitted []uint64
	// Tail is the number of entries that the database has not applied.
	Tail uint64
	// Corrupt are the IDs of the members that an alarm CORRUPT names, in order. etcd writes the ID 0 if it does not know which member it is.
	Corrupt []uint64
}

// ReadHolding reads the database of data that was inspected, and the changes of members in its log.
func ReadHolding(ctx context.Context, dir string, r Report) (Holding, error) {
	h, voters, uncommitted, corrupt := Holding{}, map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
	db, err := bolt.Open(r.DB, 0, &bolt.Options{ReadOnly: true, Timeout: openTimeout, NoStatistics: true})
	if err != nil {
		return h, fmt.Errorf("open %s: %w", r.DB, err)
	}
	err = guarded(func() error {
		return db.View(func(tx *bolt.Tx) error {
			h.Revision = revisionIn(tx)
			alarmsIn(tx, corrupt)
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
		changeAlarms(e, corrupt)
		return changeVoters(e, voters, uncommitted, r.Commit)
	})
	if err != nil {
		return Holding{}, err
	}
	h.Voters, h.Uncommitted, h.Corrupt = sorted(voters), sorted(uncommitted), sorted(corrupt)
	return h, nil
}

func sorted(ids map[uint64]bool) []uint64 { return slices.Sorted(maps.Keys(ids)) }

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

// alarmsIn finds the members that an alarm CORRUPT names.
func alarmsIn(tx *bolt.Tx, corrupt map[uint64]bool) {
	alarms := tx.Bucket(schema.Alarm.Name())
	if alarms == nil {
		return
	}
	c := alarms.Cursor()
	for key, _ := c.First(); key != nil; key, _ = c.Next() {
		var a etcdserverpb.AlarmMember
		if proto.Unmarshal(key, &a) == nil && a.GetAlarm() == etcdserverpb.AlarmType_CORRUPT {
			corrupt[a.GetMemberID()] = true
		}
	}
}

// changeAlarms applies an entry that raises or disarms an alarm CORRUPT.
func changeAlarms(e *raftpb.Entry, corrupt map[uint64]bool) {
	var r etcdserverpb.InternalRaftRequest
	if e.GetType() != raftpb.EntryNormal || proto.Unmarshal(e.Data, &r) != nil || r.GetAlarm().GetAlarm() != etcdserverpb.AlarmType_CORRUPT {
		return
	}
	switch r.GetAlarm().GetAction() {
	case etcdserverpb.AlarmRequest_ACTIVATE:
		corrupt[r.GetAlarm().GetMemberID()] = true
	case etcdserverpb.AlarmRequest_DEACTIVATE:
		delete(corrupt, r.GetAlarm().GetMemberID())
	case etcdserverpb.AlarmRequest_GET:
	}
}

func changeVoters(e *raftpb.Entry, voters, uncommitted map[uint64]bool, commit uint64) error {
	if e.GetType() != raftpb.EntryConfChange {
		return nil
	}
	var c raftpb.ConfChange
	if err := proto.Unmarshal(e.Data, &c); err != nil {
		return fmt.Errorf("decode the change of members at index %d: %w", e.GetIndex(), err)
	}
	switch c.GetType() {
	case raftpb.ConfChangeAddNode:
		if e.GetIndex() > commit && !voters[c.GetNodeId()] {
			uncommitted[c.GetNodeId()] = true
		}
		voters[c.GetNodeId()] = true
	case raftpb.ConfChangeRemoveNode:
		if e.GetIndex() <= commit {
			delete(voters, c.GetNodeId())
		}
	case raftpb.ConfChangeUpdateNode, raftpb.ConfChangeAddLearnerNode:
	}
	return nil
}
