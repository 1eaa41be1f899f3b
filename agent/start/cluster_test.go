package start

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

func TestMain(m *testing.M) {
	env.ManyAtOnce(6)
	os.Exit(env.Main(m))
}

// maxWait is the timeout of a test for what takes seconds on an idle machine.
const maxWait = 4 * time.Minute

// cluster has the Leases of a real API server and real etcd processes on loopback, each with its own address. The test
// does the work of druid.
type cluster struct {
	t       *testing.T
	version string
	binary  string
	leases  coordinationclient.LeaseInterface
	store   *leases.Store
	ns      string
	net     string
	members map[string]*member
	// secure has the certificates of a cluster with TLS, nil for one without.
	secure *secured
	// named: the members connect to each other by name, and a name server of the test resolves the names.
	named bool
}

func newCluster(t *testing.T, version string, names ...string) *cluster {
	t.Helper()
	built, err := binaries.Programs(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	rest := env.APIServer(t)
	ns := env.Namespace(t, rest)
	client, err := coordinationclient.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		t: t, version: version, binary: built["etcd-"+version[:3]], leases: client.Leases(ns), ns: ns,
		net: machine.Network(t), members: map[string]*member{},
	}
	c.store = leases.NewStore(c.leases, "c")
	c.createRecord(leases.Record{
		Phase: leases.PhaseForming, Seed: names[0], Epoch: 1, MaxLearners: leases.MaxLearners, Members: slices.Sorted(slices.Values(names)),
	})
	for i, name := range names {
		c.addMember(name, i+1)
	}
	return c
}

func (c *cluster) createRecord(r leases.Record) {
	c.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leases.RecordName("c")}}
	if err := r.Encode(lease); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.leases.Create(c.t.Context(), lease, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) eventually(what string, cond func() error) {
	c.t.Helper()
	deadline := time.Now().Add(maxWait)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %v", what, err)
		}
		loop.Sleep(c.t.Context(), 100*time.Millisecond)
	}
}

// decides waits until the newest decision of the member is by rule.
func (c *cluster) decides(name string, last ...string) {
	c.t.Helper()
	c.eventually(fmt.Sprint(name, " decides by ", last), func() error {
		if rules := c.members[name].rules(); len(rules) == 0 || !slices.Contains(last, rules[len(rules)-1]) {
			return fmt.Errorf("it decided by %v", rules)
		}
		return nil
	})
}

// beginsNothing waits until the seed called name decides by rule with a reason that contains says. It checks that the
// seed formed no cluster and wrote no data.
func (c *cluster) beginsNothing(name, rule, says string) {
	c.t.Helper()
	c.decides(name, rule)
	seed := c.members[name]
	if reported := seed.last(); !strings.Contains(reported.Reason, says) {
		c.t.Errorf("it says %q, want %q in it", reported.Reason, says)
	}
	if record, _ := c.record(); record.Phase != leases.PhaseForming {
		c.t.Errorf("the record says %+v", record)
	}
	seed.halt()
	if _, err := os.Stat(volume.DataPath(seed.cfg.VolumePath)); err == nil {
		c.t.Error("there is data")
	}
}

func (c *cluster) client(name string) *clientv3.Client {
	c.t.Helper()
	client, err := c.dial().Etcd(c.t.Context(), c.endpoint(name))
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// view is the member list as name returns it.
func (c *cluster) view(name string) (membership.View, error) {
	return membership.Observe(c.t.Context(), transport.NewClients(c.dial()).Dial,
		membership.Query{Endpoints: []string{c.endpoint(name)}, Timeout: 5 * time.Second})
}

func (c *cluster) endpoint(name string) string {
	return c.dial().ClientURL(c.members[name].cfg.ListenHost, config.ClientPort)
}

// voters waits until each of names lists exactly names as voters, and returns their IDs.
func (c *cluster) voters(names ...string) map[string]uint64 {
	c.t.Helper()
	ids := map[string]uint64{}
	c.eventually(fmt.Sprintf("%v vote", names), func() error {
		var errs []error
		for _, name := range names {
			view, err := c.view(name)
			clear(ids)
			for _, m := range view.Voters() {
				ids[m.Name] = m.ID
			}
			if len(ids) != len(names) || len(view.Learners()) != 0 {
				err = errors.Join(err, fmt.Errorf("%s sees %+v", name, view.Members))
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return ids
}

func (c *cluster) record() (record leases.Record, version leases.Version) {
	c.t.Helper()
	c.eventually("read the record", func() (err error) {
		record, version, err = c.store.Record(c.t.Context())
		return err
	})
	return record, version
}
