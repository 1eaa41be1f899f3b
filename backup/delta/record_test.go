package delta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// likeEtcd returns a message as a watch delivers it.
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
			e.PrevKv = nil // not requested
		}
		if !proto.Equal(sent, &got) {
			t.Fatalf("read %v, want %v", &got, sent)
		}
	}
}

// Any input gives an error, or events that each have a key and a value.
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

func TestASequenceTakesEachEventOnce(t *testing.T) {
	type step struct {
		revision int64
		sub      int64 // -1: not new
		ends     bool  // the response ends behind it
		broke    bool  // the watch broke before it
	}
	for name, c := range map[string]struct {
		steps []step
		start int64 // where the next watch begins
		gap   bool  // the last step is refused
	}{
		"what is before the first": {steps: []step{{revision: 10, sub: -1}, {revision: 11, sub: 0, ends: true}}, start: 11},
		"a revision of several":    {steps: []step{{revision: 11, sub: 0}, {revision: 11, sub: 1}, {revision: 12, sub: 0, ends: true}}, start: 12},
		"a hole":                   {steps: []step{{revision: 11, sub: 0, ends: true}, {revision: 13}}, gap: true},
		"a hole at the beginning":  {steps: []step{{revision: 12}}, gap: true},
		"broken between revisions": {
			steps: []step{{revision: 11, sub: 0, ends: true}, {revision: 11, sub: -1, broke: true}, {revision: 12, sub: 0}}, start: 11},
		"broken within one": {steps: []step{{revision: 11, sub: 0}}, start: 10},
		"taken up within one": {
			steps: []step{{revision: 11, sub: 0}, {revision: 11, sub: -1, broke: true}, {revision: 11, sub: 1}, {revision: 12, sub: 0, ends: true}}, start: 12},
		"broken twice within one": {steps: []step{{revision: 11, sub: 0}, {revision: 11, sub: 1}, {revision: 11, sub: -1, broke: true},
			{revision: 11, sub: -1, broke: true}, {revision: 11, sub: -1}, {revision: 11, sub: 2, ends: true}},
			start: 11},
		"an old response ends within one": {
			steps: []step{{revision: 11, sub: 0}, {revision: 10, sub: -1, broke: true, ends: true}, {revision: 11, sub: -1}}, start: 10},
		"the rest of one never comes": {
			steps: []step{{revision: 11, sub: 0}, {revision: 11, sub: 1}, {revision: 11, sub: -1, broke: true}, {revision: 12}}, gap: true},
		"one that had begun does not come back": {steps: []step{{revision: 11, sub: 0}, {revision: 12, broke: true}}, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := sequence{main: 10, whole: true}
			s.startAt()
			for i, step := range c.steps {
				if step.broke {
					s.startAt()
				}
				sub, isNew, err := s.take(&mvccpb.Event{Kv: &mvccpb.KeyValue{ModRevision: step.revision}})
				if c.gap && i == len(c.steps)-1 {
					if !errors.Is(err, ErrGap) {
						t.Fatalf("step %d: %v, want ErrGap", i, err)
					}
					return
				}
				if err != nil || isNew != (step.sub >= 0) || isNew && sub != step.sub {
					t.Fatalf("step %d: %d, %t, %v, want %d", i, sub, isNew, err, step.sub)
				}
				if step.ends {
					s.end(step.revision)
				}
			}
			if got := s.startAt(); got != c.start {
				t.Errorf("the next watch begins at %d, want %d", got, c.start)
			}
		})
	}
}

// Whatever the watch delivers, there is no gap between two delta backups. Nothing in the store would report it.
func TestNoHoleIsAppendedBetweenTwoDeltas(t *testing.T) {
	for name, c := range map[string]struct {
		revision int64
		gap      bool
	}{
		"the one before the first": {revision: 10},
		"the first":                {revision: 11},
		"one behind the first":     {revision: 12, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRecording(recorderOf(t, &revisions{}, 11, nil))
			l.book = newLeaseBook(l.cfg.Conn, l.cfg.Now)
			l.receive(delivery{at: start, changes: []change{{Event: &mvccpb.Event{Kv: &mvccpb.KeyValue{ModRevision: c.revision}}}}, whole: true})
			if err := l.append(); errors.Is(err, ErrGap) != c.gap || !c.gap && err != nil {
				t.Errorf("%v, want a gap: %t", err, c.gap)
			}
		})
	}
}

func TestBeatsReportWhatIsSaved(t *testing.T) {
	var b beats
	for i := range int64(3) {
		b = b.add(beat{at: start.Add(maxWait * time.Duration(i)), revision: 10 + i})
	}
	b = b.add(beat{at: start.Add(3 * maxWait), revision: 12}) // which says more than the one before
	if rest, at := b.saved(9); len(rest) != 3 || !at.IsZero() {
		t.Errorf("saved up to 9: %v, %s", rest, at)
	}
	if rest, at := b.saved(11); len(rest) != 1 || !at.Equal(start.Add(maxWait)) {
		t.Errorf("saved up to 11: %v, %s", rest, at)
	}
	if rest, at := b.saved(12); len(rest) != 0 || !at.Equal(start.Add(3*maxWait)) {
		t.Errorf("saved up to 12: %v, %s", rest, at)
	}
	for i := range int64(10 * maxBeats) {
		b = b.add(beat{at: start, revision: 100 + i})
	}
	if len(b) != maxBeats || b[len(b)-1].revision != 99+10*maxBeats {
		t.Errorf("%d beats wait, the last for %d", len(b), b[len(b)-1].revision)
	}
}

// leaseServer responds that each lease is gone, and with an invalid list.
type leaseServer struct {
	etcdserverpb.LeaseClient
	listed int64
	err    error
}

func (s leaseServer) LeaseLeases(context.Context, *etcdserverpb.LeaseLeasesRequest, ...grpc.CallOption) (*etcdserverpb.LeaseLeasesResponse, error) {
	r := &etcdserverpb.LeaseLeasesResponse{}
	for i := range s.listed {
		r.Leases = append(r.Leases, &etcdserverpb.LeaseStatus{ID: 1<<40 + i})
	}
	return r, s.err
}

func (leaseServer) LeaseTimeToLive(context.Context, *etcdserverpb.LeaseTimeToLiveRequest, ...grpc.CallOption) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	return &etcdserverpb.LeaseTimeToLiveResponse{TTL: -1}, nil
}

func TestTheLeaseBookIsBoundedWithoutAList(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]leaseServer{
		"too many are alive": {listed: MaxAlive + 1},
		"etcd does not list": {err: errors.New("no leader")},
	} {
		t.Run(name, func(t *testing.T) {
			at := start
			b := newLeaseBook(nil, func() time.Time { return at })
			b.client = server
			ctx, cancel := context.WithCancel(t.Context())
			var asking errgroup.Group
			asking.Go(func() error { return b.run(ctx) })
			const each = 500
			for round := range int64(5) {
				referenced := map[int64]*leaseEntry{}
				for i := range int64(each) {
					id := round*each + i + 1
					referenced[id], _ = b.see(id)
				}
				if l := b.collect(ctx, referenced); l.Known || len(l.Records) != each {
					t.Fatalf("round %d: known %t, %d records", round, l.Known, len(l.Records))
				}
				if len(b.known) > 2*each {
					t.Fatalf("round %d: the book holds %d leases, and %d were referenced", round, len(b.known), each)
				}
				at = at.Add(10 * leaseMemory)
				b.collect(ctx, referenced)
				for id, entry := range referenced {
					if got, isNew := b.see(id); isNew || got != entry {
						t.Fatalf("lease %d, which was just referenced, was forgotten", id)
					}
				}
			}
			cancel()
			if err := asking.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
