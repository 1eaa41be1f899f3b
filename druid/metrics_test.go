package druid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/test/exports"
)

// clusters is what the caches hold; an error is theirs.
type clusters struct {
	client.Reader
	items []v1alpha1.EtcdCluster
	err   error
}

func (c clusters) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l, ok := list.(*v1alpha1.EtcdClusterList); ok {
		l.Items = c.items
	}
	return c.err
}

func elected() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func inCondition(kind string, status metav1.ConditionStatus, reason string, since int64) v1alpha1.EtcdCluster {
	c := v1alpha1.EtcdCluster{}
	c.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Unix(since, 0))}}
	c.Status.Members = []v1alpha1.MemberStatus{{Status: v1alpha1.MemberReady}}
	return c
}

// TestMetricsFollowConventions: metrics keep the conventions and are listed.
func TestMetricsFollowConventions(t *testing.T) {
	registry := exports.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	all := clusters{items: []v1alpha1.EtcdCluster{inCondition("Ready", "False", "QuorumLost", 1)}}
	all.items[0].Status.TLS = &v1alpha1.TLSStatus{Peer: planeOf(t, 2400*time.Hour, 240*time.Hour)}
	if err := registry.Register(newFleet(all, elected(), slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	registry.Hold(t, "../docs/reference/metrics.md", "druid")
}

// TestFleetMetricsNameAbnormalClusters: the fleet is counted and only abnormal conditions name their cluster.
func TestFleetMetricsNameAbnormalClusters(t *testing.T) {
	three := clusters{items: []v1alpha1.EtcdCluster{
		inCondition("Degraded", "True", "NodeLost", 300), inCondition("Degraded", "True", "NodeLost", 200), inCondition("Degraded", "False", "AsExpected", 100),
	}}
	for i, name := range []string{"a", "b", "c"} {
		three.items[i].Namespace, three.items[i].Name = "ns", name
	}
	three.items[1].Generation, three.items[1].Status.ProgressDeadline = 2, new(metav1.Unix(500, 0))
	three.items[2].Status.ProgressDeadline = new(metav1.Unix(400, 0))
	three.items[0].Status.TLS = &v1alpha1.TLSStatus{
		Client: &v1alpha1.TLSPlaneStatus{Phase: v1alpha1.TLSTrustingBoth}, Peer: &v1alpha1.TLSPlaneStatus{Phase: v1alpha1.TLSStable},
	}
	three.items[1].Status.TLS = &v1alpha1.TLSStatus{Client: &v1alpha1.TLSPlaneStatus{}}
	const counted = `
etcd_druid_certificate_authorities{phase="Stable"} 1
etcd_druid_certificate_authorities{phase="TrustingBoth"} 1
etcd_druid_clusters{condition="Degraded",reason="AsExpected",status="False"} 1
etcd_druid_clusters{condition="Degraded",reason="NodeLost",status="True"} 2
etcd_druid_condition_transition_timestamp_seconds{cluster_namespace="ns",condition="Degraded",etcd_cluster="a",reason="NodeLost",status="True"} 300
etcd_druid_condition_transition_timestamp_seconds{cluster_namespace="ns",condition="Degraded",etcd_cluster="b",reason="NodeLost",status="True"} 200
etcd_druid_earliest_progress_deadline_timestamp_seconds 400
etcd_druid_leading 1
etcd_druid_members{status="NotReady"} 0
etcd_druid_members{status="Ready"} 3
etcd_druid_members{status="Unknown"} 0
etcd_druid_pending_edits 1
etcd_druid_snapshots{phase="Failed"} 0
etcd_druid_snapshots{phase="Pending"} 0
etcd_druid_snapshots{phase="Running"} 0
etcd_druid_snapshots{phase="Succeeded"} 0
`
	for name, tc := range map[string]struct {
		reader  clusters
		elected chan struct{}
		want    string
	}{
		"who leads counts all":                            {three, elected(), counted},
		"who waits says so, for two must not count twice": {three, make(chan struct{}), "\netcd_druid_leading 0\n"},
		"what cannot be read is not reported as zero":     {clusters{err: errors.New("no cache")}, elected(), "\netcd_druid_leading 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(tc.reader, tc.elected, slog.New(slog.DiscardHandler))
			got, err := testutil.CollectAndFormat(f, expfmt.TypeTextPlain, "etcd_druid_clusters", "etcd_druid_leading",
				"etcd_druid_earliest_progress_deadline_timestamp_seconds", "etcd_druid_pending_edits",
				"etcd_druid_members", "etcd_druid_certificate_authorities", "etcd_druid_condition_transition_timestamp_seconds", "etcd_druid_snapshots")
			if err != nil {
				t.Fatal(err)
			}
			if values := withoutComments(string(got)); values != tc.want {
				t.Errorf("got %s\nwant %s", values, tc.want)
			}
		})
	}
}

// planeOf is a plane whose authority has some of its lifetime left. It also trusts an authority that druid cannot read.
func planeOf(t *testing.T, lifetime, left time.Duration) *v1alpha1.TLSPlaneStatus {
	t.Helper()
	now := time.Now()
	pair, err := pki.NewAuthority("test", now.Add(left-lifetime), lifetime)
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.TLSPlaneStatus{Phase: v1alpha1.TLSStable, Authority: "a", AuthorityNotAfter: new(metav1.NewTime(now.Add(left))),
		Trusted: []v1alpha1.TLSAuthority{{Fingerprint: "unreadable", Certificate: "none"}, {Fingerprint: "a", Certificate: string(pair.Certificate)}}}
}

// An authority that druid should have replaced names its cluster, so that an alert can.
func TestOverdueAuthoritiesNameTheirCluster(t *testing.T) {
	const day = 24 * time.Hour
	for name, tc := range map[string]struct {
		lifetime, left time.Duration
		signs          bool
		want           string
	}{
		"a third is left, and druid replaces it": {90 * day, 30 * day, true, ""},
		"a quarter is left":                      {100 * day, 26 * day, true, ""},
		"less than a quarter is left":            {100 * day, 15 * day, true, "0.15"},
		"it has expired":                         {100 * day, -10 * day, true, "-0.10"},
		"members restart for longer than that":   {22 * time.Hour, time.Hour, true, ""},
		"the one that signs cannot be read":      {100 * day, 15 * day, false, ""},
		"the longest that the CRD permits":       {175200 * time.Hour, 42048 * time.Hour, true, "0.24"},
	} {
		t.Run(name, func(t *testing.T) {
			plane, got := planeOf(t, tc.lifetime, tc.left), ""
			if !tc.signs {
				plane.Authority = "unreadable"
			}
			if share, overdue := remaining(plane); overdue {
				got = strconv.FormatFloat(share, 'f', 2, 64)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if _, overdue := remaining(&v1alpha1.TLSPlaneStatus{Phase: v1alpha1.TLSStable}); overdue {
		t.Error("an authority that is not known is overdue")
	}
}

// A cluster at rest has no series of its own, and each other status of each condition has one.
func TestRestingConditions(t *testing.T) {
	for _, kind := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionAllMembersReady, v1alpha1.ConditionSpread, v1alpha1.ConditionBackupReady,
		v1alpha1.ConditionBackupVerified, v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionAuthReady,
		v1alpha1.ConditionDegraded, v1alpha1.ConditionProgressing,
	} {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			for _, reason := range []string{v1alpha1.ReasonReconciled, "Another"} {
				want := status == metav1.ConditionTrue
				switch kind {
				case v1alpha1.ConditionDegraded:
					want = status == metav1.ConditionFalse
				case v1alpha1.ConditionProgressing:
					want = status == metav1.ConditionFalse && reason == v1alpha1.ReasonReconciled
				}
				if got := resting(metav1.Condition{Type: kind, Status: status, Reason: reason}); got != want {
					t.Errorf("%s=%s %s: at rest is %t, want %t", kind, status, reason, got, want)
				}
			}
		}
	}
}

func withoutComments(text string) string {
	var b strings.Builder
	b.WriteString("\n")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// The caches of a druid that leads are what is counted. The registry is the process's, so no other druid may run in it.
func TestRunningDruidCountsItsClusters(t *testing.T) {
	s := anotherStage(t)
	s.startDruid()
	s.createCluster("demo", 3)
	s.eventually("count the cluster", func() error {
		families, err := crmetrics.Registry.Gather()
		if err != nil {
			return err
		}
		lines := map[string]int{}
		for _, f := range families {
			lines[f.GetName()] = len(f.GetMetric())
		}
		for _, name := range []string{"etcd_druid_leading", "etcd_druid_clusters", "etcd_druid_members", "etcd_druid_snapshots"} {
			if lines[name] == 0 {
				return fmt.Errorf("%s is not reported", name)
			}
		}
		return nil
	})
}

// The transitions that are reported as Events are counted by the same reason.
func TestTransitionsAreCountedByReason(t *testing.T) {
	s := newStage(t)
	r := s.reconciler(s.Client)
	o := &observation{cluster: s.newCluster("demo", 3)}
	r.event(o, policy.Event{Warning: true, Reason: v1alpha1.EventQuorumLost, Note: "x"}, "WriteStatus")
	if got := testutil.ToFloat64(r.metrics.events.WithLabelValues("Warning", v1alpha1.EventQuorumLost)); got != 1 {
		t.Errorf("counted %v times, want once", got)
	}
}
