package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Times of a connection. A member is dialled within its Pod or over the Pod network.
const (
	// dialTimeout bounds the time to connect. TCP sends a SYN that a dead node did not accept again after 1 s.
	dialTimeout = 2 * time.Second
	// keepAliveTime is the idle time before a ping. keepAliveTimeout bounds its response, after which the connection
	// is closed. So a frozen node is detected well within a renewal interval of 15 s. etcd rejects clients that ping
	// more often than every 5 s.
	keepAliveTime    = 6 * time.Second
	keepAliveTimeout = 3 * time.Second
	// redialDelay and maxRedialDelay bound the pause between attempts to connect to a member that is down. gRPC's
	// default maximum is two minutes, and a member that is back would look down for that time.
	redialDelay    = 100 * time.Millisecond
	maxRedialDelay = time.Second
	// httpTimeout bounds one request to etcd's metrics listener. Its probes can wait for a linearizable read.
	httpTimeout = 5 * time.Second
	// headerTimeout bounds how long a client may take to send its request header.
	headerTimeout = 5 * time.Second
	// requestTimeout bounds a complete request, answerTimeout its response from then on, and idleTimeout a connection
	// between two requests. Request bodies are one line. Metrics are the longest response, and Prometheus times out
	// after ten seconds. Two scrapes are up to a minute apart.
	requestTimeout = 10 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	// headerBytes is more than any client of the agent sends.
	headerBytes = 16 << 10
)

// Transport makes connections. The zero value uses plain text.
type Transport struct {
	// Client has the settings for dialing the client port of members, and Peer those for the peer port. nil is plain
	// text.
	Client, Peer *tls.Config
	// Plaintext says that members possibly do not use TLS on the client port yet. They are then dialed in plain text.
	Plaintext bool
	// External is nil where all members are dialed alike.
	External *External
	// Identity returns what identifies the certificates with which members are dialed now. Clients do not use a
	// connection after it changed. nil means that they never change.
	Identity func() string
}

func (t Transport) identity() string {
	if t.Identity == nil {
		return ""
	}
	return t.Identity()
}

// ClientURL returns the URL of the client port of a host, as etcd's flags and clients need it.
func (t Transport) ClientURL(host string, port int) string { return URL(t.Client != nil, host, port) }

// PeerURL returns the URL of the peer port of a host, as etcd's flags need it.
func (t Transport) PeerURL(host string, port int) string { return URL(t.Peer != nil, host, port) }

// URL returns the URL of a host and port.
func URL(secure bool, host string, port int) string {
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(port))}
	if secure {
		u.Scheme = "https"
	}
	return u.String()
}

// Etcd returns a client of the etcd members at endpoints, for one who keeps it: others use Clients. It connects on
// first use, so an error means that the configuration is wrong, never that a member is down. The caller closes it. A
// client of one endpoint queries that endpoint, whichever endpoint a call like Status names.
func (t Transport) Etcd(ctx context.Context, endpoints ...string) (*clientv3.Client, error) {
	return t.etcd(ctx, endpoints)
}

// Listener is Etcd for a client that watches many changes without urgency. It reads in bursts, at most each gatherFor.
// Other requests over this connection wait as long for their responses.
func (t Transport) Listener(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	return t.etcd(ctx, []string{endpoint}, gathered()...)
}

func (t Transport) etcd(ctx context.Context, endpoints []string, options ...grpc.DialOption) (*clientv3.Client, error) {
	switch {
	case t.External != nil:
		options = append(options, grpc.WithTransportCredentials(newByHost(t.Client, t.Plaintext, *t.External)))
	case t.Client != nil:
		endpoints = secured(endpoints)
		if t.Plaintext {
			options = append(options, grpc.WithTransportCredentials(newEither(t.Client)))
		}
	}
	client, err := clientv3.New(clientv3.Config{
		Context:              ctx,
		Endpoints:            endpoints,
		TLS:                  t.Client,
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
		// clientv3 uses a new connection for a request to one endpoint, such as Status. This makes it use the existing
		// connection.
		remote := clientv3.RetryMaintenanceClient(client, client.ActiveConnection())
		client.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(remote, client)
	}
	return client, nil
}

// HTTPClient returns a client for the HTTP endpoints of members: of the peer port, and those in plain text.
func (t Transport) HTTPClient() *http.Client {
	transport := &http.Transport{
		TLSClientConfig: t.Peer,
		DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConns:    4,
		IdleConnTimeout: time.Minute,
	}
	if t.External != nil {
		transport.DialTLSContext = t.dialPeer
	}
	return &http.Client{Timeout: httpTimeout, Transport: transport}
}

// AgentClient returns a client for the agents of other members. It verifies that they belong to this cluster, and follows
// no redirect.
func (t Transport) AgentClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig:   t.Client,
			DialContext:       (&net.Dialer{Timeout: dialTimeout}).DialContext,
			DisableKeepAlives: true,
		},
	}
}

// Listen opens a listener at host (all addresses if empty) and port (any if 0).
func (t Transport) Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}

// Server returns an HTTP server with time limits, for a listener from Listen.
func (t Transport) Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: headerBytes,
	}
}

// maxConnections bounds what unknown callers can have open at the secure listener. An agent has a few callers at a time.
const maxConnections = 64

// secureIdleTimeout bounds an idle connection there: requests are rare, and a new connection costs milliseconds.
const secureIdleTimeout = 5 * time.Second

// Secure serves TLS with the settings over a listener from Listen. HTTP/2 is off, so that a connection has one request at
// a time.
func (t Transport) Secure(listener net.Listener, settings *tls.Config, handler http.Handler) (*http.Server, net.Listener) {
	server := t.Server(handler)
	server.IdleTimeout = secureIdleTimeout
	server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // a failed handshake of an unknown caller is no event
	return server, tls.NewListener(netutil.LimitListener(listener, maxConnections), settings)
}

// TakeUpTo lets the response to a request take the given time, regardless of the limit of the server.
func TakeUpTo(w http.ResponseWriter, d time.Duration) error {
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + answerTimeout)); err != nil {
		return fmt.Errorf("extend the response timeout to %s: %w", d, err)
	}
	return nil
}

// etcdLogger writes the errors of etcd's client as JSON to stderr, with the keys of the agent's log. The client logs
// each failed attempt of a retried call at Warn. Those are left out, because the caller reports them better.
func etcdLogger() *zap.Logger {
	encoder := zap.NewProductionEncoderConfig()
	encoder.TimeKey, encoder.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	encoder.EncodeLevel = zapcore.CapitalLevelEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.Lock(os.Stderr), zapcore.ErrorLevel)
	return zap.New(core)
}

const (
	// gatherFor is how long received data may wait. etcd sends each revision as one message, and most of the reader's
	// cost of a message is the wake-up: at 5000 messages a second this saves a third.
	gatherFor = 20 * time.Millisecond
	// gatherWindow is how much etcd may send in that time, in bytes: 50 MB/s. A fixed window also avoids the pings
	// with which gRPC looks for a better one.
	gatherWindow = 1 << 20
	// gatherBuffer is how much is read at once, in bytes: what arrives in that time at 5000 revisions of 1 KiB a
	// second.
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

// gatheringConn reads all data that has arrived, and waits for more data before it reads again.
type gatheringConn struct {
	net.Conn
	raw syscall.RawConn
	// next is the earliest time of the next read.
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
		<-time.After(wait) // a concurrent close waits for it
		c.wakeAt(1)
	}
	n, err := c.Conn.Read(p)
	if n < len(p) {
		c.next = time.Now().Add(gatherFor)
	}
	return n, err
}

// Reach returns nil if a TCP connection to address, a host and a port, succeeds. It uses no protocol above TCP. Call
// it before polling with etcd's client, which waits for its backoff if nothing listens yet.
func (t Transport) Reach(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	_ = conn.Close()
	return nil
}
