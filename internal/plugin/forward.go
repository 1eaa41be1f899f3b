package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
)

// streamWait is how long the node may take to take a connection. It answers within milliseconds, and a connection that was lost without
// a sign never does.
const streamWait = 5 * time.Second

// forwarder passes the connections of a local port to the port for clients of a member that is ready. It asks the API server for one
// connection to the member, which carries all others. When that connection ends, the next client gets another member.
type forwarder struct {
	kube    *kube
	cluster string
	now     func() time.Time
	// notes is where the forwarder says what a user has to know while it runs.
	notes io.Writer

	mu sync.Mutex
	to *forwardedMember
	// failed is the member that did not take the last connection. Any other one is tried before it.
	failed string
}

// forwardedMember is the connection to a member.
type forwardedMember struct {
	name    string
	streams httpstream.Connection
	// failed says that the connection is of no use any more. It need not be closed yet: it waits for streams that get no answer.
	failed bool
}

// serve passes connections until the context ends.
func (f *forwarder) serve(ctx context.Context, listener net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		_ = listener.Close() // no other client comes
		f.close()
	})()
	for id := 0; ; id++ {
		client, err := listener.Accept()
		if ctx.Err() != nil {
			f.close()
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection at %s: %w", listener.Addr(), err)
		}
		all.Go(func() { f.pass(ctx, client, id) })
	}
}

// pass serves one client. A client whose connection ends without an answer connects again, as clients of etcd do.
func (f *forwarder) pass(ctx context.Context, client net.Conn, id int) {
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	defer func() { _ = client.Close() }()
	to, err := f.member(ctx)
	if err == nil {
		if err = to.pass(ctx, client, id); err != nil {
			f.fails(to)
			err = fmt.Errorf("pass a connection to member %s: %w", to.name, err)
		}
	}
	if err != nil && ctx.Err() == nil {
		f.note("A connection was closed: %v.", err)
	}
}

// note prints a sentence. A terminal that is gone changes nothing.
func (f *forwarder) note(format string, args ...any) {
	_, _ = fmt.Fprintf(f.notes, format+"\n", args...)
}

// fails ends the connection to a member, so that the next client gets another one.
func (f *forwarder) fails(to *forwardedMember) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed, to.failed = to.name, true
	_ = to.streams.Close() // it is of no use any more
}

// close ends the connection to the member.
func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to != nil {
		_ = f.to.streams.Close() // what it carried ends with it
	}
}

// member returns the member to which connections go, and connects to one if there is none.
func (f *forwarder) member(ctx context.Context) (*forwardedMember, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to != nil && !f.to.failed && !closed(f.to.streams) {
		return f.to, nil
	}
	objects, err := f.kube.objects(ctx, f.cluster)
	if err != nil {
		return nil, err
	}
	var problem error // of the first member: what the user may not do, it may not do with any
	for _, name := range f.candidates(view.Of(objects, f.now())) {
		streams, err := f.dial(ctx, name)
		if err != nil {
			problem = cmp.Or(problem, fmt.Errorf("forward port %d of Pod %s/%s: %w", clientPort, f.kube.namespace, name, err))
			continue
		}
		if f.to != nil && f.to.name != name {
			f.note("Connections go to member %s now.", name)
		}
		f.to = &forwardedMember{name: name, streams: streams}
		return f.to, nil
	}
	if problem != nil {
		return nil, problem
	}
	return nil, fmt.Errorf("no member is ready. See what they wait for: %s", f.kube.invoke(objects.Cluster, "status"))
}

// candidates are the members that are ready: the leader first, and last the one that failed.
func (f *forwarder) candidates(c view.Cluster) (names []string) {
	for _, m := range c.Members {
		if m.State == string(v1alpha1.MemberReady) {
			names = append(names, m.Name)
		}
	}
	rank := func(name string) int {
		switch name {
		case f.failed:
			return 2
		case c.Leader:
			return 0
		default:
			return 1
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names
}

// closed says whether a connection ended.
func closed(streams httpstream.Connection) bool {
	select {
	case <-streams.CloseChan():
		return true
	default:
		return false
	}
}

// dial asks the API server for a connection to a member. The dialer knows no context: what it opens too late is closed.
func (f *forwarder) dial(ctx context.Context, member string) (httpstream.Connection, error) {
	dialer, err := f.dialer(member)
	if err != nil {
		return nil, err
	}
	streams, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err == nil && ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), streams.Close())
	}
	return streams, err
}

// dialer is that of kubectl: WebSockets, and SPDY where they are not understood.
func (f *forwarder) dialer(member string) (httpstream.Dialer, error) {
	target := f.kube.typed.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.kube.namespace).Name(member).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(f.kube.config)
	if err != nil {
		return nil, err
	}
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, f.kube.config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	return portforward.NewFallbackDialerForStreaming(websocket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// pass copies what the client and the member send, on two streams: one for the data, and one on which the node says what is wrong.
func (m *forwardedMember) pass(ctx context.Context, client net.Conn, id int) error {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(clientPort))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(id))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problem, err := m.open(ctx, headers)
	if err != nil {
		return err
	}
	defer m.streams.RemoveStreams(problem)
	_ = problem.Close() // only the node writes on it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := m.open(ctx, headers)
	if err != nil {
		return err
	}
	defer m.streams.RemoveStreams(data)
	var said []byte
	var copies errgroup.Group
	copies.Go(func() (err error) {
		said, err = io.ReadAll(problem) // until the node closes it, or the connection ends
		return err
	})
	copies.Go(func() error {
		_, _ = io.Copy(data, client) // the client ended, or the member did
		return data.Close()
	})
	_, _ = io.Copy(client, data)
	_ = client.Close()
	_ = data.Reset() // what was not sent would hold up the other stream
	_ = copies.Wait()
	if len(said) > 0 {
		return errors.New(string(said))
	}
	return nil
}

// open opens a stream. It returns when the connection ends, which the connection itself does not notice.
func (m *forwardedMember) open(ctx context.Context, headers http.Header) (httpstream.Stream, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, streamWait, fmt.Errorf("the node did not answer within %s", streamWait))
	defer cancel()
	type result struct {
		stream httpstream.Stream
		err    error
	}
	opened := make(chan result, 1)
	var opening errgroup.Group // ends by the time limit of the connection, 30 s
	opening.Go(func() error {
		stream, err := m.streams.CreateStream(headers)
		opened <- result{stream, err}
		return err
	})
	select {
	case r := <-opened:
		return r.stream, r.err
	case <-m.streams.CloseChan():
		return nil, errors.New("the connection to its node ended")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
