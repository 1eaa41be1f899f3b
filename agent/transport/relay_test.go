package transport

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/loop"
)

// maxWait is the timeout for what takes milliseconds on an idle machine.
const maxWait = 2 * time.Minute

// relay forwards connections to the client port of a member, like the address of its Pod. It counts them.
type relay struct {
	t        *testing.T
	endpoint string
	// tried is how many connections clients made, accepted those that reached a member, and open those that there are.
	tried, accepted, open atomic.Int64
	// gate is held while the relay forwards nothing.
	gate   sync.RWMutex
	target atomic.Value // string: host and port of the member
	mu     sync.Mutex
	conns  []net.Conn
}

func newRelay(t *testing.T, endpoint string) *relay {
	t.Helper()
	listener, err := Transport{}.Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, endpoint: "http://" + listener.Addr().String()}
	r.point(endpoint)
	var g errgroup.Group
	g.Go(func() error {
		for { // until it is closed
			front, err := listener.Accept()
			if err != nil {
				return err
			}
			r.tried.Add(1)
			back, err := net.Dial("tcp", r.target.Load().(string))
			if err != nil { // no etcd listens
				_ = front.Close()
				continue
			}
			r.accepted.Add(1)
			r.open.Add(1)
			r.mu.Lock()
			r.conns = append(r.conns, front, back)
			r.mu.Unlock()
			var pair sync.WaitGroup
			pair.Go(func() { r.forward(front, back) })
			pair.Go(func() { r.forward(back, front) })
			g.Go(func() error {
				pair.Wait()
				r.open.Add(-1)
				return nil
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		for _, conn := range r.conns {
			_ = conn.Close()
		}
		r.mu.Unlock()
		if err := g.Wait(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return r
}

// point makes the relay forward new connections to another member.
func (r *relay) point(endpoint string) {
	behind, err := url.Parse(endpoint)
	must(r.t, err)
	r.target.Store(behind.Host)
}

// forward ends with either connection, and closes both.
func (r *relay) forward(to io.WriteCloser, from io.ReadCloser) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		r.gate.RLock()
		_, err = to.Write(buffer[:n])
		r.gate.RUnlock()
		if err != nil {
			return
		}
	}
}

// has waits until the number of open connections is as wanted.
func (r *relay) has(open int64) {
	r.t.Helper()
	for start := time.Now(); r.open.Load() != open; loop.Sleep(r.t.Context(), time.Millisecond) {
		if time.Since(start) > maxWait {
			r.t.Fatalf("%d connections are open, want %d", r.open.Load(), open)
		}
	}
}

// made fails the test unless n connections were made so far.
func (r *relay) made(n int64) {
	r.t.Helper()
	if got := r.accepted.Load(); got != n {
		r.t.Fatalf("%d connections were made, want %d", got, n)
	}
}

// rests fails the test if the relay is dialed in the time of five attempts. One can be in progress.
func (r *relay) rests() {
	r.t.Helper()
	before := r.tried.Load()
	loop.Sleep(r.t.Context(), 5*maxRedialDelay)
	if again := r.tried.Load() - before; again > 1 {
		r.t.Errorf("the member was dialed %d times without a user", again)
	}
}
