package agent

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/exports"
)

func TestMetricsKeepTheConventionsAndAreListed(t *testing.T) {
	registry := exports.NewRegistry()
	if _, err := newMetrics(registry, "v1"); err != nil {
		t.Fatal(err)
	}
	registry.Hold(t, "../docs/reference/metrics.md", "agent")
}

// An etcd that does not answer said nothing new: what it said last stands.
func TestAlarmsAreReportedUntilEtcdTakesThemBack(t *testing.T) {
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
