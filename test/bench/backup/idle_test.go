package backup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// resolvePending is how long nothing is measured after the first full was taken and proven: what that needed is given back by then.
// Go looks for garbage every two minutes where there is none.
const resolvePending = 150 * time.Second

// reading is what an agent used up to a moment.
type reading struct {
	at              time.Time
	cpu             float64
	bucket, cluster map[string]int
}

// measureIdle watches the one agent of a cluster that is backed up and has no writes.
func measureIdle(tb testing.TB, _ size) *line {
	tb.Helper()
	m := lonely(tb)
	m.awaitVerified()
	await(tb, resolvePending)
	before := m.read()
	var peak float64
	for deadline := before.at.Add(*idle); time.Now().Before(deadline); await(tb, time.Second) {
		peak = max(peak, m.memory("VmRSS"))
	}
	after := m.read()

	seconds := after.at.Sub(before.at).Seconds()
	l := &line{name: "idle"}
	l.add("rss_mib", m.memory("VmRSS")/mib)
	l.add("rss_anon_mib", m.memory("RssAnon")/mib)
	l.add("rss_largest_mib", peak/mib)
	l.add("rss_since_start_mib", m.memory("VmHWM")/mib)
	l.add("cpu_percent_of_a_core", 100*(after.cpu-before.cpu)/seconds)
	perHour(l, "s3", before.bucket, after.bucket, seconds)
	perHour(l, "kubernetes", before.cluster, after.cluster, seconds)
	l.add("seconds", seconds)
	l.add("load", load(tb))
	return l
}

// perHour adds what was asked for meanwhile: all of it, and each kind.
func perHour(l *line, name string, before, after map[string]int, seconds float64) {
	var total float64
	kinds := []string{}
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		if n := 3600 * float64(after[kind]-before[kind]) / seconds; n > 0 {
			total += n
			kinds = append(kinds, kind+":"+number(n))
		}
	}
	l.add(name+"_requests_per_hour", total)
	l.say(name+"_kinds", cmp.Or(strings.Join(kinds, ","), "none"))
}

// await is rest; the test may end it.
func await(tb testing.TB, d time.Duration) {
	tb.Helper()
	select {
	case <-tb.Context().Done():
	case <-time.After(d):
	}
}

// ticks of the kernel's clock in a second: the same on all architectures.
const ticks = 100

// cpuOf reads what a process has used, in seconds.
func cpuOf(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name may hold anything; after it the state is the third field.
	_, rest, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("the statistics of process %d are %q", pid, content)
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks, errors.Join(err, err2)
}
