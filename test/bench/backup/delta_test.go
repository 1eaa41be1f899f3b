package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/test/member"
)

// recorded is what a recorder did, and what a process that only watched did next to it.
type recorded struct {
	events, perSecond, load float64
	usage
	alone usage
}

// measureDelta records writes that come at a rate, one revision each, and then some that come as fast as etcd takes them.
// Next to each recorder a process watches and does nothing with what it is reported.
func measureDelta(tb testing.TB, s size) *line {
	tb.Helper()
	m := run(tb, prepare(tb, s).base)
	t := task{Endpoint: m.Endpoint, Store: place(tb, "delta"), Prefix: prefix, Lineage: lineage}
	paced := recordAlongside(tb, m, t, s, s.events(), 0, s.rate)
	t.Prefix = "bench/full-speed"
	hurried := recordAlongside(tb, m, t, s, s.events()/5, 1, 0)
	m.Stop(tb)

	l := &line{name: "delta"}
	l.add("cpu_us_per_event", 1e6*paced.CPU/paced.events)
	l.add("watch_alone_cpu_us_per_event", 1e6*paced.alone.CPU/paced.events)
	l.add("rss_mib", paced.Resident/mib)
	l.add("rss_anon_mib", paced.AnonymousPeak/mib)
	l.add("writes_per_s", paced.perSecond)
	l.add("bytes_per_event", paced.More["bytes"]/paced.events)
	l.add("random_bytes_per_event", floorPerEvent)
	l.add("objects", paced.More["objects"])
	l.add("temp_disk_bytes", paced.Written)
	l.add("full_speed_writes_per_s", hurried.perSecond)
	l.add("full_speed_cpu_us_per_event", 1e6*hurried.CPU/hurried.events)
	l.add("full_speed_watch_alone_cpu_us_per_event", 1e6*hurried.alone.CPU/hurried.events)
	l.add("full_speed_rss_mib", hurried.Resident/mib)
	l.say("incumbent_cpu_us_per_event", "54-76")
	l.say("incumbent_bytes_per_event", "419")
	l.say("incumbent_rss_mib", "125-548")
	l.add("load", paced.load)
	return l
}

// recordAlongside makes n events while one process records them and another one watches.
func recordAlongside(tb testing.TB, m *member.Member, t task, s size, n, round, perSecond int) recorded {
	tb.Helper()
	t.From = revision(tb, m) + 1
	t.To = t.From - 1 + int64(n)
	t.Kind = "watch"
	watcher := begin(tb, t)
	t.Kind = "record"
	recorder := begin(tb, t)
	watcher.ready()
	recorder.ready()
	r := recorded{events: float64(n), perSecond: traffic(tb, m.Client, s, n, round, perSecond), load: load(tb)}
	r.usage, r.alone = recorder.wait(), watcher.wait()
	if got := revision(tb, m); got != t.To || r.More["events"] != r.events {
		tb.Fatalf("etcd is at revision %d, want %d; %.0f events were saved, want %.0f", got, t.To, r.More["events"], r.events)
	}
	return r
}

func revision(tb testing.TB, m *member.Member) int64 {
	tb.Helper()
	r, err := m.Client.Get(tb.Context(), "\x00", clientv3.WithCountOnly())
	if err != nil {
		tb.Fatal(err)
	}
	return r.Header.Revision
}

// record saves revisions From to To.
func record(ctx context.Context, t task) (map[string]float64, error) {
	c, err := transport.Transport{}.Listener(ctx, t.Endpoint)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s, err := t.store(ctx)
	if err != nil {
		return nil, err
	}
	status, err := c.Status(ctx, t.Endpoint)
	if err != nil {
		return nil, err
	}
	w := &tally{to: t.To, done: make(chan struct{})}
	r, err := delta.NewRecorder(delta.Config{
		Conn: c.ActiveConnection(), Store: s, Lineage: string(t.Lineage), ClusterID: status.Header.ClusterId,
		From: t.From, Observe: w.observe,
		Key: func(from, to int64, at time.Time) string { return catalog.DeltaKey(t.Prefix, t.Lineage, from, to, at) },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running errgroup.Group
	running.Go(func() error { return r.Run(ctx) })
	<-w.done
	cancel()
	err = running.Wait()
	return map[string]float64{"bytes": float64(w.bytes), "objects": float64(w.objects), "events": float64(w.events)}, err
}

// tally sums up what was saved.
type tally struct {
	to    int64
	once  sync.Once
	done  chan struct{}
	saved int64

	bytes, events int64
	objects       int
}

func (w *tally) observe(s delta.Status) {
	w.once.Do(func() { fmt.Fprintln(os.Stdout, "ready") })
	if s.SaveError != nil || s.WatchError != nil {
		fmt.Fprintln(os.Stderr, "backup bench: record:", errors.Join(s.SaveError, s.WatchError))
	}
	if s.Object.Key == "" || s.Saved == w.saved {
		return
	}
	w.saved = s.Saved
	w.objects++
	w.bytes += s.Object.Size
	w.events += s.Object.Header.Events
	if w.saved >= w.to {
		close(w.done)
	}
}

// watchOnly takes the events off the wire and forgets them: the least that a recorder costs.
func watchOnly(ctx context.Context, t task) (map[string]float64, error) {
	c, err := transport.Transport{}.Listener(ctx, t.Endpoint)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stream, err := etcdserverpb.NewWatchClient(c.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		return nil, err
	}
	create := &etcdserverpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: t.From, Fragment: true}
	request := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}
	if err := stream.Send(request); err != nil {
		return nil, err
	}
	for events, messages := 0, 0; ; {
		r, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if r.Created {
			fmt.Fprintln(os.Stdout, "ready")
		}
		messages++
		events += len(r.Events)
		if n := len(r.Events); n > 0 && r.Events[n-1].Kv.ModRevision >= t.To {
			return map[string]float64{"events": float64(events), "messages": float64(messages)}, nil
		}
	}
}
