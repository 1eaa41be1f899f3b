package delta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/s3"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/member"
)

var errDown = errors.New("the store is down")

// faulty is a store whose Put fails as the test configures; nil means no failure.
type faulty struct {
	store.Store
	mu   sync.Mutex
	rule func(ctx context.Context, key string, r io.Reader, o store.PutOptions) error
	puts int
}

func (f *faulty) set(rule func(ctx context.Context, key string, r io.Reader, o store.PutOptions) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = rule
}

func (f *faulty) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	f.mu.Lock()
	rule := f.rule
	f.puts++
	f.mu.Unlock()
	if rule != nil {
		if err := rule(ctx, key, r, o); err != nil {
			return store.Object{}, err
		}
	}
	return f.Store.Put(ctx, key, r, o)
}

func down(context.Context, string, io.Reader, store.PutOptions) error { return errDown }

// However a Put fails, nothing is missing and nothing is saved twice.
func TestNothingIsLeftOutWhenPutsFail(t *testing.T) {
	t.Parallel()
	m := member.Start(t, "3.6", member.Options{})
	f := newTraffic(t, m)
	f.run(20)
	for name, rule := range map[string]func(*faulty, *int) func(context.Context, string, io.Reader, store.PutOptions) error{
		"it fails": func(_ *faulty, n *int) func(context.Context, string, io.Reader, store.PutOptions) error {
			return func(_ context.Context, _ string, r io.Reader, _ store.PutOptions) error {
				if *n++; *n > 2 {
					return nil
				}
				_, _ = io.CopyN(io.Discard, r, 50)
				return errDown
			}
		},
		"its answer is lost": func(f *faulty, n *int) func(context.Context, string, io.Reader, store.PutOptions) error {
			return func(ctx context.Context, key string, r io.Reader, o store.PutOptions) error {
				if *n++; *n != 1 {
					return nil
				}
				_, err := f.Store.Put(ctx, key, r, o)
				return errors.Join(err, errDown)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := &faulty{Store: directory(t)}, 0
			s.set(rule(s, &n))
			r := record(t, m, s, 2)
			f.run(20)
			saved := r.flush()
			if last := r.await("no error", func(s Status) bool { return s.Saved >= saved && s.SaveError == nil }); last.Object.Header.To != last.Saved {
				t.Errorf("%+v", last)
			}
			if !slices.ContainsFunc(r.all(), func(s Status) bool { return errors.Is(s.SaveError, errDown) }) {
				t.Error("the store is down, and that was not reported")
			}
			r.stop()
			same(t, database(t, m, 2), joined(t, 2, objects(t, s)))
			if n < 2 {
				t.Errorf("%d puts: nothing went wrong", n)
			}
		})
	}
}

// A panic of a store ends only the recorder.
func TestAPanicEndsTheRecorderAlone(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.6", member.Options{}), &faulty{Store: directory(t)}
	s.set(func(context.Context, string, io.Reader, store.PutOptions) error { panic("a store's fault") })
	r := record(t, m, s, 2)
	newTraffic(t, m).run(5)
	select {
	case <-r.ended:
	case <-time.After(maxWait):
		t.Fatalf("the recorder still runs: %+v", r.all())
	}
	if err := r.run.Wait(); err == nil || !strings.Contains(err.Error(), "a store's fault") {
		t.Errorf("the recorder ended with %v", err)
	}
}

// TestUnreadableTakenNameBlocksNothing: a taken name that cannot be read holds up nothing.
// An object that cannot be read does not block the uploads either, for example if the response to its upload was lost
// and its key was taken away since.
func TestUnreadableTakenNameBlocksNothing(t *testing.T) {
	t.Parallel()
	m := member.Start(t, "3.6", member.Options{})
	f := newTraffic(t, m)
	f.run(10)
	for name, problem := range map[string]error{"its key is gone": store.ErrNoKey, "its beginning is damaged": store.ErrDamaged} {
		t.Run(name, func(t *testing.T) {
			plain := directory(t)
			s := &unreadable{faulty: &faulty{Store: plain}, problem: problem}
			s.set(func(ctx context.Context, key string, r io.Reader, o store.PutOptions) error {
				if s.key != "" {
					return nil
				}
				s.key = key
				_, err := s.Store.Put(ctx, key, r, o)
				return errors.Join(err, errDown)
			})
			r := record(t, m, s, 2)
			r.flush()
			r.stop()
			if keys := objects(t, plain); len(keys) < 2 {
				t.Errorf("%d objects, want the one that cannot be read and another", len(keys))
			}
		})
	}
}

// unreadable cannot read the object of one key.
type unreadable struct {
	*faulty
	key     string
	problem error
}

func (u *unreadable) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if key == u.key {
		return nil, fmt.Errorf("get %s: %w", key, u.problem)
	}
	return u.faulty.Get(ctx, key, offset, length)
}

// The object that already has the name is not changed.
func TestATakenNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := member.Start(t, "3.6", member.Options{})
	path := t.TempDir()
	s := directoryAt(t, path)
	foreign := ""
	f := &faulty{Store: s}
	f.set(func(_ context.Context, key string, _ io.Reader, _ store.PutOptions) error {
		if foreign != "" {
			return nil
		}
		foreign = filepath.Join(path, filepath.FromSlash(key))
		return errors.Join(os.MkdirAll(filepath.Dir(foreign), 0o700), os.WriteFile(foreign, []byte("another's"), 0o600))
	})
	r := record(t, m, f, 2)
	newTraffic(t, m).run(20)
	r.flush()
	r.stop()
	if b, err := os.ReadFile(foreign); string(b) != "another's" || err != nil {
		t.Fatalf("what had the name is now %q, %v", b, err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	same(t, database(t, m, 2), joined(t, 2, objects(t, s)))
}

// TestNextRecorderContinuesAtStoreEnd: the next recorder goes on where the store ends.
// An agent that dies during a Put leaves nothing in the store, and the next one begins where the store ends.
func TestNextRecorderContinuesAtStoreEnd(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.7", member.Options{}), &faulty{Store: directory(t)}
	f := newTraffic(t, m)
	first := record(t, m, s, 2)
	f.run(50)
	saved := first.flush()
	putting := make(chan struct{})
	var once sync.Once
	s.set(func(ctx context.Context, _ string, r io.Reader, _ store.PutOptions) error {
		_, _ = io.CopyN(io.Discard, r, 100)
		once.Do(func() { close(putting) })
		<-ctx.Done()
		return ctx.Err()
	})
	f.run(50)
	<-putting
	first.stop()
	s.set(nil)
	f.run(50)
	all := objects(t, s)
	if last := all[len(all)-1].To; last != saved {
		t.Fatalf("the store ends at %d, want %d", last, saved)
	}
	second := record(t, m, s, saved+1)
	second.flush()
	second.stop()
	same(t, database(t, m, 2), joined(t, 2, objects(t, s)))
}

// Two agents that both act as leader save overlapping delta backups, which agree on each revision.
func TestRecordersThatRaceAgree(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.6", member.Options{}), directory(t)
	f := newTraffic(t, m)
	f.grant(600)
	f.run(50)
	first := record(t, m, s, 2)
	f.run(30)
	second := record(t, m, s, 20, func(c *Config) { c.MaxBytes = 10 << 10 })
	for range 5 {
		f.run(30)
		first.flush()
		f.run(10)
		second.flush()
	}
	last := first.flush()
	first.stop()
	second.stop()
	content := database(t, m, 2)
	reached := map[int64]bool{1: true} // by whole deltas
	for _, o := range objects(t, s) {
		reached[o.To] = true
		var want []Record
		for _, r := range content {
			if r.Revision >= o.From && r.Revision <= o.To {
				want = append(want, r)
			}
		}
		same(t, want, o.records)
		if before := digestOf(content, o.From-1); o.Before != before || o.Last != digestOf(content, o.To) {
			t.Errorf("%s is between %s and %s, want %s and %s", o.key, o.Before, o.Last, before, digestOf(content, o.To))
		}
	}
	if !reached[last] {
		t.Errorf("no delta ends at %d", last)
	}
}

// While a store is down, memory use stays below a limit. It returns to zero when the store is back.
func TestAStoreThatIsDownBoundsWhatIsHeld(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.6", member.Options{}), &faulty{Store: directory(t)}
	s.set(down)
	const limit = 100 << 10
	r := record(t, m, s, 2, func(c *Config) { c.MaxBytes = limit })
	f := newTraffic(t, m)
	f.large = 20 << 10
	f.run(1500)
	r.await("no room", func(s Status) bool { return s.Buffered >= limit })
	last := f.put("last", "")
	for _, s := range r.all() {
		if s.Saved != 1 || s.Received >= last || s.Buffered > 2*limit+30*f.large {
			t.Fatalf("with a store that is down, and etcd at %d: %+v", last, s)
		}
	}
	s.set(nil)
	r.flush()
	r.stop()
	same(t, database(t, m, 2), joined(t, 2, objects(t, s)))
}

func TestS3IsDownAndComesBack(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	proxy := server.Before(t)
	credentials := t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(credentials, "accessKeyID"), []byte(bucket.AccessKey), 0o600),
		os.WriteFile(filepath.Join(credentials, "secretAccessKey"), []byte(bucket.SecretKey), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3.Open(t.Context(), store.S3{
		Bucket: server.Make(t, "deltas", false), Region: bucket.Region, Endpoint: proxy.Endpoint, PathStyle: true, CredentialsDir: credentials,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := member.Start(t, "3.5", member.Options{})
	f := newTraffic(t, m)
	r := record(t, m, s, 2)
	f.run(20)
	r.flush()
	proxy.Break(bucket.First(1<<30, "PutObject", bucket.Answer(403, "AccessDenied")))
	f.run(50)
	r.await("an error", func(s Status) bool { return s.SaveError != nil })
	f.run(50)
	proxy.Break(bucket.First(1, "PutObject", bucket.LoseAnswer))
	r.flush()
	f.run(10)
	r.flush()
	r.stop()
	same(t, database(t, m, 2), joined(t, 2, objects(t, s)))
}
