package backups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/embedded"
	"github.com/etcd-druid/druid/test/env"
)

const maxWait = embedded.MaxWait

const (
	prefix  = "default/demo"
	lineage = catalog.Lineage("00000001-a1b2")
)

func TestMain(m *testing.M) {
	env.ManyAtOnce(8)
	os.Exit(env.Main(m))
}

// group is a cluster of real etcd members in this process.
type group struct {
	t       *testing.T
	members []*embed.Etcd
}

func newGroup(t *testing.T, size int) *group {
	t.Helper()
	g := &group{t: t}
	var configs []*embed.Config
	for i := range size {
		e := embedded.Config(t, fmt.Sprintf("demo-%d", i), t.TempDir())
		e.UnsafeNoFsync = true
		if size > 1 {
			// A leader that does not get the CPU for a second stays leader: the tests move leadership themselves.
			e.ElectionMs = 5000
		}
		configs = append(configs, e)
	}
	embedded.Form(configs...)
	for _, e := range configs {
		etcd := embedded.Start(t, e)
		t.Cleanup(etcd.Close)
		g.members = append(g.members, etcd)
	}
	g.leader()
	return g
}

func (g *group) leads(i int) bool {
	s := g.members[i].Server
	return s.Leader() != 0 && s.Leader() == s.MemberID()
}

// leader waits for a leader that all members follow.
func (g *group) leader() (at int) {
	g.t.Helper()
	eventually(g.t, "all follow one leader", func() error {
		for i, m := range g.members {
			if m.Server.Leader() == 0 || m.Server.Leader() != g.members[0].Server.Leader() {
				return errors.New("not all do")
			}
			if g.leads(i) {
				at = i
			}
		}
		return nil
	})
	return at
}

// move moves leadership to the next member and waits until all members follow it.
func (g *group) move() {
	g.t.Helper()
	from := g.leader()
	to := (from + 1) % len(g.members)
	eventually(g.t, "the next member leads", func() error {
		now := g.leader()
		if now == to {
			return nil
		}
		ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second) // etcd's call does not end when raft gives the transfer up
		defer cancel()
		server := g.members[now].Server
		return errors.Join(errWaiting, server.MoveLeader(ctx, server.Lead(), uint64(g.members[to].Server.MemberID())))
	})
}

func (g *group) endpoint(i int) string { return g.members[i].Config().ListenClientUrls[0].String() }

func (g *group) client(i int) *clientv3.Client {
	g.t.Helper()
	client, err := transport.Transport{}.Etcd(g.t.Context(), g.endpoint(i))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (g *group) self(i int) Identity {
	s := g.members[i].Server
	return Identity{Lineage: lineage, ClusterID: uint64(s.Cluster().ID()), MemberID: uint64(s.MemberID()), ClusterUID: "uid"}
}

// put puts n keys and returns the revision of the last one.
func put(t *testing.T, c *clientv3.Client, n int) (revision int64) {
	t.Helper()
	for range n {
		response, err := c.Put(t.Context(), fmt.Sprintf("key-%d", counter.Add(1)%50), strings.Repeat("v", 100))
		if err != nil {
			t.Fatal(err)
		}
		revision = response.Header.Revision
	}
	return revision
}

var counter atomic.Int64

// neighbour is a Duty for one member.
type neighbour struct {
	*Duty
	t         *testing.T
	decisions *prometheus.CounterVec
}

// newAgent returns the agent of member i. api is nil for a Kubernetes API that does not respond.
func (g *group) newAgent(i int, api *rest.Config, namespace string) *neighbour {
	g.t.Helper()
	if api == nil {
		api = &rest.Config{Host: "http://127.0.0.1:1"}
	}
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"table", "rule"})
	metrics, err := NewMetrics(prometheus.NewRegistry(), decisions)
	if err != nil {
		g.t.Fatal(err)
	}
	d := New(Options{
		Leases: leases.NewStore(kubernetes.NewForConfigOrDie(api).CoordinationV1().Leases(namespace), "demo"),
		Dial:   transport.NewClients(transport.Transport{}).Dial, Listen: transport.Transport{}.Listener, Local: g.endpoint(i), Open: open.Open, Metrics: metrics,
		Self: func() (Identity, bool) { return g.self(i), true },
		Log:  slog.New(slog.NewTextHandler(testWriter{g.t}, nil)).With("member", i),
	})
	d.fullPace, d.recorderPace, d.readPace = pace{100 * time.Millisecond, time.Second}, pace{100 * time.Millisecond, time.Second},
		pace{100 * time.Millisecond, time.Second}
	d.beats = func(config.Backup) beats { return beats{time.Second, time.Second} }
	return &neighbour{Duty: d, t: g.t, decisions: decisions}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// start runs the duty. stop ends it and waits.
func (a *neighbour) start() (stop func()) {
	return background(a.t, a.Run)
}

func background(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running errgroup.Group
	running.Go(func() error { return run(ctx) })
	stop = func() {
		cancel()
		if err := running.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func (a *neighbour) fired(rule string) float64 {
	return testutil.ToFloat64(a.decisions.WithLabelValues(backupTable, rule))
}

func (a *neighbour) failures(kind string) float64 {
	return testutil.ToFloat64(a.Metrics.failures.WithLabelValues(kind))
}

func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	embedded.Eventually(t, what, condition)
}
