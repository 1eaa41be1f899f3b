package duties

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/member"
)

// authCluster is one real etcd with TLS of clients, and the Leases of its cluster.
type authCluster struct {
	*cluster
	etcd      *member.Member
	authority pki.Authority
	pool      *x509.CertPool
	agents    transport.Transport
	self      Cluster

	mu     sync.Mutex
	policy AuthPolicy
	log    bytes.Buffer
	// read is etcd's state of authentication as the duties last read it, nil before.
	read atomic.Pointer[membership.AuthSwitch]
}

func newAuthCluster(t *testing.T, minor string) *authCluster {
	t.Helper()
	pair, err := pki.NewAuthority("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := &authCluster{cluster: &cluster{t: t}}
	if c.authority, err = pki.ParseAuthority(pair, time.Now()); err != nil {
		t.Fatal(err)
	}
	c.pool = x509.NewCertPool()
	c.pool.AddCert(c.authority.Certificate)
	server := c.issue(pki.Request{CommonName: "etcd", Server: true, Client: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	dir := t.TempDir()
	for name, content := range map[string][]byte{"ca": pair.Certificate, "crt": server.Certificate, "key": server.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.agents = transport.Transport{Client: c.login("druid-agent")}
	file := func(name string) string { return filepath.Join(dir, name) }
	c.etcd = member.Start(t, minor, member.Options{TLS: c.agents.Client, Args: []string{
		"--cert-file=" + file("crt"), "--key-file=" + file("key"), "--client-cert-auth=true", "--trusted-ca-file=" + file("ca"),
	}})
	status, err := c.etcd.Client.Status(t.Context(), c.etcd.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	c.self = Cluster{ClusterID: status.Header.ClusterId, MemberID: status.Header.MemberId, Member: member.Name, PodUID: "mine"}
	config := env.APIServer(t)
	c.admin, c.namespace = kubernetes.NewForConfigOrDie(config), env.Namespace(t, config)
	c.createLeases()
	c.policy = AuthPolicy{Mode: AuthUnmanaged, Certificates: true}
	c.policy.Want = wanted()
	return c
}

// createLeases creates the record, and the Lease of the member without what it reports of its certificates.
func (c *authCluster) createLeases() {
	c.t.Helper()
	record := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leases.RecordName("demo")}}
	if err := (leases.Record{Phase: leases.PhaseFormed, ClusterID: c.self.ClusterID, Epoch: 1, FormedEpoch: 1, Members: []string{member.Name}}).Encode(
		record); err != nil {
		c.t.Fatal(err)
	}
	own := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: member.Name, Annotations: map[string]string{leases.AnnotationPodUID: "mine"}}}
	api := c.admin.CoordinationV1().Leases(c.namespace)
	for _, lease := range []*coordinationv1.Lease{record, own} {
		if _, err := api.Create(c.t.Context(), lease, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.store = leases.NewStore(api, "demo")
}

func (c *authCluster) issue(r pki.Request) pki.Pair {
	c.t.Helper()
	r.Lifetime = time.Hour
	pair, err := c.authority.Issue(r, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	return pair
}

// login returns the settings of a client with a certificate of this common name.
func (c *authCluster) login(commonName string) *tls.Config {
	c.t.Helper()
	pair := c.issue(pki.Request{CommonName: commonName, Client: true})
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.pool, Certificates: []tls.Certificate{certificate}}
}

// as returns a client with a certificate, and if password is not empty as this user.
func (c *authCluster) as(commonName, user, password string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{c.etcd.Endpoint}, TLS: c.login(commonName), Username: user, Password: password, DialTimeout: 10 * time.Second,
	})
	if err == nil {
		c.t.Cleanup(func() { _ = client.Close() })
	}
	return client, err
}

func (c *authCluster) mustBe(commonName, user, password string) *clientv3.Client {
	c.t.Helper()
	client, err := c.as(commonName, user, password)
	if err != nil {
		c.t.Fatalf("connect as %s: %v", user, err)
	}
	return client
}

func wanted() membership.AuthWanted {
	admin := membership.WantedUser{Roles: []string{"root"}, MoreRoles: true}
	return membership.AuthWanted{
		Users: map[string]membership.WantedUser{"root": admin, "druid-agent": admin},
		Roles: map[string]membership.AuthPermissions{"root": nil},
	}
}

// require changes the configuration of the agents.
func (c *authCluster) require(change func(*AuthPolicy)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.policy)
	c.policy.Generation++
	c.policy.Config = fmt.Sprintf("config-%d", c.policy.Generation)
}

func (c *authCluster) current() AuthPolicy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy
}

// lead runs the duties of a leader's agent until stop is called.
func (c *authCluster) lead(hold time.Duration) (stop func()) {
	c.t.Helper()
	d := New(Options{
		Store: c.store, Dial: transport.NewClients(c.agents).Dial, Local: c.etcd.Endpoint, Log: slog.New(slog.NewJSONHandler(&c.log, nil)),
		Decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"table", "rule"}),
		Self:      func() (Cluster, bool) { return c.self, true },
		PeerURL:   func(string) string { return c.etcd.PeerURL },
		Grace:     func() time.Duration { return time.Hour },
		Auth:      c.current, AuthRead: func(_ uint64, now membership.AuthSwitch) { c.read.Store(&now) },
	})
	d.poll, d.authEvery, d.authHold = 50*time.Millisecond, 100*time.Millisecond, hold
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
}

func (c *authCluster) report() leases.AuthReport {
	c.t.Helper()
	record, _, err := c.store.Record(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return record.Auth
}

// reports waits until the leader's agent reports a state for the present configuration.
func (c *authCluster) reports(state leases.AuthState, enabled bool, message string) leases.AuthReport {
	c.t.Helper()
	c.eventually(fmt.Sprintf("the leader's agent reports %s", state), func() error {
		r := c.report()
		if r.State != state || r.Enabled != enabled || r.Config != c.current().Config || !strings.Contains(r.Message, message) {
			return fmt.Errorf("it reports %+v", r)
		}
		return nil
	})
	return c.report()
}

func (c *authCluster) status() membership.AuthSwitch {
	c.t.Helper()
	s, err := membership.ReadAuthSwitch(c.t.Context(), c.etcd.Client)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// certify makes the Lease show that the agent has its certificate.
func (c *authCluster) certify() {
	c.t.Helper()
	patch := leases.MemberPatch{Member: leases.Member{TLS: leases.TLS{}.With("client", leases.TLSPlane{Issuer: "x", NotAfter: time.Now().Add(time.Hour)})}}
	if _, err := c.store.PatchMember(c.t.Context(), member.Name, patch); err != nil {
		c.t.Fatal(err)
	}
}

func (c *authCluster) may(who string, client *clientv3.Client) {
	c.t.Helper()
	if _, err := client.Put(c.t.Context(), "/app/x", "1"); err != nil {
		c.t.Errorf("%s cannot write its key: %v", who, err)
	}
}

func (c *authCluster) mayNot(client *clientv3.Client) {
	c.t.Helper()
	if _, err := client.Put(c.t.Context(), "/app/x", "1"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		c.t.Errorf("an unknown user writes: %v", err)
	}
}

// asWanted compares what etcd has with the configuration, and the password.
func (c *authCluster) asWanted(password membership.Password) error {
	want := c.current().Want
	root := c.mustBe("druid-agent", "", "")
	have, err := membership.ReadAuth(c.t.Context(), root, want, membership.AuthSwitch{Enabled: true})
	if err != nil {
		return err
	}
	for name, user := range want.Users {
		if user.Login == membership.LoginAny || have.Users[name].Roles == nil {
			continue
		}
		if name == "app" {
			user.Password = password
		}
		had := have.Users[name]
		if had.Password, err = membership.ComparePassword(c.t.Context(), root, name, user); err != nil {
			return err
		}
		have.Users[name] = had
	}
	if steps, missing := membership.PlanAuth(want, have); len(steps) > 0 || len(missing) > 0 {
		return fmt.Errorf("left to do: %v %v", steps, missing)
	}
	return nil
}

// looksAgain waits until the leader's agent has looked: it counts a user that was added meanwhile.
func (c *authCluster) looksAgain() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer cancel()
	<-ctx.Done() // 20 looks
}

// leaves waits until the duties report that they read this state of authentication and changed nothing of it.
func (c *authCluster) leaves(want membership.AuthSwitch) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("the duties leave %+v as it is", want), func() error {
		if got := c.read.Load(); got == nil || *got != want {
			return fmt.Errorf("they left %+v", got)
		}
		return nil
	})
}
