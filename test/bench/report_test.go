package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// table collects the rows of the report.
type table struct {
	rows []row
}

type row struct {
	what, want string
	values     []float64
	unit       string
}

// add notes one value of a row; the rows stand in the order in which they first appear.
func (t *table) add(what, want, unit string, value float64) {
	i := slices.IndexFunc(t.rows, func(r row) bool { return r.what == what })
	if i < 0 {
		t.rows = append(t.rows, row{what: what, want: want, unit: unit})
		i = len(t.rows) - 1
	}
	t.rows[i].values = append(t.rows[i].values, value)
}

func (t *table) seconds(what, want string, took time.Duration) {
	t.add(what, want, "s", took.Seconds())
}

func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString("\n| measured | want | median | all runs |\n|---|---|---|---|\n")
	for _, r := range t.rows {
		var all []string
		for _, v := range r.values {
			all = append(all, fmt.Sprintf("%.4g", v))
		}
		fmt.Fprintf(&b, "| %s | %s | %.4g %s | %s |\n", r.what, r.want, median(r.values), r.unit, strings.Join(all, ", "))
	}
	return b.String()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
