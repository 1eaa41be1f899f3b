package backups

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-druid/druid/test/exports"
)

func TestMetricsKeepTheConventionsAndAreListed(t *testing.T) {
	registry := exports.NewRegistry()
	if _, err := NewMetrics(registry, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, nil)); err != nil {
		t.Fatal(err)
	}
	registry.Hold(t, "../../docs/reference/metrics.md", "backups")
}
