package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

func TestMain(m *testing.M) {
	env.ManyAtOnce(8)
	code := env.Main(m)
	if code == 0 && env.Complete() {
		code = checkRights()
	}
	os.Exit(code)
}

const member = "demo-abcde"

// maxWait is the timeout of a test on a busy machine.
const maxWait = 3 * time.Minute

// pod is one member without a kubelet: a real launch with a real etcd, and the agent in this process. The agent uses a
// real kube-apiserver with the service account of the cluster.
type pod struct {
	t         *testing.T
	admin     *kubernetes.Clientset
	namespace string
	config    config.Config
	agent     *rest.Config
	cut       *cut
	launch    int // its process ID

	mu  sync.Mutex
	log bytes.Buffer
}

// cut is the connection to the API server, which a test can interrupt.
type cut struct {
	broken atomic.Bool
	mu     sync.Mutex
	conns  []net.Conn
}

func (c *cut) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.broken.Load() {
		return nil, errors.New("the wire is cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cut) cut() {
	c.broken.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// newPod creates a member for a parallel test.
func newPod(t *testing.T, reloadable config.Reloadable) *pod {
	t.Helper()
	t.Parallel()
	built := build(t)
	admin := env.APIServer(t)
	p := &pod{t: t, namespace: env.Namespace(t, admin), cut: &cut{}}
	p.admin = kubernetes.NewForConfigOrDie(admin)
	p.agent = rest.CopyConfig(admin)
	p.agent.Dial = p.cut.dial
	p.agent.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + p.namespace + ":" + manifests.AgentName("demo"),
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	p.agent.Wrap(used.Record)
	dir := t.TempDir()
	c := config.Default()
	c.Namespace, c.Cluster, c.ClusterUID, c.Member, c.PodUID = p.namespace, "demo", "cluster-uid", member, "pod-uid"
	c.PeerService, c.EtcdVersion, c.EtcdPath, c.ListenHost = "demo-peer", built.version, built.etcd, "127.0.0.1"
	c.VolumePath, c.SocketPath, c.ConfigPath = filepath.Join(dir, "volume"), filepath.Join(machine.OpenDir(t), "s"), filepath.Join(dir, "config.yaml")
	c.ClientPort, c.PeerPort, c.MetricsPort, c.AgentPort = machine.Port(t), machine.Port(t), machine.Port(t), machine.Port(t)
	p.config = c
	p.configure(reloadable)
	p.must(os.Mkdir(c.VolumePath, 0o700))
	p.makeCluster()
	p.startLaunch(built.launch)
	return p
}

// configure writes the configuration file of the agent.
func (p *pod) configure(reloadable config.Reloadable) {
	p.t.Helper()
	content, err := reloadable.YAML()
	p.must(err)
	p.must(os.WriteFile(p.config.ConfigPath, content, 0o600))
}

type builtBinaries struct{ etcd, version, launch string }

func build(t *testing.T) builtBinaries {
	t.Helper()
	repo, err := binaries.RepoDir()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := binaries.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	set, err := binaries.Builder{Repo: repo, Cache: cache, Progress: t.Logf}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	version, err := binaries.EtcdVersion(repo, "3.6")
	if err != nil {
		t.Fatal(err)
	}
	return builtBinaries{etcd: set["etcd-3.6"], version: strings.TrimPrefix(version, "v"), launch: env.Program(t, "./cmd/launch")}
}

// makeCluster does what druid does for a cluster of one member.
func (p *pod) makeCluster() {
	p.t.Helper()
	cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: p.namespace, UID: "cluster-uid"}}
	cluster.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{HostPath: "/backups"}}}
	shared, err := manifests.Shared(cluster, leases.Record{Members: []string{member}}, manifests.Options{Reloadable: config.DefaultReloadable()})
	p.must(err)
	as := metav1.ApplyOptions{FieldManager: "druid", Force: true}
	for _, object := range shared {
		switch o := runtime.ApplyConfiguration(object.Configuration).(type) {
		case *rbacv1ac.RoleApplyConfiguration:
			_, err = p.admin.RbacV1().Roles(p.namespace).Apply(p.t.Context(), o, as)
		case *rbacv1ac.RoleBindingApplyConfiguration:
			_, err = p.admin.RbacV1().RoleBindings(p.namespace).Apply(p.t.Context(), o, as)
		}
		p.must(err)
	}
	record, err := manifests.RecordLease(cluster, leases.Record{Phase: leases.PhaseForming, Seed: member, Epoch: 1, Members: []string{member}})
	p.must(err)
	own := manifests.MemberLease(cluster, member)
	own.Annotations = map[string]string{leases.AnnotationPodUID: "pod-uid", leases.AnnotationVolumeUID: "volume-uid"}
	api := p.admin.CoordinationV1().Leases(p.namespace)
	full, err := manifests.SnapshotLease(cluster, leases.ComponentFullSnapshot)
	p.must(err)
	delta, err := manifests.SnapshotLease(cluster, leases.ComponentDeltaSnapshot)
	p.must(err)
	for _, lease := range []*coordinationLease{record, manifests.LeaderLease(cluster), own, full, delta} {
		_, err := api.Create(p.t.Context(), lease, metav1.CreateOptions{})
		p.must(err)
	}
}

func (p *pod) startLaunch(path string) {
	p.t.Helper()
	cmd := exec.Command(path, "--socket", p.config.SocketPath, "--volume", p.config.VolumePath, "--probe", "")
	cmd.Stdout, cmd.Stderr = p, p
	p.must(cmd.Start())
	p.launch = cmd.Process.Pid
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			p.t.Logf("launch ended: %v", err)
		case <-time.After(maxWait):
			_ = cmd.Process.Kill()
			p.t.Error("launch did not end")
		}
		if p.t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.t.Logf("log:\n%s", p.log.Bytes()[max(0, p.log.Len()-12000):])
		}
	})
}

// Write collects the logs of all processes.
func (p *pod) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// startAgent runs an agent, and returns a function that ends it like SIGTERM.
func (p *pod) startAgent() (*agent.Agent, func()) {
	p.t.Helper()
	a, err := agent.New(agent.Options{
		Config: p.config, Kubernetes: p.agent, Registry: prometheus.NewRegistry(), Version: "test",
		Log:  slog.New(slog.NewJSONHandler(p, nil)),
		Host: func(string) string { return "127.0.0.1" },
	})
	p.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					p.t.Errorf("the agent ended with %v, want none", err)
				}
			case <-time.After(maxWait):
				p.t.Error("the agent did not end")
			}
		})
	}
	p.t.Cleanup(stop)
	return a, stop
}

func (p *pod) lease(name string) *coordinationLease {
	p.t.Helper()
	lease, err := p.admin.CoordinationV1().Leases(p.namespace).Get(p.t.Context(), name, metav1.GetOptions{})
	p.must(err)
	return lease
}

func (p *pod) eventually(what string, condition func() error) {
	p.t.Helper()
	deadline := time.Now().Add(maxWait)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %v", what, err)
		}
		pause(p.t.Context(), 100*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (p *pod) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}
