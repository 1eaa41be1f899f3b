package agent

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

type metrics struct {
	decisions *prometheus.CounterVec
	restarts  *prometheus.CounterVec
	renewals  *prometheus.CounterVec
	requests  *prometheus.CounterVec
	config    prometheus.Gauge
	reachable prometheus.Gauge
	healthy   prometheus.Gauge
	learner   prometheus.Gauge
	alarms    *prometheus.GaugeVec
	free      prometheus.Gauge
	size      prometheus.Gauge
	leading   prometheus.Gauge
	stalls    *prometheus.HistogramVec
	freed     *prometheus.CounterVec
	expiry    *prometheus.GaugeVec
	lifetime  *prometheus.GaugeVec
	refused   *prometheus.GaugeVec
	// auth and unknownUsers are set by the leader's agent.
	auth, unknownUsers prometheus.Gauge
	// comparison is set by the leader's agent.
	comparison *prometheus.GaugeVec
	speed      *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer, version string) (*metrics, error) {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		decisions: counters("etcd_agent_decisions_total",
			"Decisions by table and by the rule that decided; a repeated decision counts once.", "table", "rule"),
		restarts: counters("etcd_agent_loop_restarts_total", "Tasks of the agent that failed or panicked and were restarted.", "loop"),
		renewals: counters("etcd_agent_lease_renewals_total", "Attempts to renew the member's Lease, by result.", "result"),
		requests: counters("etcd_agent_kubernetes_requests_total",
			"Requests to the Kubernetes API by method and status code; the code is empty without a response.", "method", "code"),
		config:    gauge("etcd_agent_config_valid", "1 while the current configuration file is in effect, 0 while a previous one is."),
		reachable: gauge("etcd_agent_member_reachable", "1 while the member's etcd responds to its agent."),
		healthy:   gauge("etcd_agent_member_healthy", "1 while the member's etcd is in the cluster and serves."),
		// etcd's own metric for this is wrong after a promotion (etcd-io/etcd#17175).
		learner: gauge("etcd_agent_member_learner", "1 while the member's etcd is a learner, which has no vote and serves no linearizable read."),
		alarms: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "etcd_agent_member_alarm", Help: "1 while etcd reports the alarm of the member's raft group.",
		}, []string{"alarm"}),
		free:    gauge("etcd_agent_volume_free_bytes", "Free space on the member's volume."),
		size:    gauge("etcd_agent_volume_size_bytes", "Size of the file system on the member's volume."),
		leading: gauge("etcd_agent_leading", "1 while this agent performs the leader's duties."),
		stalls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "etcd_agent_defragmentation_seconds",
			Help: "Time during which a member did not serve because this agent defragmented it, by member and result.",
			// From the time for 100 MiB to the time for the largest database.
			Buckets: []float64{.1, .3, 1, 3, 10, 30, 60, 120, 300, 600},
		}, []string{"member", "result"}),
		expiry: ofPlane("etcd_agent_certificate_expiration_timestamp_seconds",
			"Unix time when the member's server certificate expires, by plane: client or peer."),
		lifetime: ofPlane("etcd_agent_certificate_lifetime_seconds", "Time from the beginning to the end of the member's server certificate, by plane."),
		refused: ofPlane("etcd_agent_certificate_rejected",
			"1 while the certificates in the mounted Secrets are not usable and the member keeps the previous ones, by plane."),
		auth: gauge("etcd_agent_auth_enabled", "1 while authentication in etcd is on. Only the leader's agent reports it, with spec.auth or TLS of clients."),
		unknownUsers: gauge("etcd_agent_auth_unknown_users",
			"Users in etcd that spec.auth does not have, except root and druid-agent. Only the leader's agent reports it."),
		comparison: newComparisonGauge(),
		speed:      newSpeedGauge(),
		freed:      counters("etcd_agent_defragmentation_freed_bytes_total", "Bytes that defragmentations freed, by member.", "member"),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "etcd_agent_build_info", Help: "The agent's version, as a label.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.config.Set(1)
	var errs []error
	for _, c := range []prometheus.Collector{
		m.decisions, m.restarts, m.renewals, m.requests, m.config, m.reachable, m.healthy,
		m.learner, m.alarms, m.free, m.size, m.leading, m.stalls, m.freed, m.expiry, m.lifetime, m.refused, m.auth, m.unknownUsers, m.comparison, m.speed, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		errs = append(errs, registry.Register(c))
	}
	return m, errors.Join(errs...)
}

// ofPlane makes a gauge of what is known about the certificates of each plane.
func ofPlane(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"plane"})
}

func newSpeedGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "etcd_agent_disk_speed",
		Help: "1 for the verdict on how fast the member writes its log: OK, Slow or VerySlow. There is none before etcd has written enough.",
	}, []string{"verdict"})
}

func newComparisonGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "etcd_agent_comparison",
		Help: "1 for the verdict of the last comparison of all voters: Same, Differing, Tie or Unknown. Only the leader's agent reports it.",
	}, []string{"verdict"})
}

func (m *metrics) observe(s State) {
	m.reachable.Set(number(s.Reachable))
	m.healthy.Set(number(s.Healthy))
	if !s.Reachable {
		return // keep the last known value
	}
	m.learner.Set(number(s.Status.Role == membership.RoleLearner))
	for _, alarm := range membership.AlarmTypes {
		m.alarms.WithLabelValues(alarm).Set(number(s.Status.Raised(alarm)))
	}
}

func (m *metrics) renewed(err error) {
	result := "renewed"
	if err != nil {
		result = "failed"
	}
	m.renewals.WithLabelValues(result).Inc()
}

// compared reports a comparison. The zero one means that this agent does not lead.
func (m *metrics) compared(c membership.Comparison) {
	m.comparison.Reset()
	if c.Verdict != "" {
		m.comparison.WithLabelValues(string(c.Verdict)).Set(1)
	}
}

// measured reports how fast the member writes its log.
func (m *metrics) measured(f leases.Fsync) {
	m.speed.Reset()
	if f.Known() {
		m.speed.WithLabelValues(string(f.Speed)).Set(1)
	}
}

func (m *metrics) defragmented(d duties.Defragmented) {
	m.stalls.WithLabelValues(d.Member, d.Result()).Observe(d.Took.Seconds())
	if d.After.Size > 0 {
		m.freed.WithLabelValues(d.Member).Add(float64(max(d.Before.Size-d.After.Size, 0)))
	}
}

func (m *metrics) certified(states []certificates.State) {
	for _, s := range states {
		m.refused.WithLabelValues(s.Plane).Set(number(s.Problem != ""))
		if !s.NotAfter.IsZero() {
			m.expiry.WithLabelValues(s.Plane).Set(float64(s.NotAfter.Unix()))
			m.lifetime.WithLabelValues(s.Plane).Set(s.Lifetime.Seconds())
		}
	}
}

func (m *metrics) configured(err error) { m.config.Set(number(err == nil)) }

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// count counts the requests through next.
func (m *metrics) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		code := ""
		if err == nil {
			code = strconv.Itoa(response.StatusCode)
		}
		m.requests.WithLabelValues(r.Method, code).Inc()
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
