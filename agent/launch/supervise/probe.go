package supervise

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// probeTimeout bounds one probe; the kubelet gives up after a second by default.
	probeTimeout = 2 * time.Second
	// probeRetry is how long to wait for the address: a former etcd's listener may take a moment to be gone.
	probeRetry = 100 * time.Millisecond
	// probeLine bounds the request line.
	probeLine = 4 << 10
)

// probe answers the kubelet in etcd's place while no etcd runs: alive, and not ready for a reason. It speaks as much of
// HTTP as a probe needs; net/http alone would cost as much memory as all the rest of launch.
type probe struct {
	addr string
	log  *slog.Logger

	mu     sync.Mutex
	reason string

	stop context.CancelFunc // nil while closed
	work sync.WaitGroup
}

// open serves the address with reason for not being ready, or changes the reason.
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

// close frees the address: when it returns, nothing listens there and no answer is under way.
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
	for notified := false; ; notified = true {
		listener, err := config.Listen(ctx, "tcp", p.addr)
		if err == nil {
			return listener
		}
		if !notified {
			p.log.WarnContext(ctx, "probe not served", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(probeRetry):
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

// response is the whole answer to a request line.
func response(line, reason string) []byte {
	fields := strings.Fields(line)
	status, body := "400 Bad Request", "bad request"
	if len(fields) == 3 && (fields[0] == "GET" || fields[0] == "HEAD") {
		switch path, _, _ := strings.Cut(fields[1], "?"); path {
		case "/livez":
			status, body = "200 OK", "launch is alive, etcd does not run: "+reason
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
