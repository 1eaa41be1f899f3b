package webui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/situations"
)

// stream records events as they are flushed.
type stream struct {
	header http.Header
	events chan part
}

func (s *stream) Header() http.Header { return s.header }
func (s *stream) WriteHeader(int)     {}
func (s *stream) FlushError() error   { return nil }
func (s *stream) Write(p []byte) (int, error) {
	lines := bufio.NewScanner(strings.NewReader(string(p)))
	lines.Buffer(nil, len(p)+1)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var one part
		if err := json.Unmarshal([]byte(data), &one); err != nil {
			return 0, err
		}
		s.events <- one
	}
	return len(p), lines.Err()
}

// take returns the events that came so far.
func (s *stream) take() map[string]string {
	all := map[string]string{}
	for {
		select {
		case one := <-s.events:
			all[one.ID] = string(one.HTML)
		default:
			return all
		}
	}
}

// listen opens the stream of a path in a bubble of synctest.
func listen(t *testing.T, b *browser, path string) *stream {
	t.Helper()
	s := &stream{header: http.Header{}, events: make(chan part, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.address(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(b.cookie)
	done := make(chan struct{})
	go func() {
		b.server.Handler().ServeHTTP(s, r)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func TestTheStreamSendsWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := every()
		b := open(t, from)
		s := listen(t, b, "/live/clusters/member-down/demo")
		synctest.Wait()
		if first := s.take(); len(first) != 10 || !strings.Contains(first["head"], "MembersNotReady") || s.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("first it sends %d parts, %v", len(first), s.header)
		}
		time.Sleep(clusterInterval)
		synctest.Wait()
		if again := s.take(); len(again) != 0 {
			t.Errorf("without a change it sends %v", again)
		}
		from.set(func(s *source) {
			for i, c := range s.clusters {
				if c.Namespace == "member-down" {
					s.clusters[i] = view.Of(situations.Serving(), situations.Now)
					s.clusters[i].Namespace = "member-down"
				}
			}
		})
		time.Sleep(clusterInterval)
		synctest.Wait()
		changed := s.take()
		if !strings.Contains(changed["head"], "Serving") || !strings.Contains(changed["members"], "demo-sx47z") || changed["backups"] != "" ||
			changed["certificates"] != "" {
			t.Errorf("of a member that is ready again it sends %v", changed)
		}
		from.set(func(s *source) { s.err = errors.New("the network is down") })
		time.Sleep(clusterInterval)
		synctest.Wait()
		if failed := s.take(); len(failed) != 2 || !strings.Contains(failed["head"], `data-title="? old member-down/demo"`) ||
			!strings.Contains(failed["notice"], "The network is down.") {
			t.Errorf("of an error it sends %v", failed)
		}
	})
}

func TestPagesShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := every()
		b := open(t, from)
		for range 3 {
			listen(t, b, "/live/fleet")
		}
		time.Sleep(10*fleetInterval + time.Millisecond)
		synctest.Wait()
		if from.reads != 11 {
			t.Errorf("three pages read %d times in %s, want 11", from.reads, 10*fleetInterval)
		}
	})
}

func TestASlowServerIsAskedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(clusterInterval, time.Now, func(context.Context) (int, error) {
			time.Sleep(3 * time.Second)
			return 1, nil
		})
		if k, pause := f.get(t.Context()); k.data != 1 || pause != 15*time.Second {
			t.Errorf("%+v, pause %s", k, pause)
		}
		hangs := newFeed(clusterInterval, time.Now, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		begun := time.Now()
		if k, pause := hangs.get(t.Context()); !errors.Is(k.err, context.DeadlineExceeded) || time.Since(begun) != readTimeout || pause != 5*time.Second {
			t.Errorf("%+v after %s, pause %s", k, time.Since(begun), pause)
		}
	})
}

// What one page ended must not be the error that another one shows.
func TestAClosedPageIsNoError(t *testing.T) {
	closed, cancel := context.WithCancel(t.Context())
	f := newFeed(clusterInterval, time.Now, func(ctx context.Context) (int, error) {
		cancel()
		return 1, closed.Err()
	})
	f.get(closed)
	if !f.tried.IsZero() || f.known.err != nil {
		t.Errorf("it keeps %+v", f.known)
	}
}

// The server ends with its context, although a page follows.
func TestTheServerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Source: every(), Now: time.Now, Start: "/"}, listener)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address("/live/fleet"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: s.guard.cookie, Value: s.guard.session})
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); line != "event: part\n" {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
