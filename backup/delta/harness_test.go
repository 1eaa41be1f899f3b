package delta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/member"
)

const (
	lineage = "00000001-00112233445566aa"
	// maxWait for something that takes a second on an idle machine.
	maxWait = 2 * time.Minute
)

func keyOf(from, to int64, at time.Time) string {
	return fmt.Sprintf("c/%s/delta/%016x-%016x-%d.delta.zst", lineage, from, to, at.UnixMilli())
}

func directory(tb testing.TB) *dir.Store {
	tb.Helper()
	return directoryAt(tb, tb.TempDir())
}

func directoryAt(tb testing.TB, path string) *dir.Store {
	tb.Helper()
	s, err := dir.Open(store.Directory{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// recordings is a recorder that runs until it is stopped or the test ends.
type recordings struct {
	*Recorder
	tb     testing.TB
	cancel context.CancelFunc
	run    errgroup.Group

	mu       sync.Mutex
	statuses []Status
	changed  chan struct{}
}

func record(tb testing.TB, m *member.Member, s store.Store, from int64, change ...func(*Config)) *recordings {
	tb.Helper()
	r := &recordings{tb: tb, changed: make(chan struct{})}
	cfg := Config{
		Conn: m.Client.ActiveConnection(), Store: s, Key: keyOf, Lineage: lineage, From: from, Period: MinPeriod, Observe: r.observe,
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if r.Recorder, err = NewRecorder(cfg); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	r.cancel = cancel
	r.run.Go(func() error { return r.Run(ctx) })
	tb.Cleanup(func() {
		cancel()
		_ = r.run.Wait()
	})
	return r
}

func (r *recordings) observe(s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses = append(r.statuses, s)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recordings) all() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.statuses)
}

// await waits for a status.
func (r *recordings) await(what string, ok func(Status) bool) Status {
	r.tb.Helper()
	deadline := time.After(maxWait)
	for {
		r.mu.Lock()
		var last Status
		if n := len(r.statuses); n > 0 {
			last = r.statuses[n-1]
		}
		changed := r.changed
		r.mu.Unlock()
		if ok(last) {
			return last
		}
		select {
		case <-changed:
		case <-deadline:
			r.tb.Fatalf("no status with %s after %s: the last is %+v", what, maxWait, last)
		}
	}
}

// flush saves everything that happened.
func (r *recordings) flush() int64 {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.tb.Context(), maxWait)
	defer cancel()
	saved, err := r.Flush(ctx)
	if err != nil {
		r.tb.Fatal(err)
	}
	return saved
}

// stop ends the recorder as a crash does: what is not saved is lost.
func (r *recordings) stop() {
	r.tb.Helper()
	r.cancel()
	if err := r.run.Wait(); err != nil {
		r.tb.Fatal(err)
	}
}

// ends waits until the recorder ends by itself.
func (r *recordings) ends(want error) {
	r.tb.Helper()
	select {
	case <-r.ended:
	case <-time.After(maxWait):
		r.tb.Fatalf("the recorder still runs after %s, want %v: %+v", maxWait, want, r.all())
	}
	if err := r.run.Wait(); !errors.Is(err, want) {
		r.tb.Errorf("the recorder ended with %v, want %v", err, want)
	}
}

// object is a delta backup that was read back.
type object struct {
	Header
	key        string
	records    []Record
	leases     Leases
	checkpoint *Checkpoint
}

// objects reads all delta backups of a store, in the order of their names. None may be damaged.
func objects(tb testing.TB, s store.Store) []object {
	tb.Helper()
	var all []object
	for o, err := range s.List(tb.Context(), "") {
		if err != nil {
			tb.Fatal(err)
		}
		body, err := s.Get(tb.Context(), o.Key, 0, -1)
		if err != nil {
			tb.Fatal(err)
		}
		records, r, err := read(body, Expected{Object: o.Key, Lineage: lineage})
		if err = errors.Join(err, body.Close()); err != nil {
			tb.Fatal(err)
		}
		if r.Leases().Known && r.Checkpoint() == nil {
			tb.Errorf("%s lists all leases, which only proofs of checkpoints want", o.Key)
		}
		all = append(all, object{r.Header(), o.Key, records, r.Leases(), r.Checkpoint()})
	}
	return all
}

// joined concatenates delta backups that must follow each other without gap or overlap.
func joined(tb testing.TB, from int64, all []object) []Record {
	tb.Helper()
	var records []Record
	for i, o := range all {
		if o.From != from {
			tb.Fatalf("delta %s begins at %d, want %d", o.key, o.From, from)
		}
		if i > 0 && o.Before != all[i-1].Last {
			tb.Errorf("delta %s says that revision %d is %s, the one before says %s", o.key, from-1, o.Before, all[i-1].Last)
		}
		from = o.To + 1
		records = append(records, o.records...)
	}
	return records
}

// database returns bucket `key` from a snapshot of the database of etcd, from a revision on.
func database(tb testing.TB, m *member.Member, from int64) []Record {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "db")
	file, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	snapshot, err := m.Client.Snapshot(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	_, err = io.Copy(file, snapshot)
	if err = errors.Join(err, snapshot.Close(), file.Close()); err != nil {
		tb.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	var all []Record
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(k, v []byte) error {
			main, _, err := parseKey(k)
			if err == nil && main >= from {
				all = append(all, Record{Key: bytes.Clone(k), Value: bytes.Clone(v), Revision: main})
			}
			return err
		})
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// holds fails the test unless the delta backups equal the database of the member from a revision up to their last one.
// After that, a lease may expire.
func holds(tb testing.TB, m *member.Member, from int64, all []object) {
	tb.Helper()
	if len(all) == 0 {
		tb.Fatal("there are no deltas")
	}
	to := all[len(all)-1].To
	same(tb, slices.DeleteFunc(database(tb, m, from), func(r Record) bool { return r.Revision > to }), joined(tb, from, all))
}

// same compares records except for their times, which etcd does not keep.
func same(tb testing.TB, want, got []Record) {
	tb.Helper()
	if len(want) != len(got) {
		tb.Errorf("%d records, want %d", len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		if !bytes.Equal(want[i].Key, got[i].Key) || !bytes.Equal(want[i].Value, got[i].Value) {
			tb.Fatalf("record %d is %x = %.100q\nwant %x = %.100q", i, got[i].Key, got[i].Value, want[i].Key, want[i].Value)
		}
	}
}

func diff(tb testing.TB, want, got any) {
	tb.Helper()
	if d := cmp.Diff(want, got); d != "" {
		tb.Error(d)
	}
}
