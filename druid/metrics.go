package druid

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
)

// metrics of the controller. No label names a member, because there can be thousands. A series names its cluster only for a condition that is
// not as in a cluster at rest, and for an authority that druid should have replaced.
type metrics struct {
	steps    *prometheus.CounterVec
	failures *prometheus.CounterVec
	events   *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	var errs []error
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		err := registry.Register(c)
		if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			// Another druid of this process counts with it.
			return registered.ExistingCollector.(*prometheus.CounterVec)
		}
		errs = append(errs, err)
		return c
	}
	m := &metrics{
		steps: counters("etcd_druid_steps_total", "Steps that were taken, by kind and by the rule that planned them.", "step", "rule"),
		failures: counters("etcd_druid_step_failures_total",
			"Steps that failed or were refused, by kind and by the rule that planned them; lost compare-and-sets do not count.", "step", "rule"),
		events: counters("etcd_druid_events_total",
			"Transitions of EtcdClusters that were reported as Events, by type and by the reason that the condition and the Event share.", "type", "reason"),
	}
	return m, errors.Join(errs...)
}

// fleetTimeout bounds a read from the caches, which waits only while they are filled for the first time.
const fleetTimeout = time.Second

// fleet counts all EtcdClusters at each scrape, from the caches. A replica that waits for leadership reports only
// that, so that nothing is counted twice. What cannot be read is left out, because a number would be wrong.
type fleet struct {
	reader  client.Reader
	elected <-chan struct{}
	log     *slog.Logger

	leading, clusters, since, pending, deadline, members, authorities, authorityLeft, snapshots *prometheus.Desc
}

func newFleet(reader client.Reader, elected <-chan struct{}, log *slog.Logger) *fleet {
	return &fleet{
		reader: reader, elected: elected, log: log,
		leading: prometheus.NewDesc("etcd_druid_leading",
			"1 for the replica of druid that is the leader, 0 for one that waits for leadership.", nil, nil),
		clusters: prometheus.NewDesc("etcd_druid_clusters",
			"EtcdClusters by condition, its status and its reason.", []string{"condition", "status", "reason"}, nil),
		since: prometheus.NewDesc("etcd_druid_condition_transition_timestamp_seconds",
			"Since when a condition of an EtcdCluster has its status. A condition that is as in a cluster at rest has no series.",
			[]string{"cluster_namespace", "etcd_cluster", "condition", "status", "reason"}, nil),
		pending: prometheus.NewDesc("etcd_druid_pending_edits",
			"EtcdClusters whose last edit of the spec is not accepted.", nil, nil),
		deadline: prometheus.NewDesc("etcd_druid_earliest_progress_deadline_timestamp_seconds",
			"The earliest status.progressDeadline of all EtcdClusters, 0 while no change is in progress.", nil, nil),
		members: prometheus.NewDesc("etcd_druid_members",
			"Members of all EtcdClusters, by status.", []string{"status"}, nil),
		authorities: prometheus.NewDesc("etcd_druid_certificate_authorities",
			"Certificate authorities of all EtcdClusters from which druid issues certificates, by phase of their replacement.", []string{"phase"}, nil),
		authorityLeft: prometheus.NewDesc("etcd_druid_authority_remaining_ratio",
			"Share of its lifetime that a certificate authority of druid has left. An authority with a lifetime of a day or more has a series while less "+
				"than a quarter is left. druid begins to replace it at a third.",
			[]string{"cluster_namespace", "etcd_cluster", "plane"}, nil),
		snapshots: prometheus.NewDesc("etcd_druid_snapshots",
			"EtcdSnapshots by phase.", []string{"phase"}, nil),
	}
}

// Describe reports the names.
func (f *fleet) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{f.leading, f.clusters, f.since, f.pending, f.deadline, f.members, f.authorities, f.authorityLeft, f.snapshots} {
		descs <- d
	}
}

// Collect counts.
func (f *fleet) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	select {
	case <-f.elected:
	default:
		gauge(f.leading, 0)
		return
	}
	gauge(f.leading, 1)
	ctx, cancel := context.WithTimeout(context.Background(), fleetTimeout) //nolint:forbidigo // a scrape brings no context
	defer cancel()
	var clusters v1alpha1.EtcdClusterList
	if err := f.reader.List(ctx, &clusters, client.UnsafeDisableDeepCopy); err != nil {
		f.log.WarnContext(ctx, "clusters not counted", "err", err)
	} else {
		f.count(clusters.Items, gauge)
	}
	var snapshots v1alpha1.EtcdSnapshotList
	if err := f.reader.List(ctx, &snapshots, client.UnsafeDisableDeepCopy); err != nil {
		f.log.WarnContext(ctx, "snapshots not counted", "err", err)
		return
	}
	phases := map[v1alpha1.SnapshotPhase]int{
		v1alpha1.SnapshotPending: 0, v1alpha1.SnapshotRunning: 0, v1alpha1.SnapshotSucceeded: 0, v1alpha1.SnapshotFailed: 0,
	}
	for _, s := range snapshots.Items {
		phases[cmp.Or(s.Status.Phase, v1alpha1.SnapshotPending)]++
	}
	for phase, n := range phases {
		gauge(f.snapshots, float64(n), string(phase))
	}
}

// count reports the clusters. It reports 0 for a status that no member has, so that the time series does not end.
func (f *fleet) count(clusters []v1alpha1.EtcdCluster, gauge func(*prometheus.Desc, float64, ...string)) {
	type state struct{ condition, status, reason string }
	states := map[state]int{}
	members := map[v1alpha1.MemberState]int{v1alpha1.MemberReady: 0, v1alpha1.MemberNotReady: 0, v1alpha1.MemberUnknown: 0}
	pending, earliest := 0, time.Unix(0, 0)
	for _, cluster := range clusters {
		if cluster.Status.ObservedGeneration != cluster.Generation {
			pending++
		}
		if at := cluster.Status.ProgressDeadline; at != nil && (earliest.Unix() == 0 || at.Time.Before(earliest)) {
			earliest = at.Time
		}
		for _, c := range cluster.Status.Conditions {
			states[state{c.Type, string(c.Status), c.Reason}]++
			if !resting(c) {
				gauge(f.since, float64(c.LastTransitionTime.Unix()), cluster.Namespace, cluster.Name, c.Type, string(c.Status), c.Reason)
			}
		}
		for _, m := range cluster.Status.Members {
			members[m.Status]++
		}
	}
	gauge(f.pending, float64(pending))
	gauge(f.deadline, float64(earliest.Unix()))
	for key, n := range states {
		gauge(f.clusters, float64(n), key.condition, key.status, key.reason)
	}
	for status, n := range members {
		gauge(f.members, float64(n), string(status))
	}
	f.countAuthorities(clusters, gauge)
}

// resting says whether the condition is as in a cluster that is as its spec requests, and in which nothing is done.
func resting(c metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionProgressing:
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonReconciled
	case v1alpha1.ConditionDegraded:
		return c.Status == metav1.ConditionFalse
	case v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled: // each repeats another condition
		return true
	}
	return c.Status == metav1.ConditionTrue
}

// countAuthorities reports the certificate authorities that sign, and names those that druid should have replaced.
func (f *fleet) countAuthorities(clusters []v1alpha1.EtcdCluster, gauge func(*prometheus.Desc, float64, ...string)) {
	phases := map[v1alpha1.TLSPhase]int{v1alpha1.TLSStable: 0}
	for _, cluster := range clusters {
		if cluster.Status.TLS == nil {
			continue
		}
		for name, plane := range map[string]*v1alpha1.TLSPlaneStatus{"client": cluster.Status.TLS.Client, "peer": cluster.Status.TLS.Peer} {
			if plane == nil || plane.Phase == "" {
				continue
			}
			phases[plane.Phase]++
			if left, overdue := remaining(plane); overdue {
				gauge(f.authorityLeft, left, cluster.Namespace, cluster.Name, name)
			}
		}
	}
	for phase, n := range phases {
		gauge(f.authorities, float64(n), string(phase))
	}
}

// remaining is the share of its lifetime that the authority of the plane has left, negative if it has expired. It is overdue below a quarter.
// Members restart while an authority is replaced, so one of less than a day can be later than that.
func remaining(plane *v1alpha1.TLSPlaneStatus) (share float64, overdue bool) {
	const shortest, longest = 24 * time.Hour, 20 * 365 * 24 * time.Hour // the CRD limits caLifetime to the latter
	ends := plane.AuthorityNotAfter
	if ends == nil || time.Until(ends.Time) > longest/4 {
		return 0, false // without a look at the certificate
	}
	for _, a := range plane.Trusted {
		parsed, err := pki.Bundle([]byte(a.Certificate))
		if a.Fingerprint != plane.Authority || err != nil || len(parsed) != 1 {
			continue
		}
		lifetime := parsed[0].NotAfter.Sub(parsed[0].NotBefore)
		share = time.Until(ends.Time).Seconds() / lifetime.Seconds()
		return share, lifetime >= shortest && share < 0.25
	}
	return 0, false
}
