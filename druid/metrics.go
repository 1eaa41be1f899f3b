package druid

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the controller. No label names a cluster or a member: there may be thousands.
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
