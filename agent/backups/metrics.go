package backups

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-druid/druid/backup/delta"
)

// Metrics of a Duty. When leadership ends, the counters keep their values and the gauges become 0.
type Metrics struct {
	decisions     *prometheus.CounterVec
	objects       *prometheus.CounterVec
	bytes         *prometheus.CounterVec
	failures      *prometheus.CounterVec
	seconds       *prometheus.CounterVec
	deleted       prometheus.Counter
	verifications *prometheus.CounterVec
	revision      prometheus.Gauge
	buffered      prometheus.Gauge

	mu sync.Mutex
	// oldest is the time of the oldest change that the recorder has not saved. hindered is since when the saved
	// changes lead to no restorable state, or nothing is recorded: changes since then, and possibly earlier ones, are
	// not saved.
	oldest, hindered time.Time
}

// NewMetrics registers the metrics. decisions counts the decisions of all tables.
func NewMetrics(registerer prometheus.Registerer, decisions *prometheus.CounterVec) (*Metrics, error) {
	counters := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"kind"})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		decisions: decisions,
		objects:   counters("etcd_agent_backup_objects_total", "Backups that this agent saved, by kind."),
		bytes:     counters("etcd_agent_backup_bytes_total", "Bytes of the backups that this agent saved, by kind."),
		failures:  counters("etcd_agent_backup_failures_total", "Failed attempts to save a backup or to read the store, by kind."),
		seconds:   counters("etcd_agent_backup_seconds_total", "Time spent on saving the backups that this agent saved, by kind."),
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "etcd_agent_backup_deleted_objects_total", Help: "Backups that retention deleted, or that were deleted with their EtcdSnapshots.",
		}),
		verifications: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_agent_backup_verifications_total", Help: "Backups that this agent restored to verify them, by result.",
		}, []string{"verdict"}),
		revision: gauge("etcd_agent_backup_saved_revision", "Last revision that is saved; 0 while this agent makes no backups."),
		buffered: gauge("etcd_agent_backup_buffered_bytes", "Changes in memory that are not saved yet."),
	}
	rpo := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "etcd_agent_backup_rpo_seconds",
		Help: "Age of the oldest acknowledged write that is not saved, or time since saving was blocked. 0 for neither, and while this agent makes no backups.",
	}, m.rpo)
	var errs []error
	for _, c := range []prometheus.Collector{m.objects, m.bytes, m.failures, m.seconds, m.deleted, m.verifications, m.revision, m.buffered, rpo} {
		errs = append(errs, registerer.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *Metrics) decided(rule string) { m.decisions.WithLabelValues(backupTable, rule).Inc() }

func (m *Metrics) failed(kind string) { m.failures.WithLabelValues(kind).Inc() }

func (m *Metrics) saved(kind string, size int64, took time.Duration) {
	m.objects.WithLabelValues(kind).Inc()
	m.bytes.WithLabelValues(kind).Add(float64(size))
	m.seconds.WithLabelValues(kind).Add(took.Seconds())
}

func (m *Metrics) follow(s delta.Status) {
	m.buffered.Set(float64(s.Buffered))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.oldest = s.Oldest
	if m.hindered.IsZero() {
		m.revision.Set(float64(s.Saved))
	}
}

// hinder records since when saving is blocked. Zero means that it is not.
func (m *Metrics) hinder(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hindered = since
}

// idle sets the gauges for an agent that makes no backups.
func (m *Metrics) idle() {
	m.hinder(time.Time{})
	m.follow(delta.Status{})
}

func (m *Metrics) rpo() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	rpo := 0.0
	for _, since := range []time.Time{m.oldest, m.hindered} {
		if !since.IsZero() {
			rpo = max(rpo, time.Since(since).Seconds())
		}
	}
	return rpo
}
