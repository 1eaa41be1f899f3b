package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

// TestPartArrivesBeforeAbort: a part on its way arrives before its upload is aborted.
// A store may keep a part that arrives after the abort; versitygw then creates the upload again.
func TestPartArrivesBeforeAbort(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	in := server.Make(t, "parts-on-their-way", false)
	for name, unwanted := range map[string]func(context.CancelFunc) error{
		"the reader fails":  func(context.CancelFunc) error { return errors.New("the snapshot broke off") },
		"the context ended": func(cancel context.CancelFunc) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := server.Before(t)
			key := strings.ReplaceAll(name, " ", "-")
			config := configOf(t, proxy.Endpoint, in)
			config.Prefix = key
			s := opened(t, config, quick)
			// versitygw does not list what arrives late if the key has no other upload, because it forgot the key.
			abandon(t, server, in, *s.name(key))
			arriving, aborted, landed := make(chan struct{}), make(chan struct{}), make(chan struct{})
			proxy.Break(func(op string, r *http.Request) bucket.Fault {
				if op == "AbortMultipartUpload" {
					return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
						forward.ServeHTTP(w, r)
						close(aborted)
					}
				}
				return when(r.URL.Query().Get("partNumber") == "1", late(arriving, aborted, landed))
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := io.MultiReader(storetest.Content(name, minPart), reader(func([]byte) (int, error) {
				<-arriving
				if err := unwanted(cancel); err != nil {
					return 0, err
				}
				return 0, io.EOF
			}), storetest.Content(name, 10))
			if _, err := s.Put(ctx, key, r, store.PutOptions{}); err == nil {
				t.Error("put: no error")
			}
			<-landed
			proxy.Break(nil)
			if n, err := s.Sweep(t.Context(), "", -time.Hour); n != 1 || err != nil {
				t.Errorf("swept %d, %v; want the other upload of the key alone", n, err)
			}
		})
	}
}

// Put waits for the outcome of a request that was cancelled, or reports it as unknown.
func TestAPutThatIsOnItsWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	in := server.Make(t, "puts-on-their-way", false)
	for op, size := range map[string]int64{"PutObject": small, "CompleteMultipartUpload": large} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			proxy := server.Before(t)
			s := opened(t, configOf(t, proxy.Endpoint, in), quick)
			asked, landed := make(chan struct{}), make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			proxy.Break(func(now string, _ *http.Request) bucket.Fault {
				switch now {
				case "HeadObject":
					return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
						forward.ServeHTTP(w, r)
						close(asked)
					}
				case op:
					cancel()
					return late(make(chan struct{}), asked, landed)
				}
				return nil
			})
			put, err := s.Put(ctx, op, storetest.Content(op, size), store.PutOptions{})
			if err != nil || put.Size != size {
				t.Errorf("put: %+v, %v", put, err)
			}
			<-landed
			proxy.Break(nil)
			same(t, s, op, op, size)
		})
	}
}

// TestUnneededUploadAborted: an upload that is no longer needed is aborted.
func TestUnneededUploadAborted(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "unwanted-uploads", false)), quick)
	ctx, cancel := context.WithCancel(t.Context())
	asked, landed := make(chan struct{}), make(chan struct{})
	close(asked) // nothing is asked for again
	proxy.Break(on("CreateMultipartUpload", func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		cancel()
		late(make(chan struct{}), asked, landed)(w, r, forward)
	}))
	if _, err := s.Put(ctx, "a", storetest.Content("a", large), store.PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v, want %v", err, context.Canceled)
	}
	<-landed
	if n := server.Uploads(t, s.c.Bucket); n != 0 || proxy.Seen("UploadPart") != 0 {
		t.Errorf("%d unfinished puts are left, and %d parts were sent", n, proxy.Seen("UploadPart"))
	}
}

func TestAPutThatDoesNotArriveIsBrokenOff(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	for op, c := range map[string]struct {
		size int64
		says string
	}{
		"PutObject":               {small, "unknown"},
		"CreateMultipartUpload":   {large, "canceled"},
		"UploadPart":              {large, "canceled"},
		"CompleteMultipartUpload": {large, "unknown"},
	} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			proxy := server.Before(t)
			tune := quick
			tune.inFlight = 10 * time.Millisecond
			in := server.Make(t, "hung-"+strings.ToLower(op), false)
			s := opened(t, configOf(t, proxy.Endpoint, in), tune)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			proxy.Break(on(op, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
				cancel()
				bucket.Hang(w, r, forward)
			}))
			_, err := s.Put(ctx, op, storetest.Content(op, c.size), store.PutOptions{})
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("put: %v, want %v that says %q", err, context.Canceled, c.says)
			}
			if n := proxy.Seen(op); n != 1 {
				t.Errorf("it was sent %d times, want once", n)
			}
			proxy.Break(nil)
			if _, err := s.Get(t.Context(), op, 0, -1); !errors.Is(err, store.ErrAbsent) {
				t.Errorf("get: %v, want %v", err, store.ErrAbsent)
			}
			if n := server.Uploads(t, in); n != 0 {
				t.Errorf("%d unfinished puts are left", n)
			}
		})
	}
}

type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// late forwards all but the end of a request, which then counts as arriving, and the end a little later. If the client
// is gone, late waits until the client has finished its cleanup. The request has arrived when the response comes.
func late(arriving chan<- struct{}, after <-chan struct{}, landed chan<- struct{}) bucket.Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		defer close(landed)
		body, _ := io.ReadAll(r.Body)
		end := max(len(body)-1, 0)
		request := r.Clone(context.WithoutCancel(r.Context()))
		request.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:end]), reader(func([]byte) (int, error) {
			close(arriving)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-r.Context().Done():
				<-after
			}
			return 0, io.EOF
		}), bytes.NewReader(body[end:])))
		request.Header.Del("Expect")     // is answered already
		answer := httptest.NewRecorder() // w would end the request when the client is gone
		forward.ServeHTTP(answer, request)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
}
