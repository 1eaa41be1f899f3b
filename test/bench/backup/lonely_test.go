package backup

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/alone"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/sources"
)

const (
	idleCluster, idleMember = "demo", "demo-aaaaa"
	idleHost                = "127.83.19.7"
)

// lone is a cluster of one member on loopback, with what a kubelet and druid would give it: Leases and a Role on a real
// kube-apiserver, a real launch, and an agent with the configuration that druid renders by default.
type lone struct {
	tb        testing.TB
	dir       string
	namespace string
	admin     *kubernetes.Clientset
	store     *leases.Store
	bucket    *bucket.Proxy
	cluster   *counter
	agent     int // its process
}

// lonely starts one.
func lonely(tb testing.TB) *lone {
	tb.Helper()
	api := env.APIServer(tb)
	m := &lone{tb: tb, namespace: env.Namespace(tb, api), admin: kubernetes.NewForConfigOrDie(api)}
	var err error
	m.dir, err = os.MkdirTemp("", "idle") // a socket's path must be short
	m.must(err)
	tb.Cleanup(func() { _ = os.RemoveAll(m.dir) })
	m.store = leases.NewStore(m.admin.CoordinationV1().Leases(m.namespace), idleCluster)
	owner := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: idleCluster, Namespace: m.namespace, UID: "cluster-uid"}}
	owner.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{S3: &v1alpha1.S3Store{Bucket: "backups"}}}
	m.grant(owner)
	m.leases(owner)
	c := m.configured(owner)
	user := "system:serviceaccount:" + m.namespace + ":" + manifests.AgentName(idleCluster)
	m.cluster = count(tb, api, user)
	launch, program := m.built("./cmd/launch", "launch"), m.built(alone.Program, "agent")
	m.run(launch, "--socket", c.SocketPath, "--volume", c.VolumePath, "--probe", "")
	certificate := filepath.Join(m.dir, "agent.json")
	m.must(alone.Certificate{
		Config: c, Addresses: map[string]string{idleMember: c.ListenHost}, Server: m.cluster.url, CA: m.cluster.ca, Profiles: *profiles,
	}.Write(certificate))
	m.agent = m.run(program, certificate)
	return m
}

func (m *lone) grant(owner *v1alpha1.EtcdCluster) {
	shared, err := manifests.Shared(owner, leases.Record{Members: []string{idleMember}}, manifests.Options{Reloadable: config.DefaultReloadable()})
	m.must(err)
	as := metav1.ApplyOptions{FieldManager: "druid", Force: true}
	for _, object := range shared {
		switch o := runtime.ApplyConfiguration(object.Configuration).(type) {
		case *rbacv1ac.RoleApplyConfiguration:
			_, err = m.admin.RbacV1().Roles(m.namespace).Apply(m.tb.Context(), o, as)
		case *rbacv1ac.RoleBindingApplyConfiguration:
			_, err = m.admin.RbacV1().RoleBindings(m.namespace).Apply(m.tb.Context(), o, as)
		}
		m.must(err)
	}
}

func (m *lone) leases(owner *v1alpha1.EtcdCluster) {
	record, err := manifests.RecordLease(owner, leases.Record{
		Phase: leases.PhaseForming, Seed: idleMember, Epoch: 1, Members: []string{idleMember},
	})
	m.must(err)
	full, err := manifests.SnapshotLease(owner, leases.ComponentFullSnapshot)
	m.must(err)
	changes, err := manifests.SnapshotLease(owner, leases.ComponentDeltaSnapshot)
	m.must(err)
	member := manifests.MemberLease(owner, idleMember)
	member.Annotations = map[string]string{leases.AnnotationPodUID: "pod", leases.AnnotationVolumeUID: "volume"}
	api := m.admin.CoordinationV1().Leases(m.namespace)
	for _, lease := range []*coordinationv1.Lease{record, full, changes, member, manifests.LeaderLease(owner)} {
		_, err := api.Create(m.tb.Context(), lease, metav1.CreateOptions{})
		m.must(err)
	}
}

// configured is what the agent is reported: by druid's own renderer, but for where things are.
func (m *lone) configured(owner *v1alpha1.EtcdCluster) config.Config {
	server := bucket.Start(m.tb)
	proxy, ca := server.BeforeTLS(m.tb)
	m.bucket = proxy
	credentials := filepath.Join(m.dir, "credentials")
	m.must(os.Mkdir(credentials, 0o700))
	m.file("credentials/accessKeyID", []byte(bucket.AccessKey))
	m.file("credentials/secretAccessKey", []byte(bucket.SecretKey))
	raw, err := json.Marshal(store.Config{S3: &store.S3{
		Bucket: server.Make(m.tb, fmt.Sprintf("idle-%d", time.Now().UnixNano()), false), Region: bucket.Region, Endpoint: proxy.Endpoint,
		PathStyle: true, CredentialsDir: credentials, CABundle: m.file("s3.pem", ca),
	}})
	m.must(err)
	r := config.DefaultReloadable()
	r.Backup, err = manifests.Backup(owner)
	m.must(err)
	r.Backup.Store = raw
	content, err := r.YAML()
	m.must(err)

	repo, err := binaries.RepoDir()
	m.must(err)
	cache, err := binaries.CacheDir()
	m.must(err)
	set, err := binaries.Builder{Repo: repo, Cache: cache, Progress: func(string, ...any) {}}.Build(m.tb.Context())
	m.must(err)
	version, err := binaries.EtcdVersion(repo, minor)
	m.must(err)
	c := config.Default()
	c.Namespace, c.Cluster, c.ClusterUID, c.Member, c.PodUID = m.namespace, idleCluster, "cluster-uid", idleMember, "pod"
	c.PeerService, c.EtcdVersion, c.EtcdPath, c.ListenHost = "demo-peer", strings.TrimPrefix(version, "v"), set["etcd-"+minor], idleHost
	c.VolumePath, c.SocketPath, c.ConfigPath = filepath.Join(m.dir, "volume"), filepath.Join(m.dir, "s"), m.file("config.yaml", content)
	m.must(errors.Join(os.Mkdir(c.VolumePath, 0o700), os.Mkdir(filepath.Join(m.dir, "scratch"), 0o700)))
	return c
}

// awaitVerified waits until a full was taken, verified and reported.
func (m *lone) awaitVerified() {
	m.tb.Helper()
	var last error
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); await(m.tb, time.Second) {
		full, v, err := m.store.Full(m.tb.Context())
		if err == nil && v.VerifiedFull != "" && full.Object != "" {
			return
		}
		last = fmt.Errorf("the full is %+v, its proof %+v: %w", full, v, err)
	}
	m.tb.Fatal(last)
}

func (m *lone) read() reading {
	m.tb.Helper()
	cpu, err := cpuOf(m.agent)
	m.must(err)
	return reading{at: time.Now(), cpu: cpu, bucket: m.bucket.Operations(), cluster: m.cluster.all()}
}

func (m *lone) memory(name string) float64 {
	m.tb.Helper()
	n, err := statusOf(m.agent, name)
	m.must(err)
	return n
}

// run starts a program that ends with the measurement.
func (m *lone) run(path string, args ...string) (pid int) {
	m.tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(m.tb.Context()), path, args...)
	log, err := os.Create(path + ".log")
	m.must(err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.must(cmd.Start())
	m.tb.Cleanup(func() {
		// launch ends when its line does.
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		ended.Stop()
		if content, err := os.ReadFile(log.Name()); m.tb.Failed() && err == nil {
			m.tb.Logf("%s:\n%s", filepath.Base(path), content[max(0, len(content)-6000):])
		}
		_ = log.Close()
	})
	return cmd.Process.Pid
}

func (m *lone) built(pkg, name string) string {
	m.tb.Helper()
	repo, err := binaries.RepoDir()
	m.must(err)
	m.must(sources.Reads(m.tb.Context(), repo, pkg))
	path := filepath.Join(m.dir, name)
	m.must(binaries.GoBuild(m.tb.Context(), repo, pkg, "", path))
	return path
}

func (m *lone) file(name string, content []byte) string {
	m.tb.Helper()
	path := filepath.Join(m.dir, name)
	m.must(os.WriteFile(path, content, 0o600))
	return path
}

func (m *lone) must(err error) {
	m.tb.Helper()
	if err != nil {
		m.tb.Fatal(err)
	}
}

// counter stands before a kube-apiserver, speaks TLS and HTTP/2 as that does, and counts what it hands on.
type counter struct {
	url string
	ca  []byte

	mu   sync.Mutex
	seen map[string]int
}

// count hands on as someone.
func count(tb testing.TB, api *rest.Config, user string) *counter {
	tb.Helper()
	as := rest.CopyConfig(api)
	as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	transport, err := rest.TransportFor(as)
	target, err2 := url.Parse(api.Host)
	if err := errors.Join(err, err2); err != nil {
		tb.Fatal(err)
	}
	c := &counter{seen: map[string]int{}}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.seen[r.Method]++
		c.mu.Unlock()
		forward.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	c.url = server.URL
	c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return c
}

func (c *counter) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen)
}
