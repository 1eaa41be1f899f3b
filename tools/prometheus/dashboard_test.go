package prometheus

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/util/teststorage"
)

var frames = flag.String("frames", "", "the file for what Prometheus answers to the dashboard, which make dashboards draws")

const (
	docs = "../../docs/"
	step = time.Minute / scrapes
	// clock is the time of day at which the story begins.
	clock = 9*time.Hour + 33*time.Minute
)

// variables of the dashboard. Grafana's interval for rates is at least four scrapes.
var variables = strings.NewReplacer("$__rate_interval", (4 * step).String(), "$namespace", "payments", "$cluster", "orders")

// frame and field are Grafana's form of a data frame.
type frame struct {
	RefID  string  `json:"refId"`
	Fields []field `json:"fields"`
}

type field struct {
	Name   string         `json:"name"`
	Type   string         `json:"type"`
	Values []any          `json:"values"`
	Config map[string]any `json:"config,omitempty"`
}

type target struct{ RefID, Expr, LegendFormat, Format string }

// Each query of the dashboard gets an answer in a story with real metrics, and the images of the documentation show these answers.
func TestDashboardShowsTheStory(t *testing.T) {
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []target
		}
	}
	raw := file(t, "dashboard.json")
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	series := load()
	store := promqltest.LoadedStorage(t, series)
	t.Cleanup(func() { _ = store.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
	record(t, engine, store)
	answers := map[int][]frame{}
	for _, panel := range board.Panels {
		for _, asked := range panel.Targets {
			answer := ask(t, engine, store, asked)
			if len(answer) == 0 {
				t.Errorf("panel %q shows nothing for %s", panel.Title, asked.Expr)
			}
			answers[panel.ID] = append(answers[panel.ID], answer...)
		}
	}
	if len(answers) == 0 {
		t.Error("no panel asks for anything")
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(append(raw, series...)))
	if *frames != "" {
		drawn, err := json.Marshal(map[string]any{
			"digest": digest, "from": milliseconds(before), "to": milliseconds(before + shown), "frames": answers,
			"variables": map[string]string{"$namespace": variables.Replace("$namespace"), "$cluster": variables.Replace("$cluster")},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*frames, drawn, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, name := range []string{"dashboard-fleet.png", "dashboard-cluster.png"} {
		image, err := os.ReadFile(docs + "images/" + name)
		if err != nil {
			t.Error(err)
		}
		if !bytes.Contains(image, []byte(digest)) {
			t.Errorf("%s does not show the dashboard as it is: run make dashboards, and look at it", name)
		}
	}
}

// The series of the story have the labels that druid and the agents export. TestEveryMetricThatIsAskedForIsExported checks metrics of etcd.
func TestStoryHasRealMetrics(t *testing.T) {
	page, err := os.ReadFile(docs + "reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	words, exported := regexp.MustCompile(`\w+`), map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		exported[row[1]] = words.FindAllString(row[2], -1)
		exported[row[1]+"_sum"] = exported[row[1]] // of a histogram
	}
	own := 0
	for _, series := range regexp.MustCompile(`(?m)^  (etcd_(?:druid|agent)_\w+)\{(.*)\}`).FindAllStringSubmatch(load(), -1) {
		own++
		want, ok := exported[series[1]]
		want = append([]string{"namespace", "pod"}, want...) // those of the scrape
		if strings.HasPrefix(series[1], "etcd_agent_") {
			want = append(want, "etcd_cluster")
		}
		var got []string
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(series[2], -1) {
			got = append(got, label[1])
		}
		slices.Sort(got)
		slices.Sort(want)
		if !ok || !slices.Equal(got, want) {
			t.Errorf("%s has labels %v, want %v, exported: %t", series[1], got, want, ok)
		}
	}
	if own == 0 {
		t.Error("the story has no series of druid or an agent")
	}
}

// record adds the recorded series, as Prometheus does with the rules.
func record(t *testing.T, engine *promql.Engine, store *teststorage.TestStorage) {
	t.Helper()
	for _, rule := range rules(t) {
		if rule.Record == "" {
			continue
		}
		app := store.Appender(t.Context())
		for _, series := range matrix(t, engine, store, rule.Expr) {
			named := labels.NewBuilder(series.Metric).Set(labels.MetricName, rule.Record).Labels()
			for _, p := range series.Floats {
				if _, err := app.Append(0, named, p.T, p.F); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// matrix is the answer at each step of the hour.
func matrix(t *testing.T, engine *promql.Engine, store *teststorage.TestStorage, expr string) promql.Matrix {
	t.Helper()
	from, to := time.Unix(before*60, 0), time.Unix((before+shown)*60, 0)
	query, err := engine.NewRangeQuery(t.Context(), store, nil, variables.Replace(expr), from, to, step)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	answer, err := query.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return answer
}

var legend = regexp.MustCompile(`\{\{(\w+)\}\}`)

// ask returns the frames that Grafana's data source makes of an answer: one of each series, or a table of the last values.
func ask(t *testing.T, engine *promql.Engine, store *teststorage.TestStorage, asked target) (all []frame) {
	t.Helper()
	answer := matrix(t, engine, store, asked.Expr)
	if asked.Format == "table" {
		return table(asked.RefID, answer)
	}
	for _, series := range answer {
		name := legend.ReplaceAllStringFunc(asked.LegendFormat, func(label string) string { return series.Metric.Get(strings.Trim(label, "{}")) })
		at := field{Name: "Time", Type: "time", Config: map[string]any{"interval": step.Milliseconds()}}
		values := field{Name: "Value", Type: "number", Config: map[string]any{"displayNameFromDS": name}}
		for _, p := range series.Floats {
			at.Values, values.Values = append(at.Values, p.T+clock.Milliseconds()), append(values.Values, p.F)
		}
		all = append(all, frame{asked.RefID, []field{at, values}})
	}
	return all
}

// table has a column for each label, and a row for each series that has a value in the end.
func table(id string, answer promql.Matrix) (all []frame) {
	at, value := field{Name: "Time", Type: "time"}, field{Name: "Value", Type: "number"}
	names := []string{}
	columns := map[string]*field{}
	for _, series := range answer {
		last := series.Floats[len(series.Floats)-1]
		if last.T+clock.Milliseconds() != milliseconds(before+shown) {
			continue
		}
		at.Values, value.Values = append(at.Values, last.T), append(value.Values, last.F)
		series.Metric.Range(func(l labels.Label) {
			if columns[l.Name] == nil {
				names, columns[l.Name] = append(names, l.Name), &field{Name: l.Name, Type: "string"}
			}
			columns[l.Name].Values = append(columns[l.Name].Values, l.Value)
		})
	}
	if len(names) == 0 {
		return nil
	}
	fields := []field{at}
	for _, name := range names {
		fields = append(fields, *columns[name])
	}
	return []frame{{id, append(fields, value)}}
}

func milliseconds(minute int) int64 {
	return (clock + time.Duration(minute)*time.Minute).Milliseconds()
}
