package start

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// member is one Pod: a volume, a Bootstrapper, and a replacement for launch that runs what it is ordered to run.
type member struct {
	c    *cluster
	name string
	cfg  config.Config
	stop context.CancelFunc
	done chan struct{}
	b    *Bootstrapper
	// openStore stands in for the stores; nil for those that there are.
	openStore func(context.Context, store.Config) (store.Store, error)
	// renewed: the Pod has its own settings of TLS.
	renewed bool
	// silent: the agent does not renew the Lease.
	silent atomic.Bool
	// ahead is by how much the clock of the node is ahead of that of the API server, in nanoseconds.
	ahead  atomic.Int64
	mu     sync.Mutex
	etcd   *exec.Cmd
	said   []Published
	report *leases.DiskReport
	// failure is that of the last disk report.
	failure leases.RestoreFailure
	output  bytes.Buffer
}

func (c *cluster) addMember(name string, i int) *member {
	c.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{leases.AnnotationPodUID: "pod-" + name, leases.AnnotationVolumeUID: "volume-" + name},
	}}
	if _, err := c.leases.Create(c.t.Context(), lease, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Namespace, cfg.Cluster, cfg.ClusterUID, cfg.Member, cfg.PodUID = c.ns, "c", "uid-c", name, "pod-"+name
	cfg.PeerService, cfg.EtcdVersion, cfg.EtcdPath = "c-peer", c.version, c.binary
	// Every option is set, to verify that the binary of each minor version accepts its flag.
	cfg.QuotaBackendBytes, cfg.SnapshotCount = 1<<30, 5000
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "1h"
	cfg.HeartbeatInterval, cfg.ElectionTimeout = 100*time.Millisecond, time.Second
	cfg.VolumePath, cfg.ListenHost = c.t.TempDir(), fmt.Sprint(c.net, i)
	m := &member{c: c, name: name, cfg: cfg}
	c.members[name] = m
	c.t.Cleanup(func() {
		m.crash()
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", name, m.log())
		}
	})
	return m
}

// Write collects the log of the agent without that of etcd.
func (m *member) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.output.Write(p)
}

func (m *member) log() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.output.String()
}

// start runs the Pod of the member until halt.
func (m *member) start() {
	m.c.t.Helper()
	m.run(m.boot())
}

// boot returns the agent of the member's Pod.
func (m *member) boot() *Bootstrapper {
	m.c.t.Helper()
	certs, dial := m.secure()
	if dial.External = External(m.cfg, certs); dial.External != nil {
		dial.External.Owns = func(host string) bool {
			for _, other := range m.c.members {
				if other.cfg.ListenHost == host {
					return true
				}
			}
			return false
		}
	}
	b, err := New(Options{
		Config: m.cfg, Store: m.c.store, Transport: dial, Clients: transport.NewClients(dial), Certificates: certs, Log: slog.New(slog.NewTextHandler(m, nil)),
		Registerer: prometheus.NewRegistry(), OpenStore: m.openStore,
		ServerTime: func() (time.Time, bool) { return time.Now().Add(-time.Duration(m.ahead.Load())), true },
		Host: func(name string) string {
			if other, known := m.c.members[name]; known && !m.c.named {
				return other.cfg.ListenHost
			}
			return PeerHost(m.cfg, name) // of an external member: no address
		},
		Decided: func(p Published) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.said = append(m.said, p)
		},
		Held: func(report *leases.DiskReport) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.report = report
			if report != nil {
				m.failure = report.Failed
			}
		},
	})
	if err != nil {
		m.c.t.Fatal(err)
	}
	// On loopback all members share all addresses. This is the one of the Pod.
	b.addresses = func() ([]net.Addr, error) { return []net.Addr{&net.IPNet{IP: net.ParseIP(m.cfg.ListenHost)}}, nil }
	if m.c.named {
		return b
	}
	b.lookup = func(_ context.Context, host string) ([]string, error) {
		if net.ParseIP(host) != nil {
			return []string{host}, nil
		}
		var all []string
		for _, other := range m.c.members {
			all = append(all, other.cfg.ListenHost)
		}
		return all, nil
	}
	return b
}

// next returns one start decision.
func (m *member) next(b *Bootstrapper) launch.Order {
	m.c.t.Helper()
	ctx, cancel := context.WithTimeout(m.c.t.Context(), maxWait)
	defer cancel()
	order, err := b.Next(ctx, launch.Idle{}, func(launch.Order) {})
	if err != nil {
		m.c.t.Fatal(err)
	}
	return order
}

// etcdAlone runs etcd without an agent that follows it, and returns the function that stops it.
func (m *member) etcdAlone(order launch.Order) (stop func() error) {
	m.c.t.Helper()
	etcd := exec.Command(order.Path, order.Argv[1:]...)
	etcd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := etcd.Start(); err != nil {
		m.c.t.Fatal(err)
	}
	return func() error {
		return errors.Join(etcd.Process.Signal(syscall.SIGTERM), etcd.Wait())
	}
}

func (m *member) run(b *Bootstrapper) {
	ctx, cancel := context.WithCancel(context.Background())
	m.b, m.stop, m.done = b, cancel, make(chan struct{})
	m.mu.Lock()
	m.said = nil
	m.mu.Unlock()
	go func() {
		defer close(m.done)
		report := launch.Report{State: launch.StateIdle}
		for ctx.Err() == nil {
			order, err := b.Next(ctx, launch.Idle{Report: report}, func(launch.Order) {})
			if err != nil {
				continue
			}
			report = m.supervise(ctx, b, order, report.Crashes)
		}
	}()
}

// supervise runs one etcd and follows it, as launch and the agent do.
func (m *member) supervise(ctx context.Context, b *Bootstrapper, order launch.Order, crashes int) launch.Report {
	etcd := exec.Command(order.Path, order.Argv[1:]...)
	etcd.Env, etcd.SysProcAttr = append([]string{}, order.Env...), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output bytes.Buffer
	etcd.Stdout, etcd.Stderr = &output, &output
	began := time.Now()
	if err := etcd.Start(); err != nil {
		fmt.Fprintln(m, "start etcd:", err)
	}
	m.mu.Lock()
	m.etcd = etcd
	m.mu.Unlock()
	running, ended := context.WithCancel(ctx)
	stable := make(chan struct{})
	go func() {
		defer close(stable)
		err := b.FinishStart(running, func(context.Context, string) error { return etcd.Process.Signal(syscall.SIGTERM) })
		fmt.Fprintln(m, "stable:", err)
		if err == nil {
			_ = b.PruneQuarantined(running, nil)
		}
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = b.WatchOrders(running, func(context.Context, string) error { return etcd.Process.Signal(syscall.SIGTERM) })
	}()
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		m.showRunning(running, b)
	}()
	stop := context.AfterFunc(ctx, func() { _ = etcd.Process.Signal(syscall.SIGTERM) })
	err := etcd.Wait()
	stop()
	ended()
	<-stable
	<-watched
	<-renewing
	fmt.Fprintf(m, "etcd ended: %v\n%s\n", err, tail(output.String(), 1200))
	report := launch.Report{State: launch.StateIdle, Clean: err == nil, LastExit: &launch.Exit{RanFor: time.Since(began)}}
	if err != nil {
		report.Crashes = crashes + 1
	}
	return report
}

// showRunning writes to the Lease that a learner runs, as the agent does, until that is done. What else an agent reports is of no use here.
func (m *member) showRunning(ctx context.Context, b *Bootstrapper) {
	for loop.Sleep(ctx, 50*time.Millisecond) {
		identity, known := b.Identity()
		if m.silent.Load() || !known || !identity.Formed {
			continue
		}
		status, err := b.status(ctx, b.local())
		switch {
		case err != nil || status.MemberID != uint64(identity.MemberID):
			continue
		case status.Role != membership.RoleLearner:
			return
		}
		if _, err := m.c.store.PatchMember(ctx, m.name, leases.MemberPatch{Member: leases.Member{
			ID: status.MemberID, Role: leases.RoleLearner, ClusterID: status.ClusterID, Epoch: identity.Epoch,
		}}); err == nil {
			return
		}
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// halt ends the Pod, etcd by SIGTERM.
func (m *member) halt() {
	if m.stop == nil {
		return
	}
	m.stop()
	<-m.done
	m.stop = nil
}

// crash ends the Pod like a power failure, because etcd without a quorum takes seconds to exit by itself.
func (m *member) crash() {
	if m.stop == nil {
		return
	}
	m.stop()
	m.kill()
	<-m.done
	m.stop = nil
}

// kill sends SIGKILL to etcd alone.
func (m *member) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.etcd != nil {
		_ = m.etcd.Process.Kill()
	}
}

// wipe empties the volume.
func (m *member) wipe() {
	m.c.t.Helper()
	entries, err := os.ReadDir(m.cfg.VolumePath)
	if err != nil {
		m.c.t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(m.cfg.VolumePath, e.Name())); err != nil {
			m.c.t.Fatal(err)
		}
	}
}

// rules returns the rules by which the member decided since its start.
func (m *member) rules() []string {
	return m.decided(func(Published) bool { return true })
}

// deeds returns the rules that led to an act. How often the member waited before depends on the speed of the machine.
func (m *member) deeds() []string {
	return m.decided(func(p Published) bool { return p.Mode != ModeWait })
}

func (m *member) decided(want func(Published) bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rules []string
	for _, p := range m.said {
		if want(p) {
			rules = append(rules, p.Rule)
		}
	}
	return rules
}
