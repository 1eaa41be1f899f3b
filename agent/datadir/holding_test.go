package datadir

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func TestHoldingIsWhatEtcdHad(t *testing.T) {
	dir := servedVolume(t)
	r, err := Inspect(t.Context(), dir, Options{EtcdVersion: "3.7.3"})
	must(t, err)
	h, err := ReadHolding(t.Context(), dir, r)
	must(t, err)
	// Each of the 2020 puts made one revision after the first.
	want := Holding{Revision: 2021, Voters: []uint64{r.MemberID}, Tail: r.Last.Index - r.ConsistentIndex}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	at := r.Snapshot.Index
	setMeta(schema.MetaConsistentIndexKeyName, binary.BigEndian.AppendUint64(nil, at))(t, dir)
	r, err = Inspect(t.Context(), dir, Options{EtcdVersion: "3.7.3"})
	must(t, err)
	if h, err = ReadHolding(t.Context(), dir, r); err != nil || h.Tail != r.Last.Index-at || h.Tail == 0 {
		t.Errorf("%+v, %v; want a tail of %d entries", h, err, r.Last.Index-at)
	}
}

// A voter counts until its removal is certain, and from the moment that it can vote.
func TestVotersFollowTheLog(t *testing.T) {
	change := func(kind raftpb.ConfChangeType, id uint64) []byte {
		raw, err := proto.Marshal(&raftpb.ConfChange{Type: kind.Enum(), NodeId: &id})
		must(t, err)
		return raw
	}
	voters, uncommitted := map[uint64]bool{1: true, 2: true, 3: true}, map[uint64]bool{}
	for i, data := range [][]byte{
		change(raftpb.ConfChangeAddLearnerNode, 4), change(raftpb.ConfChangeRemoveNode, 2), change(raftpb.ConfChangeAddNode, 4),
		change(raftpb.ConfChangeUpdateNode, 9), change(raftpb.ConfChangeRemoveNode, 3), change(raftpb.ConfChangeAddNode, 5),
		change(raftpb.ConfChangeAddNode, 4),
	} {
		e := &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Index: new(uint64(i + 1)), Data: data}
		must(t, changeVoters(e, voters, uncommitted, 3))
	}
	must(t, changeVoters(&raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Data: []byte("a write")}, voters, uncommitted, 3))
	if got := slices.Sorted(maps.Keys(voters)); !slices.Equal(got, []uint64{1, 3, 4, 5}) {
		t.Errorf("voters %v, want 1, 3, 4 and 5", got)
	}
	if got := slices.Sorted(maps.Keys(uncommitted)); !slices.Equal(got, []uint64{5}) {
		t.Errorf("voters that only changes after the commit index add: %v, want 5", got)
	}
}

// The alarms of a database and of the entries after it are known: also one that was raised right before etcd ended.
func TestAlarmsFollowTheLog(t *testing.T) {
	marshal := func(m proto.Message) []byte {
		raw, err := proto.Marshal(m)
		must(t, err)
		return raw
	}
	dir := servedVolume(t)
	db, err := bolt.Open(dbPath(dir), 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		alarms, err := tx.CreateBucketIfNotExists(schema.Alarm.Name())
		must(t, err)
		for id, kind := range map[uint64]etcdserverpb.AlarmType{7: etcdserverpb.AlarmType_CORRUPT, 8: etcdserverpb.AlarmType_NOSPACE} {
			must(t, alarms.Put(marshal(&etcdserverpb.AlarmMember{MemberID: id, Alarm: kind}), nil))
		}
		return nil
	}))
	must(t, db.Close())
	r, err := Inspect(t.Context(), dir, Options{EtcdVersion: "3.7.3"})
	must(t, err)
	h, err := ReadHolding(t.Context(), dir, r)
	if err != nil || !slices.Equal(h.Corrupt, []uint64{7}) {
		t.Errorf("%+v, %v; want an alarm of member 7", h, err)
	}
	corrupt := map[uint64]bool{7: true}
	for _, request := range []*etcdserverpb.AlarmRequest{
		{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 9, Alarm: etcdserverpb.AlarmType_CORRUPT},
		{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 5, Alarm: etcdserverpb.AlarmType_NOSPACE},
		{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: 7, Alarm: etcdserverpb.AlarmType_CORRUPT},
		{Action: etcdserverpb.AlarmRequest_GET, MemberID: 4, Alarm: etcdserverpb.AlarmType_CORRUPT},
	} {
		changeAlarms(&raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Data: marshal(&etcdserverpb.InternalRaftRequest{Alarm: request})}, corrupt)
	}
	changeAlarms(&raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Data: []byte("a write")}, corrupt)
	if got := slices.Sorted(maps.Keys(corrupt)); !slices.Equal(got, []uint64{9}) {
		t.Errorf("alarms of %v, want 9", got)
	}
}
