package delta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/internal/loop"
)

// firstRevision is the first revision with a change. A store without any change is at revision 1.
const firstRevision = 2

// Backoff after what failed, doubled each time, with up to half as much again by chance, so that the agents of many
// clusters do not come at once to a store that just came back.
const (
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 20 * time.Second
)

// change is an event and its position in its revision.
type change struct {
	*mvccpb.Event
	sub int64
}

// delivery is the content of one message of the watch.
type delivery struct {
	member  uint64
	at      time.Time
	changes []change
	// whole: the last change's revision is complete.
	whole bool
	// err says why the watch broke; it is fatal when nothing follows.
	err   error
	fatal bool
}

// watcher reads the watch without the client library of etcd. That library buffers unread events in memory without a
// limit and resumes a broken watch by itself, where revisions may already be compacted. On a plain stream, unread
// events stay in etcd.
type watcher struct {
	conn    grpc.ClientConnInterface
	cluster uint64
	now     func() time.Time
	out     chan<- delivery
	seq     sequence
	// before: the revision before the first one is asked for too, so that its digest becomes known, and nothing came yet.
	before bool
}

// compactedError is the response of etcd to a watch of compacted revisions.
type compactedError struct{ revision int64 }

func (e compactedError) Error() string { return fmt.Sprintf("compacted up to revision %d", e.revision) }

// newWatcher begins at revision from. It also delivers the revision before that if etcd still has all of it.
func newWatcher(conn grpc.ClientConnInterface, cluster uint64, now func() time.Time, from int64, out chan<- delivery) *watcher {
	w := &watcher{conn: conn, cluster: cluster, now: now, out: out}
	// All revisions after the first one at which a watch may begin are complete.
	w.before = from-2 >= 1
	w.seq = sequence{main: max(from-2, 1), whole: true}
	return w
}

// run watches until ctx ends or the sequence cannot continue.
func (w *watcher) run(ctx context.Context) error {
	wait := newBackoff()
	for {
		main, sub := w.seq.main, w.seq.sub
		err := w.watch(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it broke because it was to end
		}
		if main != w.seq.main || sub != w.seq.sub {
			wait.Reset()
		}
		compacted, isCompacted := errors.AsType[compactedError](err)
		switch {
		case isCompacted && w.before && compacted.revision == w.seq.main+1:
			// The revision before the first one is the one that etcd compacted at: the first one is whole. Once anything came,
			// what follows it is to be saved, and a compaction there loses it.
			w.before = false
			w.seq = sequence{main: compacted.revision, whole: true}
			continue
		case isCompacted:
			err = fmt.Errorf("%w: saved up to revision %d, but etcd compacted up to %d", ErrCompacted, w.seq.main, compacted.revision)
			return w.deliver(ctx, delivery{err: err, fatal: true})
		case errors.Is(err, ErrGap) || errors.Is(err, errOtherCluster):
			return w.deliver(ctx, delivery{err: err, fatal: true})
		}
		if ended := w.deliver(ctx, delivery{err: err}); ended != nil || !pause(ctx, wait.Next()) {
			return nil //nolint:nilerr // the loop was reported why it broke; ctx ended
		}
	}
}

var errOtherCluster = errors.New("another cluster answered")

// watch reads one stream until it breaks.
func (w *watcher) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
	defer cancel()
	// A message is a fragment of at most --max-request-bytes of etcd, or one event.
	stream, err := etcdserverpb.NewWatchClient(w.conn).Watch(ctx, grpc.MaxCallRecvMsgSize(MaxBlock), grpc.ForceCodecV2(watchCodec{}))
	if err != nil {
		return fmt.Errorf("watch etcd: %w", err)
	}
	start := w.seq.startAt()
	create := &etcdserverpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: start, Fragment: true}
	request := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}
	if err := stream.Send(request); err != nil {
		return fmt.Errorf("watch etcd from revision %d: %w", start, err)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("watch etcd after revision %d: %w", w.seq.main, err)
		}
		if err := w.handle(ctx, response); err != nil {
			return err
		}
	}
}

func (w *watcher) handle(ctx context.Context, response *etcdserverpb.WatchResponse) error {
	header := response.GetHeader()
	switch {
	case response.CompactRevision != 0:
		return compactedError{response.CompactRevision}
	case response.Canceled:
		return fmt.Errorf("etcd cancelled the watch after revision %d: %s", w.seq.main, response.CancelReason)
	case w.cluster != 0 && header.GetClusterId() != w.cluster:
		return fmt.Errorf("%w: %x, want %x", errOtherCluster, header.GetClusterId(), w.cluster)
	case response.Created:
		return w.deliver(ctx, delivery{member: header.GetMemberId(), at: w.now(), whole: w.seq.whole})
	case len(response.Events) == 0:
		return nil
	}
	d := delivery{member: header.GetMemberId(), at: w.now(), changes: make([]change, 0, len(response.Events))}
	for _, e := range response.Events {
		sub, isNew, err := w.seq.take(e)
		if err != nil {
			return err
		}
		if isNew {
			w.before = false
			d.changes = append(d.changes, change{e, sub})
		}
	}
	if !response.Fragment {
		w.seq.end(response.Events[len(response.Events)-1].Kv.ModRevision)
	}
	d.whole = w.seq.whole
	return w.deliver(ctx, d)
}

// deliver waits until the delivery is taken. Nothing is read from the watch meanwhile.
func (w *watcher) deliver(ctx context.Context, d delivery) error {
	select {
	case w.out <- d:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newBackoff() loop.Backoff { return loop.Backoff{First: firstBackoff, Last: lastBackoff} }

// pause waits up to half as long again. It returns false if ctx ended first.
func pause(ctx context.Context, wait time.Duration) bool { return loop.Sleep(ctx, wait+rand.N(wait/2)) }

// watchCodec decodes the messages of a watch as proto.Unmarshal does, at a fifth of the cost: keys and values are not
// copied, and all events of a message are allocated together.
type watchCodec struct{}

func (watchCodec) Name() string { return "proto" }

func (watchCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("send a %T to etcd", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (watchCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*etcdserverpb.WatchResponse)
	if !ok {
		return fmt.Errorf("receive a %T from a watch", v)
	}
	return parseResponse(data.Materialize(), m) // which is a copy, and ours to keep
}

var errMessage = errors.New("a message from etcd is malformed")

// eachField calls f for the fields of a message: with v for a number, with b for bytes. It skips all other types.
func eachField(message []byte, f func(field int, v uint64, b []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errMessage
		}
		message = message[n:]
		field := int(number)
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(message)
			b = slices.Clip(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
			field = 0 // an unknown field
		}
		if n < 0 {
			return errMessage
		}
		if err := f(field, v, b); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// Numbers of the fields that are read of WatchResponse, ResponseHeader and Event.
const (
	responseHeader, responseWatchID, responseCreated, responseCanceled = 1, 2, 3, 4
	responseCompacted, responseReason, responseFragment                = 5, 6, 7
	responseEvents                                                     = 11

	headerCluster, headerMember, headerRevision, headerTerm = 1, 2, 3, 4

	eventType, eventKv = 1, 2
)

func parseResponse(message []byte, m *etcdserverpb.WatchResponse) error {
	events := 0
	if err := eachField(message, func(field int, _ uint64, _ []byte) error {
		if field == responseEvents {
			events++
		}
		return nil
	}); err != nil {
		return err
	}
	all, kvs := make([]mvccpb.Event, events), make([]mvccpb.KeyValue, events)
	if events > 0 {
		m.Events = make([]*mvccpb.Event, 0, events)
	}
	return eachField(message, func(field int, v uint64, b []byte) error {
		switch field {
		case responseHeader:
			m.Header = &etcdserverpb.ResponseHeader{}
			return parseHeader(b, m.Header)
		case responseWatchID:
			m.WatchId = int64(v)
		case responseCreated:
			m.Created = v != 0
		case responseCanceled:
			m.Canceled = v != 0
		case responseCompacted:
			m.CompactRevision = int64(v)
		case responseReason:
			m.CancelReason = string(b)
		case responseFragment:
			m.Fragment = v != 0
		case responseEvents:
			i := len(m.Events)
			m.Events = append(m.Events, &all[i])
			return parseEvent(b, &all[i], &kvs[i])
		}
		return nil
	})
}

func parseHeader(message []byte, h *etcdserverpb.ResponseHeader) error {
	return eachField(message, func(field int, v uint64, _ []byte) error {
		switch field {
		case headerCluster:
			h.ClusterId = v
		case headerMember:
			h.MemberId = v
		case headerRevision:
			h.Revision = int64(v)
		case headerTerm:
			h.RaftTerm = v
		}
		return nil
	})
}

func parseEvent(message []byte, e *mvccpb.Event, kv *mvccpb.KeyValue) error {
	err := eachField(message, func(field int, v uint64, b []byte) error {
		switch field {
		case eventType:
			e.Type = mvccpb.Event_EventType(v)
		case eventKv:
			e.Kv = kv
			return parseKeyValue(b, kv)
		}
		return nil
	})
	if err == nil && e.Kv == nil {
		err = errMessage
	}
	return err
}

func parseKeyValue(message []byte, kv *mvccpb.KeyValue) error {
	return eachField(message, func(field int, v uint64, b []byte) error {
		switch field {
		case fieldKey:
			kv.Key = b
		case fieldCreateRevision:
			kv.CreateRevision = int64(v)
		case fieldModRevision:
			kv.ModRevision = int64(v)
		case fieldVersion:
			kv.Version = int64(v)
		case fieldValue:
			kv.Value = b
		case fieldLease:
			kv.Lease = int64(v)
		}
		return nil
	})
}
