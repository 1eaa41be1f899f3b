package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/env"
)

// drainCluster is a cluster in which every member has a Lease, with agents that can die at each step of a drain.
type drainCluster struct {
	*cluster
	config *rest.Config
	seen   *prometheus.CounterVec
	// defrag and defragmented are passed to the agents. nil disables defragmentation.
	defrag       func(time.Time) DefragPolicy
	defragmented func(Defragmented)
	alarmed      func(membership.NospaceDecision)
	// fsync returns what the agent of a member measures of its disk. nil measures nothing.
	fsync func(member string) leases.Fsync
	// newest are the duties of the agent that was started last.
	newest *Duties
}

func podUID(name string) string { return "pod-" + name }

// newDrainCluster creates a record that lists the three members and more.
func newDrainCluster(t *testing.T, more ...string) *drainCluster {
	t.Helper()
	return newDrainClusterOf(t, names, more...)
}

func newDrainClusterOf(t *testing.T, names []string, more ...string) *drainCluster {
	t.Helper()
	return newDrainClusterOn(newClusterOf(t, names), names, more...)
}

// newDrainClusterOn creates the Leases of a cluster.
func newDrainClusterOn(c *cluster, names []string, more ...string) *drainCluster {
	t := c.t
	t.Helper()
	d := &drainCluster{cluster: c, config: env.APIServer(t)}
	d.admin, d.namespace = kubernetes.NewForConfigOrDie(d.config), env.Namespace(t, d.config)
	d.seen = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seen_total", Help: "Decisions."}, []string{"table", "rule"})
	api := d.admin.CoordinationV1().Leases(d.namespace)
	d.store = leases.NewStore(api, "demo")
	all := append(append([]string{}, names...), more...)
	record := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leases.RecordName("demo")}}
	if err := (leases.Record{Phase: leases.PhaseFormed, ClusterID: d.id(), Epoch: 1, FormedEpoch: 1, Members: all}).Encode(record); err != nil {
		t.Fatal(err)
	}
	objects := []*coordinationv1.Lease{record}
	for _, name := range all {
		objects = append(objects, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{leases.AnnotationPodUID: podUID(name)},
		}})
	}
	for _, lease := range objects {
		if _, err := api.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *drainCluster) id() uint64 { return uint64(d.members[d.mustLead()].Server.Cluster().ID()) }

func (d *drainCluster) peerURL(name string) string {
	if config, ok := d.configs[name]; ok {
		return config.AdvertisePeerUrls[0].String()
	}
	return "http://" + name + ".demo-peer:2380"
}

// edit changes the record as druid does.
func (d *drainCluster) edit(change func(*leases.Record)) {
	d.t.Helper()
	d.eventually("the record is changed", func() error {
		record, version, err := d.store.Record(d.t.Context())
		if err != nil {
			return err
		}
		change(&record)
		_, err = d.store.UpdateRecord(d.t.Context(), version, record)
		return err
	})
}

// mark writes a removal request on a member's Lease, as druid does.
func (d *drainCluster) mark(name string, mark leases.RemovalRequest) {
	d.t.Helper()
	d.eventually("the Lease is marked", func() error {
		lease, err := d.store.Marks(d.t.Context(), name)
		if err == nil {
			_, err = d.store.RequestRemoval(d.t.Context(), name, lease.LeaseVersion, mark)
		}
		return err
	})
}

// ask requests the removal of a member, as druid does: the slot first, then the removal request.
func (d *drainCluster) ask(name, mark string) {
	d.t.Helper()
	d.edit(func(r *leases.Record) { r.PendingRemoval = &leases.PendingRemoval{Member: name, Mark: mark} })
	d.mark(name, leases.RemovalRequest{State: leases.RemovalRequested, Mark: mark, At: "2026-11-21T10:00:00Z"})
}

// takeBack cancels a removal, as druid does: the removal request first, then the slot.
func (d *drainCluster) takeBack(name string) {
	d.t.Helper()
	d.mark(name, leases.RemovalRequest{})
	d.edit(func(r *leases.Record) { r.PendingRemoval = nil })
}

// forget does what druid does after the removal is acknowledged.
func (d *drainCluster) forget(name string) {
	d.t.Helper()
	d.edit(func(r *leases.Record) {
		r.PendingRemoval = nil
		var left []string
		for _, m := range r.Members {
			if m != name {
				left = append(left, m)
			}
		}
		r.Members = left
	})
}

func (d *drainCluster) removalRequest(name string) leases.RemovalRequest {
	d.t.Helper()
	lease, err := d.store.Marks(d.t.Context(), name)
	if err != nil {
		d.t.Fatal(err)
	}
	return lease.Removal
}

// done waits for the acknowledgement of mark and checks it against the member list.
func (d *drainCluster) done(name, mark string, memberID uint64) leases.RemovalRequest {
	d.t.Helper()
	d.eventually(name+" is acknowledged", func() error {
		if r := d.removalRequest(name); r.State != leases.RemovalDone {
			return fmt.Errorf("its mark is %+v", r)
		}
		return nil
	})
	r, want := d.removalRequest(name), ""
	if memberID != 0 {
		want = leases.FormatID(memberID)
	}
	if r.Mark != mark || r.MemberID != want || r.ClusterID != leases.FormatID(d.id()) || r.At == "" || r.RaftTerm == 0 || r.RaftIndex == 0 {
		d.t.Errorf("acknowledged as %+v, want mark %s, member %s, cluster %x, and a position", r, mark, want, d.id())
	}
	for _, id := range d.listed(d.mustLead()) {
		if id == memberID {
			d.t.Errorf("%s is acknowledged and still listed", name)
		}
	}
	return r
}

// decidedDrain waits until a row of the drain has decided more often than before.
func (d *drainCluster) decidedDrain(rule string, before float64) {
	d.t.Helper()
	d.eventually("rule "+rule+" decides", func() error {
		if testutil.ToFloat64(d.seen.WithLabelValues(drainTable, rule)) <= before {
			return errors.New("not yet")
		}
		return nil
	})
}

// gate follows the raft leadership of a member.
func (d *drainCluster) gate(name string) Gate {
	server := d.members[name].Server
	return func(ctx context.Context, leading bool) error {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for (server.Leader() == server.MemberID()) != leading {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-ticker.C:
			}
		}
		return nil
	}
}

// agent runs the duties for a member whenever that member leads. died is closed when it has ended.
func (d *drainCluster) agent(name, uid string, f *fault) (died <-chan struct{}) {
	d.t.Helper()
	died, _ = d.agentBehind(d.gate(name), name, uid, f)
	return died
}

// agentUntil is an agent that ends when the returned func is called.
func (d *drainCluster) agentUntil(name, uid string) (end func()) {
	d.t.Helper()
	_, end = d.agentBehind(d.gate(name), name, uid, nil)
	return end
}

// ungated runs the duties for a member whether or not that member leads.
func (d *drainCluster) ungated(name string) {
	d.t.Helper()
	always := func(ctx context.Context, leading bool) error {
		if !leading {
			<-ctx.Done()
		}
		return context.Cause(ctx)
	}
	d.agentBehind(always, name, podUID(name), nil)
}

func (d *drainCluster) agentBehind(gate Gate, name, uid string, f *fault) (died <-chan struct{}, end func()) {
	d.t.Helper()
	server := d.members[name].Server
	self := Cluster{ClusterID: uint64(server.Cluster().ID()), MemberID: uint64(server.MemberID()), Member: name, PodUID: uid}
	duties := New(Options{
		Store: d.storeWith(f), Dial: dialWith(f), Local: d.endpoint(name), Decisions: d.seen,
		Self:    func() (Cluster, bool) { return self, true },
		PeerURL: d.peerURL,
		Grace:   func() time.Duration { return grace },
		Defrag:  d.defrag, Defragmented: d.defragmented, Alarmed: d.alarmed,
		Log: slog.New(slog.DiscardHandler),
	})
	if d.fsync != nil {
		duties.Fsync = func() leases.Fsync { return d.fsync(name) }
	}
	duties.slowFor, duties.followersAge = time.Second, 300*time.Millisecond
	duties.poll, duties.revert, duties.nospaceAgain = 100*time.Millisecond, 2*time.Second, time.Second
	d.newest = duties
	ctx, cancel := context.WithCancel(d.t.Context())
	if f != nil {
		f.crash = cancel
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		campaign := func(ctx context.Context, lead func(context.Context)) error { lead(ctx); return nil }
		err := WhileLeader(ctx, gate, campaign, func(ctx context.Context) {
			if err := duties.Run(ctx); err != nil {
				d.t.Errorf("duties of %s: %v", name, err)
			}
		})
		if err != nil {
			d.t.Errorf("agent of %s: %v", name, err)
		}
	}()
	end = func() { cancel(); <-ended }
	d.t.Cleanup(end)
	return ended, end
}

// agents runs an agent for every member.
func (d *drainCluster) agents() {
	d.t.Helper()
	for name := range d.members {
		d.agent(name, podUID(name), nil)
	}
}

// leaderOf returns the leader among the members that stay, as they see it.
func (d *drainCluster) leaderOf(stay []string) (string, error) {
	for _, name := range stay {
		if server := d.members[name].Server; server.Leader() == server.MemberID() {
			return name, nil
		}
	}
	return "", errors.New("no leader")
}

// moveTo moves leadership from the member that leader returns until the member called name leads. etcd's call does not
// end when raft abandons the transfer.
func (d *drainCluster) moveTo(name string, leader func() (string, error)) {
	d.t.Helper()
	d.eventually(name+" leads", func() error {
		now, err := leader()
		if err != nil || now == name {
			return err
		}
		ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Second)
		defer cancel()
		return errors.Join(membership.MoveLeader(ctx, d.client(now), d.memberID(name)), fmt.Errorf("%s leads", now))
	})
}

// followers returns the members that do not lead.
func (d *drainCluster) followers() []string {
	d.t.Helper()
	leader := d.mustLead()
	var others []string
	for _, name := range names {
		if name != leader {
			others = append(others, name)
		}
	}
	return others
}

func (d *drainCluster) memberID(name string) uint64 { return uint64(d.members[name].Server.MemberID()) }
