package delta

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// likeEtcd is a message as a watch delivers it.
func likeEtcd(random *rand.Rand, events int) *etcdserverpb.WatchResponse {
	m := &etcdserverpb.WatchResponse{
		Header:  &etcdserverpb.ResponseHeader{ClusterId: random.Uint64(), MemberId: random.Uint64(), Revision: random.Int64(), RaftTerm: random.Uint64N(9)},
		WatchId: random.Int64N(3), Created: random.IntN(2) == 0, Canceled: random.IntN(2) == 0, CompactRevision: random.Int64N(2),
		CancelReason: fmt.Sprint("reason ", random.Uint32()), Fragment: random.IntN(2) == 0,
	}
	for range events {
		e := &mvccpb.Event{Type: mvccpb.Event_EventType(random.IntN(2)), Kv: &mvccpb.KeyValue{
			Key: fmt.Append(nil, "key-", random.Uint32()), Value: make([]byte, random.IntN(300)), CreateRevision: random.Int64N(5),
			ModRevision: random.Int64(), Version: random.Int64N(3), Lease: int64(random.Uint64()) * random.Int64N(2),
		}}
		if random.IntN(3) == 0 {
			e.PrevKv = &mvccpb.KeyValue{Key: e.Kv.Key, Value: []byte("before")}
		}
		m.Events = append(m.Events, e)
	}
	return m
}

func TestTheCodecReadsWhatProtobufReads(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	for i := range 500 {
		sent := likeEtcd(random, i%7)
		if i == 0 {
			sent = &etcdserverpb.WatchResponse{}
		}
		data, err := watchCodec{}.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		var got etcdserverpb.WatchResponse
		if err := (watchCodec{}).Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		for _, e := range sent.Events {
			e.PrevKv = nil // no one asked for it
		}
		if !proto.Equal(sent, &got) {
			t.Fatalf("read %v, want %v", &got, sent)
		}
	}
}

// Whatever arrives ends in an error, or in events of which each has its key and value.
func FuzzCodec(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 5))
	for i := range 5 {
		seed, err := proto.Marshal(likeEtcd(random, i))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var m etcdserverpb.WatchResponse
		if parseResponse(message, &m) != nil {
			return
		}
		for _, e := range m.Events {
			if e.Kv == nil {
				t.Error("an event without a key")
			}
		}
	})
}
