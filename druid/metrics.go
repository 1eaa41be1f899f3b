package druid

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the controller. No label names a cluster or a member: there may be thousands.
type metrics struct {
	steps *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{steps: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "etcd_druid_steps_total",
		Help: "Steps that were taken, by kind and by the rule that planned them.",
	}, []string{"step", "rule"})}
	err := registry.Register(m.steps)
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		// Another druid of this process counts with it.
		m.steps, err = registered.ExistingCollector.(*prometheus.CounterVec), nil
	}
	return m, err
}
