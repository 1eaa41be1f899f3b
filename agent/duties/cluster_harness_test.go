package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/embedded"
	"github.com/etcd-druid/druid/test/env"
)

const maxWait = embedded.MaxWait

func TestMain(m *testing.M) {
	env.ManyAtOnce(4) // most tests run a cluster of three etcds in this process, and are late if their elections are
	os.Exit(env.Main(m))
}

// cluster has three real etcd members in this process, and the Leases of their cluster on a real kube-apiserver.
type cluster struct {
	t         *testing.T
	configs   map[string]*embed.Config
	members   map[string]*embed.Etcd
	admin     *kubernetes.Clientset
	namespace string
	store     *leases.Store
	decisions *prometheus.CounterVec
	// compare has the duties compare the data of all voters at short intervals.
	compare bool
	// differed are the IDs of members whose data was found to differ, as the duties reported them last.
	differed atomic.Pointer[[]uint64]
}

var names = []string{"demo-a", "demo-b", "demo-c"}

// newCluster forms a cluster for a test that runs in parallel with others.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterOf(t, names)
}

func newClusterOf(t *testing.T, names []string) *cluster {
	t.Helper()
	return newClusterWith(t, names, func(*embed.Config) {})
}

func newClusterWith(t *testing.T, names []string, configure func(*embed.Config)) *cluster {
	t.Helper()
	t.Parallel()
	c := &cluster{t: t, configs: map[string]*embed.Config{}, members: map[string]*embed.Etcd{}}
	var configs []*embed.Config
	for _, name := range names {
		e := embedded.Config(t, name, t.TempDir())
		// A leader that does not get the CPU for a second stays leader: no test here is about elections.
		e.ElectionMs = 5000
		configure(e)
		c.configs[name] = e
		configs = append(configs, e)
	}
	embedded.Form(configs...)
	for _, name := range names {
		c.start(name)
	}
	t.Cleanup(func() {
		for _, e := range c.members {
			e.Close()
		}
	})
	c.eventually("the members form", func() error { _, err := c.leader(); return err })
	return c
}

func (c *cluster) start(name string) {
	c.t.Helper()
	c.members[name] = embedded.Start(c.t, c.configs[name])
}

func (c *cluster) stop(name string) {
	c.members[name].Close()
	delete(c.members, name)
}

// leader returns the name of the member that leads and that all running members follow.
func (c *cluster) leader() (string, error) {
	var leader string
	for name, e := range c.members {
		if e.Server.Leader() == e.Server.MemberID() && e.Server.MemberID() != 0 {
			leader = name
		}
	}
	if leader == "" {
		return "", errors.New("no leader")
	}
	for name, e := range c.members {
		if e.Server.Leader() != c.members[leader].Server.MemberID() {
			return "", fmt.Errorf("%s follows another", name)
		}
	}
	return leader, nil
}

func (c *cluster) endpoint(name string) string { return c.configs[name].ListenClientUrls[0].String() }

func (c *cluster) client(name string) *clientv3.Client {
	c.t.Helper()
	client, err := transport.Transport{}.Etcd(c.t.Context(), c.endpoint(name))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *cluster) eventually(what string, condition func() error) {
	c.t.Helper()
	embedded.Eventually(c.t, what, condition)
}

// leases creates the record, which lists members, and the leader's own Lease.
func (c *cluster) leases(leader string, members []string) {
	c.t.Helper()
	c.leasesOf(uint64(c.members[leader].Server.Cluster().ID()), leader, members)
}

func (c *cluster) leasesOf(clusterID uint64, leader string, members []string) {
	c.t.Helper()
	config := env.APIServer(c.t)
	c.admin, c.namespace = kubernetes.NewForConfigOrDie(config), env.Namespace(c.t, config)
	record := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leases.RecordName("demo")}}
	if err := (leases.Record{Phase: leases.PhaseFormed, ClusterID: clusterID, Epoch: 1, FormedEpoch: 1, Members: members}).Encode(record); err != nil {
		c.t.Fatal(err)
	}
	own := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leader, Annotations: map[string]string{leases.AnnotationPodUID: "mine"}}}
	api := c.admin.CoordinationV1().Leases(c.namespace)
	for _, lease := range []*coordinationv1.Lease{record, own} {
		if _, err := api.Create(c.t.Context(), lease, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.store = leases.NewStore(api, "demo")
}

// grace is long enough to see that nothing happens before it.
const grace = time.Second

// duties runs the leader's duties until the test ends.
func (c *cluster) duties(leader, podUID string) {
	c.t.Helper()
	c.decisions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"table", "rule"})
	server := c.members[leader].Server
	self := Cluster{ClusterID: uint64(server.Cluster().ID()), MemberID: uint64(server.MemberID()), Member: leader, PodUID: podUID}
	d := New(Options{
		Store: c.store, Dial: transport.NewClients(transport.Transport{}).Dial, Local: c.endpoint(leader), Decisions: c.decisions,
		Self:    func() (Cluster, bool) { return self, true },
		PeerURL: func(name string) string { return "http://" + name + ".demo-peer:2380" },
		Grace:   func() time.Duration { return grace },
		Log:     slog.New(slog.DiscardHandler),

		Differed: func(ids []uint64) { c.differed.Store(&ids) },
	})
	d.poll = 100 * time.Millisecond
	if c.compare {
		d.Compare, d.comparePause = func() time.Duration { return time.Second }, 200*time.Millisecond
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("duties: %v", err)
		}
	})
}

func (c *cluster) listed(leader string) (ids []uint64) {
	c.t.Helper()
	resp, err := c.client(leader).MemberList(c.t.Context(), clientv3.WithSerializable())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range resp.Members {
		ids = append(ids, m.ID)
	}
	return ids
}

// decided waits until a removal rule has decided at least once.
func (c *cluster) decided(rule string) {
	c.t.Helper()
	c.eventually("rule "+rule+" decides", func() error {
		if testutil.ToFloat64(c.decisions.WithLabelValues(removalTable, rule)) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

func (c *cluster) mustLead() string {
	c.t.Helper()
	var leader string
	c.eventually("one leads", func() (err error) {
		leader, err = c.leader()
		return err
	})
	return leader
}

// eventually polls for tests without a cluster in this process.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	embedded.Eventually(t, what, condition)
}
