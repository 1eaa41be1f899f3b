// Package prometheus asks Prometheus itself about the rules and the dashboard of manifests/monitoring. It is a module of its own,
// so that Prometheus is linked into nothing else.
package prometheus

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"go.yaml.in/yaml/v3"
)

const dir = "../../manifests/monitoring/"

// file of the folder.
func file(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(dir + name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(file(t, "rules.yaml"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestPrometheusReadsTheRules(t *testing.T) {
	if len(rules(t)) == 0 {
		t.Error("there are none")
	}
}

// scenario is what series say minute by minute, and which alerts fire in the end. An alert fires when its expression held, for the
// same labels, for as long as its `for` says.
type scenario struct {
	Series []struct{ Series, Values string }
	At     model.Duration
	Fires  []string
}

func TestAlertsFire(t *testing.T) {
	var scenarios map[string]scenario
	if err := yaml.Unmarshal(file(t, "testdata/scenarios.yaml"), &scenarios); err != nil {
		t.Fatal(err)
	}
	all := rules(t)
	fired := map[string]bool{}
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			var load strings.Builder
			load.WriteString("load 1m\n")
			for _, series := range s.Series {
				fmt.Fprintf(&load, "  %s %s\n", series.Series, series.Values)
			}
			store := promqltest.LoadedStorage(t, load.String())
			t.Cleanup(func() { _ = store.Close() })
			engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
			var got []string
			for _, rule := range all {
				if rule.Alert != "" && fires(t, engine, store, rule, all, time.Unix(0, 0).Add(time.Duration(s.At))) {
					got = append(got, rule.Alert)
					fired[rule.Alert] = true
				}
			}
			slices.Sort(got)
			slices.Sort(s.Fires)
			if !slices.Equal(got, s.Fires) {
				t.Errorf("%v fire, want %v", got, s.Fires)
			}
		})
	}
	for _, rule := range all {
		if rule.Alert != "" && !fired[rule.Alert] {
			t.Errorf("%s fires in no scenario", rule.Alert)
		}
	}
}

// fires says whether the rule's expression held for one set of labels at each minute of its `for`.
func fires(t *testing.T, engine *promql.Engine, store storage.Queryable, rule rulefmt.Rule, all []rulefmt.Rule, at time.Time) bool {
	t.Helper()
	var held map[uint64]bool
	for back := time.Duration(0); back <= time.Duration(rule.For); back += time.Minute {
		query, err := engine.NewInstantQuery(t.Context(), store, nil, inlined(rule.Expr, all), at.Add(-back))
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		result := query.Exec(t.Context())
		if result.Err != nil {
			t.Fatalf("%s: %v", rule.Alert, result.Err)
		}
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		now := map[uint64]bool{}
		for _, sample := range vector {
			if hash := labels.NewBuilder(sample.Metric).Del(labels.MetricName).Labels().Hash(); held == nil || held[hash] {
				now[hash] = true
			}
		}
		held = now
	}
	return len(held) > 0
}

// inlined puts the recording rules into the expression in the place of their names: the storage has not recorded them.
func inlined(expr string, all []rulefmt.Rule) string {
	for _, rule := range all {
		if rule.Record != "" {
			expr = strings.ReplaceAll(expr, rule.Record, "("+rule.Expr+")")
		}
	}
	return expr
}
