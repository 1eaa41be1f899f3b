package delta

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// revisions is a member that says which revision it is at, and whose watch reports nothing.
type revisions struct {
	at atomic.Int64
	// during is called while it reads; nil for nothing.
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

// An etcd whose data went back looks idle: its watch waits for what follows. It must not count as saved.
func TestAnEtcdThatWentBackEndsTheRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := &revisions{}
		etcd.at.Store(100)
		var notified atomic.Pointer[Status]
		r := recorderOf(t, etcd, 101, func(s Status) { notified.Store(&s) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var running errgroup.Group
		running.Go(func() error { return r.Run(ctx) })
		time.Sleep(time.Minute)
		synctest.Wait()
		last := notified.Load()
		if idle := time.Since(last.SavedAt); last.Saved != 100 || idle > 2*DefaultPeriod {
			t.Errorf("an idle etcd, %s after the last beat: %+v", idle, last)
		}
		etcd.at.Store(99)
		back := time.Now()
		if err := running.Wait(); !errors.Is(err, ErrAhead) {
			t.Errorf("the recorder ended with %v, want %v", err, ErrAhead)
		}
		if last = notified.Load(); last.SavedAt.After(back) {
			t.Errorf("etcd went back at %s, and all is said to be saved until %s", back, last.SavedAt)
		}
		if _, err := r.Flush(t.Context()); !errors.Is(err, ErrAhead) {
			t.Errorf("flush: %v, want %v", err, ErrAhead)
		}
	})
}

// What is saved while etcd answers says nothing of the answer.
func TestARevisionIsComparedWithWhatWasSavedBeforeItWasAsked(t *testing.T) {
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
