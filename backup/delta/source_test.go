package delta

import (
	"context"
	crand "crypto/rand"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/member"
)

// revisions is a member that responds with its revision, and whose watch delivers nothing.
type revisions struct {
	at atomic.Int64
	// during runs while it reads; nil for nothing.
	during func()
}

func (r *revisions) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	answer, ok := reply.(*etcdserverpb.RangeResponse)
	if !ok {
		return status.Error(codes.Unimplemented, "only its revision")
	}
	answer.Header = &etcdserverpb.ResponseHeader{Revision: r.at.Load()}
	if r.during != nil {
		r.during()
	}
	return nil
}

func (r *revisions) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unavailable, "no watch")
}

func recorderOf(t *testing.T, conn grpc.ClientConnInterface, from int64, observe func(Status)) *Recorder {
	t.Helper()
	r, err := NewRecorder(Config{Conn: conn, Store: directory(t), Key: keyOf, Lineage: lineage, From: from, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An etcd whose data went back looks idle, because its watch waits for future revisions. It must not count as saved.
func TestAnEtcdThatWentBackEndsTheRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := &revisions{}
		etcd.at.Store(100)
		var reported atomic.Pointer[Status]
		r := recorderOf(t, etcd, 101, func(s Status) { reported.Store(&s) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var running errgroup.Group
		running.Go(func() error { return r.Run(ctx) })
		time.Sleep(time.Minute)
		synctest.Wait()
		last := reported.Load()
		if idle := time.Since(last.SavedAt); last.Saved != 100 || idle > 2*DefaultPeriod {
			t.Errorf("an idle etcd, %s after the last beat: %+v", idle, last)
		}
		etcd.at.Store(99)
		back := time.Now()
		if err := running.Wait(); !errors.Is(err, ErrAhead) {
			t.Errorf("the recorder ended with %v, want %v", err, ErrAhead)
		}
		if last = reported.Load(); last.SavedAt.After(back) {
			t.Errorf("etcd went back at %s, and all is said to be saved until %s", back, last.SavedAt)
		}
		if _, err := r.Flush(t.Context()); !errors.Is(err, ErrAhead) {
			t.Errorf("flush: %v, want %v", err, ErrAhead)
		}
	})
}

// TestRevisionComparedWithEarlierSave: a revision is compared with what was saved before it was asked.
// What is saved while etcd responds says nothing about that response.
func TestRevisionComparedWithEarlierSave(t *testing.T) {
	t.Parallel()
	etcd := &revisions{}
	etcd.at.Store(100)
	r := recorderOf(t, etcd, 101, nil)
	etcd.during = func() { r.saved.Store(150) }
	if got, err := r.revision(t.Context()); got != 100 || err != nil {
		t.Errorf("%d, %v, want 100", got, err)
	}
	if _, err := r.revision(t.Context()); !errors.Is(err, ErrAhead) {
		t.Errorf("%v, want %v", err, ErrAhead)
	}
}

// away is a store that rejects every Put while it is away.
type away struct {
	store.Store
	is atomic.Bool
}

func (a *away) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if a.is.Load() {
		return store.Object{}, errors.New("503 Service Unavailable")
	}
	return a.Store.Put(ctx, key, r, o)
}

// TestStoreOutageKeepsRevisionAge: an outage of the store does not make revisions younger.
// While the store is away, nothing is read from the watch. What was written then is delivered when the store is back,
// and it has the time at which it was written, so that a restore to a time in the outage finds it.
func TestStoreOutageKeepsRevisionAge(t *testing.T) {
	t.Parallel()
	const outage = 12 * time.Second
	m := member.Start(t, "3.6", member.Options{})
	s := &away{Store: directory(t)}
	r := record(t, m, s, 2, func(c *Config) { c.Period, c.MaxBytes = MinPeriod, 64<<10 })
	acknowledged := map[int64]time.Time{}
	value := make([]byte, 16<<10)
	s.is.Store(true)
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for begin := time.Now(); time.Since(begin) < outage; {
		<-pace.C
		_, _ = crand.Read(value)
		p, err := m.Client.Put(t.Context(), "k", string(value))
		if err != nil {
			t.Fatal(err)
		}
		acknowledged[p.Header.Revision] = time.Now()
	}
	s.is.Store(false)
	r.flush()
	var worst time.Duration
	for _, record := range joined(t, 2, objects(t, s)) {
		if at, ok := acknowledged[record.Revision]; ok {
			worst = max(worst, record.At.Sub(at))
		}
	}
	// A read each second bounds the time; the rest is for a busy machine.
	if worst > outage/2 {
		t.Errorf("of %d revisions one bears a time %s after it was acknowledged", len(acknowledged), worst)
	}
}

func TestBoundsStayTrueAndFew(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	second := func(n int64) time.Time { return start.Add(time.Duration(n) * time.Second) }
	var b bounds
	const beats = 10 * maxBounds
	for n := range int64(beats) {
		b = b.add(beat{answered: second(n), revision: 10 * n})
		b = b.add(beat{answered: second(n).Add(time.Millisecond), revision: 10 * n}) // nothing was written meanwhile
	}
	if len(b) > maxBounds {
		t.Errorf("%d bounds wait, more than %d", len(b), maxBounds)
	}
	delivered := second(2 * beats)
	var at, before time.Time
	for revision := int64(1); revision <= 10*(beats-1); revision++ {
		at, b = b.of(revision, delivered)
		if there := second((revision + 9) / 10); at.Before(there) {
			t.Fatalf("revision %d bears %s, and was not there before %s", revision, at, there)
		}
		if at.Before(before) || !at.Before(delivered) {
			t.Fatalf("revision %d bears %s, after %s and delivered %s", revision, at, before, delivered)
		}
		before = at
	}
	if at, _ := b.of(10*beats, delivered); !at.Equal(delivered) {
		t.Errorf("a revision that no read saw bears %s, want when it was delivered", at)
	}
	if at, _ := (bounds{{answered: delivered, revision: 9}}).of(9, start); !at.Equal(start) {
		t.Errorf("one that was delivered before the answer bears %s", at)
	}
}
