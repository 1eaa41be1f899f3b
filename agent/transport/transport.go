package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Times of a connection. A member is dialled within its Pod or over the Pod network.
const (
	// dialTimeout is how long a connection may take to come up. A SYN that a dead node swallows is sent again after 1 s.
	dialTimeout = 2 * time.Second
	// keepAliveTime is the idle time before a ping; keepAliveTimeout is how long its answer may take before the
	// connection is given up: a frozen node is noticed well within a renewal interval of 15 s. etcd refuses clients that
	// ping more often than every 5 s.
	keepAliveTime    = 6 * time.Second
	keepAliveTimeout = 3 * time.Second
	// redialDelay and maxRedialDelay pace the attempts to reach a member that is down. gRPC's own go up to two minutes:
	// a member that is back would be seen as away for as long.
	redialDelay    = 100 * time.Millisecond
	maxRedialDelay = time.Second
	// httpTimeout bounds one request to etcd's metrics listener, whose probes may wait for a linearizable read.
	httpTimeout = 5 * time.Second
	// headerTimeout bounds how long a client of ours may take to say what it wants.
	headerTimeout = 5 * time.Second
	// requestTimeout bounds a whole request, answerTimeout its answer from then on, and idleTimeout a connection between two
	// requests. Bodies are a line; metrics are the longest answer, and Prometheus gives up after ten seconds. Two scrapes are up to
	// a minute apart.
	requestTimeout = 10 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	// headerBytes is more than any client of ours sends.
	headerBytes = 16 << 10
)

// Transport makes connections. The zero value speaks plain text.
type Transport struct {
	// TLS for both sides of every connection, nil for none.
	TLS *tls.Config
}

// Scheme of the URLs under which members are reached: http or https.
func (t Transport) Scheme() string {
	if t.TLS != nil {
		return "https"
	}
	return "http"
}

// URL of a host and port, as etcd's flags and clients want it.
func (t Transport) URL(host string, port int) string {
	u := url.URL{Scheme: t.Scheme(), Host: net.JoinHostPort(host, strconv.Itoa(port))}
	return u.String()
}

// Etcd returns a client of the etcd members at endpoints. It connects when it is first used, so an error means that the
// configuration is wrong, never that a member is away. The caller closes it. A client of one endpoint asks that one, whichever
// endpoint a call like Status names.
func (t Transport) Etcd(ctx context.Context, endpoints ...string) (*clientv3.Client, error) {
	return t.etcd(ctx, endpoints)
}

// Listener is Etcd for one who watches much and is in no hurry: what arrives is read in bursts, at most each gatherFor.
// Whatever else is asked over this connection waits as long for its answer.
func (t Transport) Listener(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	return t.etcd(ctx, []string{endpoint}, gathered()...)
}

func (t Transport) etcd(ctx context.Context, endpoints []string, options ...grpc.DialOption) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Context:              ctx,
		Endpoints:            endpoints,
		TLS:                  t.TLS,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Logger:               etcdLogger(),
		DialOptions: append(options, grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: redialDelay, Multiplier: backoff.DefaultConfig.Multiplier,
				Jitter: backoff.DefaultConfig.Jitter, MaxDelay: maxRedialDelay,
			},
			MinConnectTimeout: dialTimeout,
		})),
	})
	if err != nil {
		return nil, fmt.Errorf("dial etcd at %v: %w", endpoints, err)
	}
	if len(endpoints) == 1 {
		// What is asked of one endpoint, as each Status is, clientv3 asks over a new connection: here it is the one there is.
		remote := clientv3.RetryMaintenanceClient(client, client.ActiveConnection())
		client.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(remote, client)
	}
	return client, nil
}

// HTTPClient returns a client for the HTTP endpoints of members.
func (t Transport) HTTPClient() *http.Client {
	return &http.Client{
		Timeout: httpTimeout,
		Transport: &http.Transport{
			TLSClientConfig: t.TLS,
			DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext,
			MaxIdleConns:    4,
			IdleConnTimeout: time.Minute,
		},
	}
}

// Listen opens the listener of a server of ours at host (all addresses when empty) and port (any when 0).
func (t Transport) Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if t.TLS != nil {
		return tls.NewListener(listener, t.TLS), nil
	}
	return listener, nil
}

// Server returns an HTTP server with bounded patience, for a listener made by Listen.
func (t Transport) Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: headerBytes,
	}
}

// TakeUpTo lets the answer to a request take as long as the given time, whatever the server's limit is.
func TakeUpTo(w http.ResponseWriter, d time.Duration) error {
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + answerTimeout)); err != nil {
		return fmt.Errorf("take up to %s for an answer: %w", d, err)
	}
	return nil
}

// etcdLogger writes what etcd's client warns of as JSON to stderr, with the keys of the agent's own log. The client logs
// each failed attempt of a retried call at Warn, which its caller reports better: only errors are left.
func etcdLogger() *zap.Logger {
	encoder := zap.NewProductionEncoderConfig()
	encoder.TimeKey, encoder.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	encoder.EncodeLevel = zapcore.CapitalLevelEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.Lock(os.Stderr), zapcore.ErrorLevel)
	return zap.New(core)
}

const (
	// gatherFor is how long what arrives may wait. etcd sends each revision as a message of its own, and most of what a
	// message costs its reader is to wake up for it: at 5000 a second this saves a third.
	gatherFor = 20 * time.Millisecond
	// gatherWindow is how much etcd may send meanwhile, in bytes: 50 MB/s. A fixed window also spares the pings that gRPC
	// finds a better one with.
	gatherWindow = 1 << 20
	// gatherBuffer is how much is read at once, in bytes: what arrives in that time at 5000 revisions of 1 KiB a second.
	gatherBuffer = 128 << 10
)

func gathered() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithReadBufferSize(gatherBuffer), grpc.WithInitialWindowSize(gatherWindow), grpc.WithInitialConnWindowSize(gatherWindow),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return gather(c)
		}),
	}
}

// gatheringConn reads at once what had arrived when there was nothing more to read, and then lets more arrive.
type gatheringConn struct {
	net.Conn
	raw syscall.RawConn
	// next is when there is something to gain from reading again.
	next time.Time
}

func gather(c net.Conn) (net.Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &gatheringConn{Conn: c, raw: raw}, nil
}

func (c *gatheringConn) Read(p []byte) (int, error) {
	if wait := time.Until(c.next); wait > 0 {
		c.wakeAt(gatherBuffer)
		<-time.After(wait) // anyone who closes the connection meanwhile waits for it
		c.wakeAt(1)
	}
	n, err := c.Conn.Read(p)
	if n < len(p) {
		c.next = time.Now().Add(gatherFor)
	}
	return n, err
}

// wakeAt says how many bytes must have arrived before the kernel wakes this process. What cannot be set costs CPU alone.
func (c *gatheringConn) wakeAt(n int) {
	_ = c.raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) })
}

// Reach says whether something accepts a TCP connection at address, host and port; nil if so. It speaks no protocol. etcd's
// client waits out its backoff where no one listens yet; anyone who polls asks here first.
func (t Transport) Reach(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("reach %s: %w", address, err)
	}
	_ = conn.Close()
	return nil
}
