package supervise

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/loop"
)

const (
	// dialTimeout bounds one dial of a Unix socket, which responds at once or not at all.
	dialTimeout = time.Second
	// minBackoff and maxBackoff between two dials: an agent that restarts is back within about a second, and the start
	// of etcd waits for nothing else.
	minBackoff, maxBackoff = 20 * time.Millisecond, time.Second
)

// agentLine keeps a connection to the agent and sends the newest report, again on each new connection.
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

// dialAgent keeps the connection until close, because the last report of etcd is sent after ctx ended.
func dialAgent(ctx context.Context, socket string, log *slog.Logger) *agentLine {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &agentLine{orders: make(chan launch.Order), lost: make(chan struct{}, 1), log: log, stop: stop}
	l.work.Go(func() { l.keep(ctx, socket) })
	return l
}

// say sends r to the agent, now or when the agent is connected.
func (l *agentLine) say(r launch.Report, lock *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if same(l.report, r) {
		return
	}
	l.report, l.lock = r, lock
	l.inform()
}

// same reports whether r repeats the previous report. It compares only states that are reported repeatedly: every
// start and exit of etcd is sent.
func same(former, r launch.Report) bool {
	return (r.State == launch.StateBlocked || r.State == launch.StateUnusable) && former.State == r.State && former.Error == r.Error
}

// inform sends the newest report. On an error it closes the connection, which the reader detects.
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

// close ends the connection. Do not call say afterwards.
func (l *agentLine) close() {
	l.stop()
	l.work.Wait()
}

func (l *agentLine) keep(ctx context.Context, socket string) {
	dialer := net.Dialer{Timeout: dialTimeout}
	backoff := loop.Backoff{First: minBackoff, Last: maxBackoff}
	for ctx.Err() == nil {
		c, err := dialer.DialContext(ctx, "unix", socket)
		if err == nil {
			began := time.Now()
			l.serve(ctx, launch.NewConn(c.(*net.UnixConn)))
			// An agent that served for a while does not reject connections.
			if time.Since(began) > maxBackoff {
				backoff.Reset()
			}
		}
		loop.Sleep(ctx, backoff.Next())
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

const (
	// probeTimeout bounds one probe. The default timeout of the kubelet is one second.
	probeTimeout = 2 * time.Second
	// probeRetry is how long to wait for the address. The listener of the previous etcd can take a moment to close.
	probeRetry = 100 * time.Millisecond
	// probeLine bounds the request line.
	probeLine = 4 << 10
)

// probe responds to the kubelet while etcd does not run: alive, and not ready with a reason. It implements only as
// much HTTP as a probe needs. net/http alone would cost as much memory as the rest of launch.
type probe struct {
	addr string
	log  *slog.Logger

	mu     sync.Mutex
	reason string

	stop context.CancelFunc // nil while closed
	work sync.WaitGroup
}

// open serves the address with the reason for not being ready, or changes the reason.
func (p *probe) open(ctx context.Context, reason string) {
	p.mu.Lock()
	p.reason = reason
	p.mu.Unlock()
	if p.addr == "" || p.stop != nil {
		return
	}
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.work.Go(func() { p.serve(ctx) })
}

// close frees the address. When it returns, nothing listens there and no response is in progress.
func (p *probe) close() {
	if p.stop != nil {
		p.stop()
		p.work.Wait()
		p.stop = nil
	}
}

func (p *probe) serve(ctx context.Context) {
	listener := p.listen(ctx)
	if listener == nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.answer(ctx, conn) })
	}
}

func (p *probe) listen(ctx context.Context) net.Listener {
	var config net.ListenConfig
	for repeated := false; ; repeated = true {
		listener, err := config.Listen(ctx, "tcp", p.addr)
		if err == nil {
			return listener
		}
		if !repeated {
			p.log.WarnContext(ctx, "probe not served", "err", err)
		}
		if !loop.Sleep(ctx, probeRetry) {
			return nil
		}
	}
}

func (p *probe) answer(ctx context.Context, conn net.Conn) {
	defer conn.Close() // the probe reads what it got
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if conn.SetDeadline(time.Now().Add(probeTimeout)) != nil {
		return
	}
	line, err := bufio.NewReaderSize(conn, probeLine).ReadSlice('\n')
	if err != nil {
		return
	}
	p.mu.Lock()
	reason := p.reason
	p.mu.Unlock()
	_, _ = conn.Write(response(string(line), reason))
}

// response is the complete response to a request line.
func response(line, reason string) []byte {
	fields := strings.Fields(line)
	status, body := "400 Bad Request", "bad request"
	if len(fields) == 3 && (fields[0] == "GET" || fields[0] == "HEAD") {
		switch path, _, _ := strings.Cut(fields[1], "?"); path {
		case "/livez":
			status, body = "200 OK", "launch is running, etcd does not run: "+reason
		case "/readyz", "/health":
			status, body = "503 Service Unavailable", "etcd does not run: "+reason
		default:
			status, body = "404 Not Found", "etcd does not run: "+reason
		}
	}
	head := fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		status, len(body)+1)
	if len(fields) > 0 && fields[0] == "HEAD" {
		return []byte(head)
	}
	return []byte(head + body + "\n")
}
