package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

// long is the size of an object of several stream parts, the last of which is short.
const long = 18<<20 + 1000

func streamed(t testing.TB, s store.Store, listed, size int64) error {
	t.Helper()
	r, err := store.Stream(t.Context(), s, "long", listed)
	if err != nil {
		return err
	}
	return errors.Join(storetest.Same(r, storetest.Content("long", size)), r.Close())
}

func put(t testing.TB, s *Store, key, seed string, size int64) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, storetest.Content(seed, size), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestStreamIntactOnBadNetwork: a stream is the object whatever the network does.
func TestStreamIntactOnBadNetwork(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "streams", false)), hasty())
	put(t, s, "long", "long", long)
	busy := bucket.Answer(http.StatusServiceUnavailable, "SlowDown")
	mixed := []bucket.Fault{busy, bucket.Reset, bucket.CutAnswer(1 << 20), bucket.CutAnswer(0), nil, bucket.HangAnswer(1 << 20), nil}
	n := 0
	for name, rule := range map[string]func(string, *http.Request) bucket.Fault{
		"nothing":                        nil,
		"the first parts are busy":       bucket.First(4, "GetObject", busy),
		"the first parts are reset":      bucket.First(4, "GetObject", bucket.Reset),
		"each answer is cut":             on("GetObject", bucket.CutAnswer(1<<20)),
		"one hangs in the middle":        bucket.First(1, "GetObject", bucket.HangAnswer(1<<20)),
		"all of it, one after the other": func(string, *http.Request) bucket.Fault { n++; return mixed[n%len(mixed)] },
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Break(rule)
			defer proxy.Break(nil)
			if err := streamed(t, s, long, long); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("one that stays away fails it", func(t *testing.T) {
		proxy.Break(func(_ string, r *http.Request) bucket.Fault {
			return when(r.Header.Get("Range") == fmt.Sprintf("bytes=%d-%d", 8<<20, 12<<20-1), bucket.Answer(http.StatusForbidden, "AccessDenied"))
		})
		defer proxy.Break(nil)
		if err := streamed(t, s, long, long); !errors.Is(err, store.ErrForbidden) {
			t.Errorf("got %v, want %v", err, store.ErrForbidden)
		}
	})
}

// A sequential reader requests the next part after it has read the previous one. Here it would never get a response.
func TestAStreamFetchesSeveralPartsAtOnce(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "streams-at-once", false)), quick)
	put(t, s, "long", "long", long)
	all := make(chan struct{})
	var mu sync.Mutex
	waiting, most := 0, 0
	proxy.Break(on("GetObject", func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		mu.Lock()
		waiting++
		if most = max(most, waiting); waiting == quick.connections {
			select {
			case <-all:
			default:
				close(all)
			}
		}
		mu.Unlock()
		select {
		case <-all:
		case <-r.Context().Done():
		case <-time.After(time.Minute):
			t.Error("the other parts were not fetched for a minute")
		}
		forward.ServeHTTP(w, r)
		mu.Lock()
		waiting--
		mu.Unlock()
	}))
	if err := streamed(t, s, long, long); err != nil {
		t.Error(err)
	}
	if most > quick.connections {
		t.Errorf("%d parts were fetched at once, want at most %d", most, quick.connections)
	}
}

// TestStreamHasOneVersionAndFullLength: a stream is of one version and as long as the object.
func TestStreamHasOneVersionAndFullLength(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "streams-changed", false)), quick)
	put(t, s, "long", "long", long)
	for name, c := range map[string]struct{ listed, got int64 }{
		"it was longer":         {long + 9<<20, long},
		"it was a bit longer":   {long + 10, long},
		"it was shorter":        {long - 6<<20, long - 6<<20 + 1},
		"it was a byte shorter": {long - 1, long},
		"it fits the parts":     {16 << 20, 16<<20 + 1},
	} {
		if err := streamed(t, s, c.listed, c.got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var once sync.Once
	proxy.Break(func(_ string, r *http.Request) bucket.Fault {
		if r.Header.Get("Range") != fmt.Sprintf("bytes=%d-%d", 16<<20, long) {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
			once.Do(func() { replace(t, server, s, "long", "other") })
			forward.ServeHTTP(w, r)
		}
	})
	if err := streamed(t, s, long, long); !errors.Is(err, store.ErrChanged) {
		t.Errorf("replaced while it was read: got %v, want %v", err, store.ErrChanged)
	}
}

// replace replaces an object with the content of another one, bypassing the proxy.
func replace(t *testing.T, server *bucket.Server, s *Store, key, seed string) {
	t.Helper()
	direct := opened(t, configOf(t, server.Endpoint, s.c.Bucket), quick)
	put(t, direct, key, seed, long)
}

// TestStreamEndsWithContextOrClose: a stream ends with its context and when it is closed.
func TestStreamEndsWithContextOrClose(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "streams-ended", false)), quick)
	put(t, s, "long", "long", long)
	if r, err := store.Stream(t.Context(), s, "long", long); err != nil {
		t.Error(err)
	} else if _, err := r.Read(make([]byte, 10)); err != nil || r.Close() != nil {
		t.Errorf("read: %v", err)
	}
	proxy.Break(on("GetObject", bucket.Hang))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := store.Stream(ctx, s, "long", long)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := r.Read(make([]byte, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v, want %v", err, context.Canceled)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkDistant reads 128 MiB from a store with a latency of 50 ms and 8 MiB/s for each connection.
func BenchmarkDistant(b *testing.B) {
	const size, answer = 128 << 20, 50 * time.Millisecond
	server := bucket.Start(b)
	proxy := server.Before(b)
	in := server.Make(b, "distant", false)
	for _, connections := range []int{1, defaults.connections} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			tune := defaults
			tune.connections = connections
			s, err := open(b.Context(), configOf(b, proxy.Endpoint, in), tune)
			if err != nil {
				b.Fatal(err)
			}
			proxy.Break(nil)
			put(b, s, "object", "object", size)
			slow := bucket.Slow(256<<10, 31250*time.Microsecond)
			proxy.Break(on("GetObject", func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
				<-time.After(answer) // the way there and back
				slow(w, r, forward)
			}))
			b.SetBytes(size)
			for b.Loop() {
				r, err := store.Stream(b.Context(), s, "object", size)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, r); n != size || errors.Join(err, r.Close()) != nil {
					b.Fatalf("read %d bytes, %v", n, err)
				}
			}
		})
	}
}
