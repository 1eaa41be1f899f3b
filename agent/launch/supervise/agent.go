package supervise

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
)

const (
	// dialTimeout bounds one dial of a unix socket, which answers at once or not at all.
	dialTimeout = time.Second
	// minBackoff and maxBackoff between two dials: an agent that is restarted is back within a second or so, and etcd's
	// start waits for nothing else.
	minBackoff, maxBackoff = 20 * time.Millisecond, time.Second
)

// agentLine keeps a line to the agent open and reports it the newest report, again on each new connection.
type agentLine struct {
	orders chan launch.Order
	lost   chan struct{} // a connection broke
	log    *slog.Logger

	work sync.WaitGroup
	stop context.CancelFunc

	mu     sync.Mutex
	conn   *launch.Conn
	report launch.Report // the newest; its State is empty before the first
	lock   *os.File      // that goes with it
}

// dialAgent keeps the line until it is closed: etcd's last report comes after ctx ended.
func dialAgent(ctx context.Context, socket string, log *slog.Logger) *agentLine {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &agentLine{orders: make(chan launch.Order), lost: make(chan struct{}, 1), log: log, stop: stop}
	l.work.Go(func() { l.keep(ctx, socket) })
	return l
}

// say informs the agent r, now or when it is there.
func (l *agentLine) say(r launch.Report, lock *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if same(l.report, r) {
		return
	}
	l.report, l.lock = r, lock
	l.inform()
}

// same says whether r repeats what was said. Only what is said over and over is compared: every etcd's start and end is
// worth telling.
func same(former, r launch.Report) bool {
	return (r.State == launch.StateBlocked || r.State == launch.StateUnusable) && former.State == r.State && former.Error == r.Error
}

// report sends the newest report. A connection that cannot take it is closed, which its reader sees.
func (l *agentLine) inform() {
	if l.conn == nil || l.report.State == "" {
		return
	}
	if err := l.conn.SendReport(l.report, l.lock); err != nil {
		_ = l.conn.Close()
	}
}

func (l *agentLine) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil
}

// close ends the line. Reports must not be said any more.
func (l *agentLine) close() {
	l.stop()
	l.work.Wait()
}

func (l *agentLine) keep(ctx context.Context, socket string) {
	dialer := net.Dialer{Timeout: dialTimeout}
	for backoff := minBackoff; ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
		c, err := dialer.DialContext(ctx, "unix", socket)
		if err == nil {
			began := time.Now()
			l.serve(ctx, launch.NewConn(c.(*net.UnixConn)))
			// An agent that served for a while is not one that refuses us.
			if time.Since(began) > maxBackoff {
				backoff = minBackoff
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
	}
}

// serve reads orders until the connection breaks.
func (l *agentLine) serve(ctx context.Context, conn *launch.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close() // it is broken already
	l.mu.Lock()
	l.conn = conn
	l.inform()
	l.mu.Unlock()
	l.log.InfoContext(ctx, "agent connected")
	for {
		order, err := conn.ReadOrder()
		if err != nil {
			l.mu.Lock()
			l.conn = nil
			l.mu.Unlock()
			l.drop(ctx, err)
			return
		}
		select {
		case l.orders <- order:
		case <-ctx.Done():
		}
	}
}

func (l *agentLine) drop(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	l.log.WarnContext(ctx, "agent disconnected", "err", err)
	select {
	case l.lost <- struct{}{}:
	default: // reported already
	}
}
