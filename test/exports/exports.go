package exports

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/etcd-druid/druid/test/golden"
)

// Registry keeps what is registered, so that vectors show without an event that counts.
type Registry struct {
	*prometheus.Registry
	collectors []prometheus.Collector
}

// NewRegistry returns an empty one.
func NewRegistry() *Registry { return &Registry{Registry: prometheus.NewRegistry()} }

// Register registers and keeps c.
func (r *Registry) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.Registry.Register(c)
}

// Hold checks the names against Prometheus' conventions and the list against the section of docs/reference/metrics.md at path.
func (r *Registry) Hold(t testing.TB, path, section string) {
	t.Helper()
	for _, c := range r.collectors {
		touch(t, c)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	own := slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "etcd_") })
	if len(own) == 0 {
		t.Fatal("no metrics were registered")
	}
	problems, err := promlint.NewWithMetricFamilies(own).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	var rows [][]string
	for _, f := range own {
		if !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("%s: the help is no sentence: %q", f.GetName(), f.GetHelp())
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		rows = append(rows, []string{"`" + f.GetName() + "`", strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp()})
	}
	golden.Section(t, path, section, golden.Table([]string{"metric", "type", "labels", "means"}, rows))
}

var variableLabels = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)

// touch makes a vector show one line.
func touch(t testing.TB, c prometheus.Collector) {
	t.Helper()
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	var values []string
	if m := variableLabels.FindStringSubmatch((<-descs).String()); m != nil && m[1] != "" {
		values = strings.Split(m[1], ",")
	}
	var err error
	switch v := c.(type) {
	case *prometheus.CounterVec:
		_, err = v.GetMetricWithLabelValues(values...)
	case *prometheus.GaugeVec:
		_, err = v.GetMetricWithLabelValues(values...)
	case *prometheus.HistogramVec:
		_, err = v.GetMetricWithLabelValues(values...)
	default: // a metric by itself shows always
	}
	if err != nil {
		t.Fatal(err)
	}
}
