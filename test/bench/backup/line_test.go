package backup

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// line is the result of one measurement: name key=value key=value …
type line struct {
	name   string
	fields []field
}

type field struct {
	key   string
	value float64
	word  string // instead of a value
}

func (l *line) add(key string, value float64) {
	l.fields = append(l.fields, field{key: key, value: value})
}

func (l *line) say(key, word string) { l.fields = append(l.fields, field{key: key, word: word}) }

func (l *line) String() string {
	var b strings.Builder
	b.WriteString(l.name)
	for _, f := range l.fields {
		if f.word == "" {
			f.word = number(f.value)
		}
		fmt.Fprintf(&b, " %s=%s", f.key, f.word)
	}
	return b.String()
}

// number has four significant digits, and all of them where there are more before the point.
func number(v float64) string {
	if v >= 1000 || v == float64(int64(v)) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// runs are the lines of one measurement that was made several times.
type runs []*line

// median has the median of each value, and the words of the last run.
func (r runs) median() *line {
	m := &line{name: r[0].name}
	for i, f := range r[len(r)-1].fields {
		var all []float64
		for _, l := range r {
			all = append(all, l.fields[i].value)
		}
		slices.Sort(all)
		f.value = (all[(len(all)-1)/2] + all[len(all)/2]) / 2
		m.fields = append(m.fields, f)
	}
	return m
}

// results are the measurements in the order in which they were first made.
type results []runs

func (r *results) add(l *line) {
	for i := range *r {
		if (*r)[i][0].name == l.name {
			(*r)[i] = append((*r)[i], l)
			return
		}
	}
	*r = append(*r, runs{l})
}

// load is what else ran on the machine: the load average of the last minute.
func load(tb testing.TB) float64 {
	tb.Helper()
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		tb.Fatal(err)
	}
	v, err := strconv.ParseFloat(strings.Fields(string(content))[0], 64)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func TestALineHasTheMedianOfEachValue(t *testing.T) {
	var r results
	for _, v := range []float64{3, 1, 2.5} {
		l := &line{name: "full"}
		l.add("wall_s", v)
		l.add("object_bytes", 1000*v)
		l.say("slowest", fmt.Sprint("limit-", v))
		r.add(l)
	}
	if got, want := r[0].median().String(), "full wall_s=2.5 object_bytes=2500 slowest=limit-2.5"; len(r) != 1 || got != want {
		t.Errorf("%d lines, %q, want %q", len(r), got, want)
	}
}
