package bootstrap

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// startTable is this package's table in the metric of all decisions.
const startTable = "bootstrap.rules"

// newDecisions returns the counter of decisions by table and rule, which all packages of the agent share.
func newDecisions(registerer prometheus.Registerer) (*prometheus.CounterVec, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "etcd_agent_decisions_total",
		Help: "Decisions by table and by the rule that decided; a repeated decision counts once.",
	}, []string{"table", "rule"})
	var registered prometheus.AlreadyRegisteredError
	if err := registerer.Register(decisions); errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	} else if err != nil {
		return nil, err
	}
	return decisions, nil
}
