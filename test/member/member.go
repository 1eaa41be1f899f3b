package member

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// maxWait with an etcd that needs a second on an idle machine.
const maxWait = 2 * time.Minute

// Name of the member unless another is given, as the restored data must know it too.
const Name = "m"

// Minors that there are programs of, oldest first.
var Minors = binaries.EtcdMinors

// Member is one running etcd, alone in its cluster unless StartCluster made it.
type Member struct {
	// Endpoint of its clients, and PeerURL.
	Endpoint, PeerURL string
	// Dir is its data directory.
	Dir string
	// Client of it.
	Client *clientv3.Client

	cmd    *exec.Cmd
	output Buffer
}

// Options of a start.
type Options struct {
	// Name of the member; empty means Name. Cluster is --initial-cluster; empty means that the member is alone.
	Name, Cluster string
	// Dir is the data directory; empty means a new one.
	Dir string
	// PeerURL as the data knows it; empty means a free one.
	PeerURL string
	// Token of a new cluster.
	Token string
	// User and Password of the client, where authentication is on.
	User, Password string
	// TLS are the settings of the client; nil means plain text. The certificates of the member are in Args.
	TLS *tls.Config
	// Args are more flags.
	Args []string
}

// Program returns the path of a program of a minor: etcd, etcdctl or etcdutl.
func Program(tb testing.TB, name, minor string) string {
	tb.Helper()
	name += "-" + minor
	built, err := binaries.Programs(tb.Context(), tb.Logf, name)
	if err != nil {
		tb.Fatal(err)
	}
	return built[name]
}

// Start runs etcd of a minor and waits until it serves. It ends with the test.
func Start(tb testing.TB, minor string, o Options) *Member {
	tb.Helper()
	m := begin(tb, minor, o)
	m.dial(tb, o)
	return m
}

// StartCluster runs a cluster of etcds of a minor, as someone without druid would, and waits until all serve.
func StartCluster(tb testing.TB, minor string, members int, args ...string) []*Member {
	tb.Helper()
	return StartClusterWith(tb, minor, members, "http", Options{Args: args})
}

// StartClusterWith is StartCluster with the options of all members, and with the scheme of the connections of peers.
func StartClusterWith(tb testing.TB, minor string, members int, peerScheme string, all Options) []*Member {
	tb.Helper()
	options := make([]Options, members)
	for i := range options {
		options[i] = all
	}
	return StartEach(tb, minor, peerScheme, options...)
}

// StartEach is StartClusterWith with options of its own for each member.
func StartEach(tb testing.TB, minor, peerScheme string, options ...Options) []*Member {
	tb.Helper()
	pairs := make([]string, len(options))
	for i, o := range options {
		o.Name, o.PeerURL, o.Token = fmt.Sprintf("etcd-%d", i), peerScheme+"://"+machine.Address(tb), "etcd-cluster"
		pairs[i] = o.Name + "=" + o.PeerURL
		o.Args = append([]string{"--heartbeat-interval=100", "--election-timeout=1000"}, o.Args...)
		options[i] = o
	}
	running := make([]*Member, len(options))
	for i, o := range options {
		o.Cluster = strings.Join(pairs, ",")
		running[i] = begin(tb, minor, o)
	}
	for i, m := range running {
		m.dial(tb, options[i])
	}
	return running
}

// begin runs etcd.
func begin(tb testing.TB, minor string, o Options) *Member {
	tb.Helper()
	m := &Member{Endpoint: "http://" + machine.Address(tb), PeerURL: o.PeerURL, Dir: o.Dir}
	if o.TLS != nil {
		m.Endpoint = strings.Replace(m.Endpoint, "http:", "https:", 1)
	}
	if m.Dir == "" {
		m.Dir = filepath.Join(tb.TempDir(), "data")
	}
	if m.PeerURL == "" {
		m.PeerURL = "http://" + machine.Address(tb)
	}
	if o.Name == "" {
		o.Name = Name
	}
	if o.Cluster == "" {
		o.Cluster = o.Name + "=" + m.PeerURL
	}
	args := append([]string{
		"--name=" + o.Name, "--data-dir=" + m.Dir, "--listen-client-urls=" + m.Endpoint, "--advertise-client-urls=" + m.Endpoint,
		"--listen-peer-urls=" + m.PeerURL, "--initial-advertise-peer-urls=" + m.PeerURL, "--initial-cluster=" + o.Cluster,
		"--initial-cluster-token=" + o.Token, "--unsafe-no-fsync", "--log-level=warn",
		// Alone, it waits for no member, and is its own leader at once.
		"--heartbeat-interval=10", "--election-timeout=100",
	}, o.Args...)
	m.run(tb, Program(tb, "etcd", minor), args...)
	tb.Cleanup(func() {
		m.Stop(tb)
		if tb.Failed() {
			tb.Logf("etcd %s in %s:\n%s", minor, m.Dir, m.output.String())
		}
	})
	return m
}

// run starts the process, which outlives anyone who starts it, up to the end of the test.
func (m *Member) run(tb testing.TB, program string, args ...string) {
	tb.Helper()
	m.cmd = exec.CommandContext(context.WithoutCancel(tb.Context()), program, args...)
	m.cmd.Stdout, m.cmd.Stderr = &m.output, &m.output
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
}

// Restart runs the member again that was stopped, on its data and at its addresses. It does not wait for it.
func (m *Member) Restart(tb testing.TB) {
	tb.Helper()
	m.run(tb, m.cmd.Path, m.cmd.Args[1:]...)
}

func (m *Member) dial(tb testing.TB, o Options) {
	tb.Helper()
	var err error
	m.Client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{m.Endpoint}, Username: o.User, Password: o.Password, TLS: o.TLS, Logger: zap.NewNop(), DialTimeout: maxWait,
		MaxCallSendMsgSize: 64 << 20,
	})
	if err != nil {
		tb.Fatalf("dial etcd: %v\n%s", err, m.output.String())
	}
	tb.Cleanup(func() { _ = m.Client.Close() })
	ctx, cancel := context.WithTimeout(tb.Context(), maxWait)
	defer cancel()
	for poll := time.Tick(20 * time.Millisecond); ; {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := m.Client.Get(attempt, "\x00", clientv3.WithCountOnly())
		cancel()
		if err == nil {
			return
		}
		select {
		case <-poll:
		case <-ctx.Done():
			tb.Fatalf("etcd does not serve after %s: %v\n%s", maxWait, err, m.output.String())
		}
	}
}

// Stop ends the process as Kubernetes would, and waits for it. It may be called again.
func (m *Member) Stop(tb testing.TB) {
	tb.Helper()
	if m.cmd.ProcessState != nil {
		return
	}
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	overdue := time.AfterFunc(maxWait, func() { _ = m.cmd.Process.Kill() })
	defer overdue.Stop()
	var exit *exec.ExitError
	if err := m.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		tb.Errorf("etcd: %v", err)
	}
}

// Kill ends the process as a power cut would.
func (m *Member) Kill(tb testing.TB) {
	tb.Helper()
	if m.cmd.ProcessState == nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait() // it says that it was killed
	}
}

// AwaitEnd waits until the process ends by itself.
func (m *Member) AwaitEnd(tb testing.TB) {
	tb.Helper()
	overdue := time.AfterFunc(maxWait, func() {
		tb.Errorf("etcd runs after %s", maxWait)
		_ = m.cmd.Process.Kill()
	})
	defer overdue.Stop()
	_ = m.cmd.Wait() // it says with which code
}

// Log is what etcd has written until now.
func (m *Member) Log() string { return m.output.String() }

// Buffer collects what processes write, at any time. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what was written until now.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
