package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// writePace leaves the machine's cores to the clusters; a gap is measured to within it.
	writePace = 25 * time.Millisecond
	// writeTimeout is shorter than the client's own limit, so that a write that hangs on a dead member is tried again.
	writeTimeout = 2 * time.Second
	writePrefix  = "/steady/"
	// loadLanes write side by side, each once in loadPace: 240 writes per second, of which a busy machine loses half.
	loadLanes = 12
	loadPace  = 50 * time.Millisecond
)

// lastLane counts the lanes of all writers. A lane has keys of its own, so that two writers at one cluster replace no write of each other.
var lastLane atomic.Int64

// Writer writes without a pause and remembers every write that etcd acknowledged.
type Writer struct {
	etcd          *clientv3.Client
	pace, timeout time.Duration
	group         *errgroup.Group
	stop          context.CancelFunc

	begun time.Time

	mu      sync.Mutex
	acked   map[string]int64     // key to revision
	at      map[string]time.Time // key to when etcd acknowledged it
	lastAck time.Time
	from    time.Time     // what is counted in longest began then at the earliest
	longest time.Duration // since the last call of Gap
	worst   time.Duration // of all
	failed  int
	lastErr error
	checked bool // against what etcd holds
	machine pulse
}

// Write starts a steady writer. It ends with Stop, or with the test.
func Write(t testing.TB, etcd *clientv3.Client) *Writer {
	t.Helper()
	return WriteAt(t, etcd, writePace, writeTimeout)
}

// WriteAt starts a steady writer with its own pause between writes and its own limit for each.
func WriteAt(t testing.TB, etcd *clientv3.Client, pace, timeout time.Duration) *Writer {
	t.Helper()
	return write(t, etcd, 1, pace, timeout)
}

// Load starts a writer that keeps at more than 100 writes per second, several of them at once.
func Load(t testing.TB, etcd *clientv3.Client) *Writer {
	t.Helper()
	return write(t, etcd, loadLanes, loadPace, writeTimeout)
}

func write(t testing.TB, etcd *clientv3.Client, lanes int, pace, timeout time.Duration) *Writer {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	now := time.Now()
	w := &Writer{
		pace: pace, timeout: timeout, etcd: etcd, group: &errgroup.Group{}, stop: stop,
		begun: now, acked: map[string]int64{}, at: map[string]time.Time{}, lastAck: now, from: now,
	}
	if err := w.machine.open(); err != nil {
		stop()
		t.Fatalf("measure the machine: %v", err)
	}
	for range lanes {
		lane := lastLane.Add(1)
		w.group.Go(func() error { w.run(ctx, lane); return nil })
	}
	w.group.Go(func() error { return w.machine.run(ctx) })
	t.Cleanup(func() {
		w.end()
		w.lookBack(t)
	})
	return w
}

// run writes in one lane. What a write takes is no part of the pause: the rate is the pace's, not the cluster's.
func (w *Writer) run(ctx context.Context, lane int64) {
	ticker := time.NewTicker(w.pace)
	defer ticker.Stop()
	for seq := 0; ctx.Err() == nil; seq++ {
		w.put(ctx, fmt.Sprintf("%s%d/%d", writePrefix, lane, seq))
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (w *Writer) put(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	response, err := w.etcd.Put(ctx, key, key)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failed++
		w.lastErr = err
		return
	}
	now := time.Now()
	w.longest = max(w.longest, now.Sub(w.lastAck))
	w.worst = max(w.worst, w.longest)
	w.lastAck = now
	w.acked[key], w.at[key] = response.Header.Revision, now
}

// Acked is the number of writes that were acknowledged so far.
func (w *Writer) Acked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// Written are the keys that etcd acknowledged so far, with the revisions of their writes.
func (w *Writer) Written() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.acked)
}

// Failed is the number of writes that failed so far, each within the writer's limit.
func (w *Writer) Failed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Gap returns the longest time without an acknowledged write since the last call of Gap, including the one that lasts.
func (w *Writer) Gap() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := max(w.longest, time.Since(w.lastAck))
	w.longest, w.from = 0, w.lastAck
	return gap
}

// stallFactor is how many of a machine's stalls one write may meet: it goes through about as many hands, each of which
// waits for a core or for the disk.
const stallFactor = 10

// StoodStill is an error if writes stood still for longer than bound since the last call of it or of Gap. The bound is
// what holds on a machine that lets its processes run; how far it did not is measured meanwhile, and added.
func (w *Writer) StoodStill(bound time.Duration) error {
	_, err := w.StoodStillFor(bound)
	return err
}

// StoodStillFor is StoodStill, and reports how long it was.
func (w *Writer) StoodStillFor(bound time.Duration) (gap time.Duration, err error) {
	from := w.countsFrom()
	gap = w.Gap()
	stall := w.machine.stall(from)
	if allowed := bound + stallFactor*stall; gap > allowed {
		err = fmt.Errorf("writes stood still for %s, want at most %s on a machine that let someone wait for %s", gap, allowed, stall)
	}
	return gap, err
}

func (w *Writer) countsFrom() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.from
}

// AwaitAttempt waits until an attempt has ended that was under way, or began, after the call: what etcd acknowledged
// before is counted then.
func (w *Writer) AwaitAttempt(t testing.TB) {
	t.Helper()
	attempts := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acked) + w.failed
	}
	before := attempts()
	Eventually(t, maxWait, "the end of a write", func(context.Context) error {
		if attempts() == before {
			return errors.New("it is under way")
		}
		return nil
	})
}

// AwaitWrites waits until n more writes were acknowledged.
func (w *Writer) AwaitWrites(t testing.TB, n int, within time.Duration) time.Duration {
	t.Helper()
	target := w.Acked() + n
	return Eventually(t, within, fmt.Sprintf("%d more acknowledged writes", n), func(context.Context) error {
		if got := w.Acked(); got < target {
			return fmt.Errorf("%d of %d; last error: %w", got, target, w.failure())
		}
		return nil
	})
}

func (w *Writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastErr
}

func (w *Writer) end() {
	w.stop()
	_ = w.group.Wait() // a disk that fails stops more than the measurement of it
}

// Stop ends the writer and checks through etcd that no acknowledged write is lost.
func (w *Writer) Stop(t testing.TB, etcd *clientv3.Client) {
	t.Helper()
	w.end()
	w.Verify(t, etcd)
}

// lookBack checks the writes of a story that failed before it could: one that is lost must not pass for a matter of chance. Where etcd
// gives no answer any more, nothing is known of them.
func (w *Writer) lookBack(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	acked, unchecked := maps.Clone(w.acked), !w.checked
	w.mu.Unlock()
	if !t.Failed() || !unchecked || len(acked) == 0 {
		return
	}
	var found map[string]int64
	err := attempt(context.WithoutCancel(t.Context()), func(ctx context.Context) (err error) {
		found, err = w.held(ctx, w.etcd)
		return err
	})
	if err != nil {
		t.Logf("whether etcd holds all of %d acknowledged writes is unknown: %v", len(acked), err)
		return
	}
	compare(t, acked, found)
}

// held are the keys that etcd holds of the writer, and their revisions.
func (w *Writer) held(ctx context.Context, etcd *clientv3.Client) (map[string]int64, error) {
	response, err := etcd.Get(ctx, writePrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", writePrefix, err)
	}
	found := map[string]int64{}
	for _, kv := range response.Kvs {
		found[string(kv.Key)] = kv.ModRevision
	}
	return found, nil
}

// compare fails the test for the first writes that were acknowledged and are not there.
func compare(t testing.TB, acked, found map[string]int64) {
	t.Helper()
	lost := 0
	for key, revision := range acked {
		if found[key] == revision {
			continue
		}
		if lost++; lost > 5 {
			Unsafe(t, "more than 5 of %d acknowledged writes are lost", len(acked))
			return
		}
		Unsafe(t, "write of %s was acknowledged at revision %d, etcd now has it at %d", key, revision, found[key])
	}
}

// Verify checks that etcd still holds every write that it acknowledged.
func (w *Writer) Verify(t testing.TB, etcd *clientv3.Client) {
	t.Helper()
	w.mu.Lock()
	acked, failed, worst, wrote := maps.Clone(w.acked), w.failed, w.worst, w.lastAck.Sub(w.begun)
	w.mu.Unlock()
	if len(acked) == 0 {
		t.Fatalf("etcd acknowledged no write at all; %d failed, the last with %v", failed, w.failure())
	}
	var found map[string]int64
	Eventually(t, maxWait, "a linearizable read of all writes", func(ctx context.Context) (err error) {
		found, err = w.held(ctx, etcd)
		return err
	})
	w.mu.Lock()
	w.checked = true
	w.mu.Unlock()
	if compare(t, acked, found); t.Failed() {
		return
	}
	t.Logf("%d acknowledged writes (%.0f per second) are all there; %d attempts had failed; longest time without one: %s",
		len(acked), float64(len(acked))/wrote.Seconds(), failed, worst.Round(time.Millisecond))
}

// Bounds on the time without an acknowledged write, for StoodStill. docs/explanation/benchmarks.md has the figures of a machine that
// does nothing else; here several clusters share two cores.
const (
	// NoticeableGap is what a cluster that keeps its leader, or moves it on purpose, must stay below.
	NoticeableGap = 3 * time.Second
	// ElectionGap is what a cluster that lost its leader must stay below: etcd's election timeout of 1 s is randomized
	// up to 2 s, a vote may be split, and the client's attempt under way has a timeout of 2 s.
	ElectionGap = 6 * time.Second
)
