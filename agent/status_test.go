package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/exports"
	"github.com/etcd-druid/druid/test/machine"
)

// TestStatusAlarmBeforeDecision: the leader's agent reports of an alarm before it decided.
// The agent of a new leader handles an alarm within a minute. Until then, its Lease says that the alarm is raised.
// Otherwise, druid would report that it is over.
func TestStatusAlarmBeforeDecision(t *testing.T) {
	raised := []string{"memberID:1 alarm:" + membership.AlarmNoSpace + " "}
	for name, tc := range map[string]struct {
		role     membership.Role
		errors   []string
		reported string
		want     string
	}{
		"none stands":            {membership.RoleLeader, nil, "", ""},
		"one stands":             {membership.RoleLeader, raised, "", undecided},
		"it is decided on":       {membership.RoleLeader, raised, "disarm", "disarm"},
		"it is another's":        {membership.RoleMember, raised, "", ""},
		"it is no alarm":         {membership.RoleLeader, []string{"etcdserver: no leader"}, "", ""},
		"what was decided lasts": {membership.RoleLeader, nil, "disarm", "disarm"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts("1", leases.Snapshots{})
			f.observe(State{Reachable: true, Healthy: true, Status: membership.Status{MemberID: 1, ClusterID: 2, Role: tc.role, Errors: tc.errors}})
			f.alarmed(tc.reported)
			if got := f.fact(datadir.IdentityFile{Formed: true, MemberID: 1, ClusterID: 2}, true).Member.Alarm; got != tc.want {
				t.Errorf("the Lease says %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStatusReportsSnapshotCount: the agent reports when its etcd takes snapshots.
// Before the first etcd of this Pod starts, the Lease has the setting of this Pod, because that of an earlier Pod no
// longer applies.
func TestStatusReportsSnapshotCount(t *testing.T) {
	own := leases.Snapshots{Entries: 200_000, PodUID: "this"}
	f := newFacts("1", own)
	if got := f.fact(datadir.IdentityFile{}, false).Member.Snapshots; got != own {
		t.Errorf("before etcd runs: %+v, want %+v", got, own)
	}
	f.observe(State{Reachable: true, Healthy: true, Status: membership.Status{MemberID: 1, ClusterID: 2, Role: membership.RoleMember}})
	if got := f.fact(datadir.IdentityFile{Formed: true, MemberID: 1, ClusterID: 2}, true).Member.Snapshots; got != own {
		t.Errorf("while etcd runs: %+v, want %+v", got, own)
	}
}

// TestMetricsFollowConventions: metrics keep the conventions and are listed.
func TestMetricsFollowConventions(t *testing.T) {
	registry := exports.NewRegistry()
	if _, err := newMetrics(registry, "v1"); err != nil {
		t.Fatal(err)
	}
	registry.Hold(t, "../docs/reference/metrics.md", "agent")
}

// TestStatusAlarmsUntilDisarmed: alarms are reported until etcd takes them back.
// An etcd that does not respond reports nothing new, so its last report stays valid.
func TestStatusAlarmsUntilDisarmed(t *testing.T) {
	m, err := newMetrics(exports.NewRegistry(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	noSpace := membership.Status{Role: membership.RoleLearner, Errors: []string{"memberID:7 alarm:NOSPACE "}}
	for i, step := range []struct {
		state                     State
		noSpace, corrupt, learner float64
	}{
		{State{Reachable: true, Status: noSpace}, 1, 0, 1},
		{State{}, 1, 0, 1},
		{State{Reachable: true}, 0, 0, 0},
	} {
		m.observe(step.state)
		for name, c := range map[string]struct{ got, want float64 }{
			"NOSPACE": {testutil.ToFloat64(m.alarms.WithLabelValues("NOSPACE")), step.noSpace},
			"CORRUPT": {testutil.ToFloat64(m.alarms.WithLabelValues("CORRUPT")), step.corrupt},
			"learner": {testutil.ToFloat64(m.learner), step.learner},
		} {
			if c.got != c.want {
				t.Errorf("step %d: %s is %v, want %v", i, name, c.got, c.want)
			}
		}
	}
}

// TestConfigReportsDefragmentation: the configuration reports when to defragment.
func TestConfigReportsDefragmentation(t *testing.T) {
	const yes, no, unknown = rules.Yes, rules.No, rules.Unknown
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		change func(*config.Defragmentation)
		want   duties.DefragPolicy
	}{
		"nothing":                {func(*config.Defragmentation) {}, duties.DefragPolicy{Enabled: no, Window: yes, Scheduled: no}},
		"on":                     {func(d *config.Defragmentation) { d.Enabled = true }, duties.DefragPolicy{Enabled: yes, Window: yes, Scheduled: no}},
		"at noon":                {func(d *config.Defragmentation) { d.Schedule = "0 12 * * *" }, duties.DefragPolicy{Enabled: no, Window: yes, Scheduled: yes}},
		"at night":               {func(d *config.Defragmentation) { d.Schedule = "0 3 * * *" }, duties.DefragPolicy{Enabled: no, Window: no, Scheduled: yes}},
		"an unreadable schedule": {func(d *config.Defragmentation) { d.Schedule = "often" }, duties.DefragPolicy{Enabled: no, Window: unknown, Scheduled: yes}},
	} {
		t.Run(name, func(t *testing.T) {
			d := config.DefaultDefragmentation()
			tc.change(&d)
			tc.want.Interval = time.Minute
			tc.want.Nospace = duties.NospacePolicy{
				Enabled: tc.want.Enabled, Compact: yes, Window: 5 * time.Minute, Saved: true, Quota: 7,
			}
			tc.want.Thresholds = membership.Thresholds{FreePercent: 45, FreeBytes: 100 << 20}
			if diff := cmp.Diff(defragPolicy(d, true, 7, at), tc.want); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
		})
	}
}

// TestConfigReportsNoSpaceAction: the configuration reports what to do without space.
func TestConfigReportsNoSpaceAction(t *testing.T) {
	const yes, no = rules.Yes, rules.No
	for word, want := range map[config.OutOfSpace]duties.NospacePolicy{
		config.OutOfSpaceCompact:    {Enabled: yes, Compact: yes, Window: 5 * time.Minute},
		config.OutOfSpaceDefragment: {Enabled: yes, Compact: no, Window: 5 * time.Minute},
		config.OutOfSpaceNothing:    {Enabled: no, Compact: no, Window: 5 * time.Minute},
	} {
		d := config.DefaultDefragmentation()
		d.Enabled, d.OutOfSpace = true, word
		if diff := cmp.Diff(defragPolicy(d, false, 0, time.Now()).Nospace, want); diff != "" {
			t.Errorf("%s (-got +want)\n%s", word, diff)
		}
	}
}

func TestStallsAreMeasuredByMemberAndResult(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry, "v1")
	if err != nil {
		t.Fatal(err)
	}
	before, after := membership.Space{Size: 1000, InUse: 400}, membership.Space{Size: 400, InUse: 400}
	m.defragmented(duties.Defragmented{Member: "a", Took: time.Second, Before: before, After: after})
	m.defragmented(duties.Defragmented{Member: "a", Took: time.Second, Before: before, After: after})
	m.defragmented(duties.Defragmented{Member: "b", Took: time.Second, Before: before, Err: fmt.Errorf("defragment b: %w", context.Canceled)})
	m.defragmented(duties.Defragmented{Member: "b", Took: time.Second, Before: before, Err: errors.New("no space left on device")})
	if freed := testutil.ToFloat64(m.freed.WithLabelValues("a")); freed != 1200 {
		t.Errorf("%v bytes freed, want 1200", freed)
	}
	got := map[string]uint64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "etcd_agent_defragmentation_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			got[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetHistogram().GetSampleCount()
		}
	}
	if diff := cmp.Diff(got, map[string]uint64{"a defragmented": 2, "b left": 1, "b failed": 1}); diff != "" {
		t.Errorf("(-got +want)\n%s", diff)
	}
}

// TestStartFollowedOnlyWithItsLaunch: a start is followed only while its launch is there.
// A start whose completion waits for Kubernetes is not followed on a volume that can belong to a later Pod.
func TestStartFollowedOnlyWithItsLaunch(t *testing.T) {
	c := config.Default()
	c.EtcdVersion, c.VolumePath, c.SocketPath = "3.7.3", t.TempDir(), filepath.Join(machine.OpenDir(t), "s")
	if err := datadir.WriteIdentityFile(c.VolumePath, datadir.IdentityFile{Cluster: "uid", ClusterID: 1, MemberID: 2}); err != nil {
		t.Fatal(err)
	}
	noOne, err := coordinationclient.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	b, err := start.New(start.Options{
		Config: c, Store: leases.NewStore(noOne.Leases("ns"), "demo"), Log: log, Registerer: prometheus.NewRegistry(),
		Clients: transport.NewClients(transport.Transport{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{log: log, bootstrapper: b}
	a.launch = launch.NewServer(c.SocketPath, decider{b, a}, log)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	served, followed := make(chan error, 1), make(chan bool, 1)
	go func() { served <- a.launch.Run(ctx) }()

	conn := dialed(ctx, t, c.SocketPath)
	if err := conn.SendReport(launch.Report{State: launch.StateRunning, PID: 42}, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.await(ctx, launch.Status.Running); !ok {
		t.Fatal("launch's report did not arrive")
	}
	go func() {
		done, err := a.follow(ctx, 42)
		followed <- done || err != nil
	}()
	select {
	case <-followed:
		t.Fatal("the start is not followed, although its etcd runs and nothing is done")
	case <-time.After(300 * time.Millisecond):
	}
	_ = conn.Close()
	select {
	case wrong := <-followed:
		if wrong {
			t.Error("a start that was left is called done")
		}
	case <-ctx.Done():
		t.Error("the start is still followed after its launch went away")
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// dialed connects as launch does, as soon as the agent listens.
func dialed(ctx context.Context, t *testing.T, socket string) *launch.Conn {
	t.Helper()
	for ctx.Err() == nil {
		if c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
			return launch.NewConn(c.(*net.UnixConn))
		}
		loop.Sleep(ctx, 10*time.Millisecond)
	}
	t.Fatal("launch has no listener")
	return nil
}
