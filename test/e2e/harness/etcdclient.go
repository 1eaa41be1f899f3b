package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/leases"
)

// memberDialer turns a member's name into the address of its Pod of the moment. It remembers the last address, so that
// clients can dial while the API server is away.
type memberDialer struct {
	cluster *Cluster

	mu   sync.Mutex
	last map[string]string
}

func newMemberDialer(c *Cluster) *memberDialer {
	return &memberDialer{cluster: c, last: map[string]string{}}
}

func (d *memberDialer) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	if net.ParseIP(host) == nil {
		if host, err = d.resolve(ctx, host); err != nil {
			return nil, err
		}
	}
	return d.cluster.Rig.Dial(ctx, "tcp", net.JoinHostPort(host, port))
}

func (d *memberDialer) resolve(ctx context.Context, member string) (string, error) {
	lookup, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	pod, err := d.cluster.Pod(lookup, member)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil && pod.Status.PodIP != "":
		d.last[member] = pod.Status.PodIP
	case d.last[member] == "":
		return "", errors.Join(fmt.Errorf("member %s has no address", member), err)
	}
	return d.last[member], nil
}

// Etcd makes a client of the named members, or of all members in the record.
func (c *Cluster) Etcd(t testing.TB, members ...string) *clientv3.Client {
	t.Helper()
	if len(members) == 0 {
		members = c.MemberNames(t)
	}
	endpoints := make([]string, len(members))
	for i, m := range members {
		endpoints[i] = Endpoint(m)
	}
	return c.EtcdAt(t, endpoints...)
}

// EtcdService makes a client that goes through the client Service, as applications do.
func (c *Cluster) EtcdService(t testing.TB) *clientv3.Client {
	t.Helper()
	var services corev1.ServiceList
	err := c.Rig.Client.List(t.Context(), &services, client.InNamespace(c.Namespace),
		client.MatchingLabels{leases.LabelCluster: c.Name})
	if err != nil {
		t.Fatalf("list the Services of %s: %v", c, err)
	}
	for _, s := range services.Items {
		if ip := s.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
			return c.EtcdAt(t, net.JoinHostPort(ip, strconv.Itoa(config.ClientPort)))
		}
	}
	t.Fatalf("%s has no Service with an IP; Services: %d", c, len(services.Items))
	return nil
}

// EtcdAt makes a client of addresses with ports, of a node for example.
func (c *Cluster) EtcdAt(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	etcd, err := c.dialEtcd(endpoints...)
	if err != nil {
		t.Fatalf("make an etcd client of %v: %v", endpoints, err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	return etcd
}

// EtcdAs makes a client of all members that logs in with a password.
func (c *Cluster) EtcdAs(t testing.TB, user, password string) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, member := range c.MemberNames(t) {
		endpoints = append(endpoints, Endpoint(member))
	}
	var etcd *clientv3.Client
	Eventually(t, maxWait, "user "+user+" logs in", func(ctx context.Context) error {
		settings, err := c.etcdSettings(endpoints)
		if err != nil {
			return err
		}
		settings.Username, settings.Password, settings.DialTimeout = user, password, loginWithin
		etcd, err = clientv3.New(settings)
		return err
	})
	t.Cleanup(func() { _ = etcd.Close() })
	return etcd
}

// loginWithin is the time for one attempt to log in. etcd computes the hash of a password for some 0.1 s.
const loginWithin = 5 * time.Second

// dialEtcd makes a client that its user closes.
func (c *Cluster) dialEtcd(endpoints ...string) (*clientv3.Client, error) {
	settings, err := c.etcdSettings(endpoints)
	if err != nil {
		return nil, err
	}
	return clientv3.New(settings)
}

func (c *Cluster) etcdSettings(endpoints []string) (clientv3.Config, error) {
	// gRPC's default back-off of up to two minutes would be measured instead of etcd.
	quick := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: 2 * time.Second,
	}
	settings, err := c.tlsSettings()
	return clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), TLS: settings,
		// etcd refuses clients that ping more often than every 5 s.
		DialKeepAliveTime: 6 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(c.dialer.dial), grpc.WithConnectParams(quick)},
	}, err
}

// Endpoint is a member's endpoint as Etcd names it, for calls that go to one member, like Status. Without a scheme, it depends on the
// client whether it uses TLS.
func Endpoint(member string) string {
	return net.JoinHostPort(member, strconv.Itoa(config.ClientPort))
}
