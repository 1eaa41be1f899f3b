package agent

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
)

// bounds are those of etcd's histogram, in seconds.
func bounds() (all []float64) {
	for bound := 0.001; bound < 9; bound *= 2 {
		all = append(all, bound)
	}
	return append(all, math.Inf(1))
}

// counted is a histogram with n values of each duration.
func counted(n float64, durations ...time.Duration) (h histogram) {
	for _, bound := range bounds() {
		b := bucket{bound: bound}
		for _, d := range durations {
			if d.Seconds() <= bound {
				b.count += n
			}
		}
		h.buckets = append(h.buckets, b)
	}
	for _, d := range durations {
		h.sum += n * d.Seconds()
	}
	return h
}

// plus is the histogram with more values.
func (h histogram) plus(more histogram) histogram {
	total := histogram{buckets: slices.Clone(h.buckets), sum: h.sum + more.sum}
	for i, b := range more.buckets {
		total.buckets[i].count += b.count
	}
	return total
}

const ms = time.Millisecond

// TestFsyncPercentileBetweenReads: a percentile is taken of what was counted between two reads.
func TestFsyncPercentileBetweenReads(t *testing.T) {
	history := counted(1e6, 8000*ms) // before the first read, the disk was slow
	after := func(n float64, durations ...time.Duration) histogram { return history.plus(counted(n, durations...)) }
	for name, tc := range map[string]struct {
		to         histogram
		least      time.Duration
		p99, bound time.Duration
		known      bool
	}{
		"no write":         {to: after(0, ms)},
		"99 writes":        {to: after(99, ms)},
		"59 s in 99":       {to: after(1, times(98, 600*ms, 1, 200*ms)...)},
		"61 s in 99":       {to: after(1, times(98, 600*ms, 1, 2200*ms)...), least: 2048 * ms, p99: 4096 * ms, bound: 4096 * ms, known: true},
		"60 s in 12":       {to: after(12, 5*time.Second), least: 4096 * ms, p99: 8192 * ms, bound: 8192 * ms, known: true},
		"55 s in 11":       {to: after(11, 5*time.Second)},
		"one of 60 s":      {to: after(1, time.Minute), least: 8192 * ms, p99: 8192 * ms, bound: 8192 * ms, known: true},
		"100 writes":       {to: after(100, ms), least: 0, p99: ms, bound: ms, known: true},
		"of a fast disk":   {to: after(1000, 3*ms), least: 2 * ms, p99: 4 * ms, bound: 4 * ms, known: true},
		"one in a hundred": {to: after(1, times(99, 3*ms, 1, 300*ms)...), least: 2 * ms, p99: 4 * ms, bound: 4 * ms, known: true},
		"two in a hundred": {to: after(10, times(98, 3*ms, 2, 300*ms)...), least: 256 * ms, p99: 512 * ms, bound: 512 * ms, known: true},
		"longer than all":  {to: after(100, 20*time.Second), least: 8192 * ms, p99: 8192 * ms, bound: 8192 * ms, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			p99, bound, known := percentile(history, tc.to)
			if known != tc.known || p99 < tc.least || p99 > tc.p99 || bound != tc.bound {
				t.Errorf("got %s in the bucket up to %s, %t, want between %s and %s, %s, %t", p99, bound, known, tc.least, tc.p99, tc.bound, tc.known)
			}
		})
	}
}

// times returns n durations a, and m durations b.
func times(n int, a time.Duration, m int, b time.Duration) (all []time.Duration) {
	for range n {
		all = append(all, a)
	}
	for range m {
		all = append(all, b)
	}
	return all
}

// TestFsyncVerdictImprovesBelowLimit: a verdict improves only clearly below its limit.
func TestFsyncVerdictImprovesBelowLimit(t *testing.T) {
	const ok, slow, very = leases.SpeedOK, leases.SpeedSlow, leases.SpeedVerySlow
	speed := leases.DiskSpeed("")
	for i, step := range []struct {
		p99  time.Duration
		want leases.DiskSpeed
	}{
		{ms, ok}, {99 * ms, ok}, {100 * ms, ok}, {101 * ms, slow}, {99 * ms, slow}, {51 * ms, slow}, {49 * ms, ok}, {90 * ms, ok},
		{501 * ms, very}, {499 * ms, very}, {251 * ms, very}, {249 * ms, slow}, {400 * ms, slow}, {501 * ms, very}, {60 * ms, slow}, {600 * ms, very}, {ms, ok},
	} {
		if speed = speedOf(speed, step.p99); speed != step.want {
			t.Fatalf("step %d, %s: %s, want %s", i, step.p99, speed, step.want)
		}
	}
}

// TestFsyncWindowForgetsOldAndRestart: a window forgets what is old and another process.
func TestFsyncWindowForgetsOldAndRestart(t *testing.T) {
	var w fsyncWindow
	at := time.Unix(1_800_000_000, 0)
	total := counted(0, ms)
	add := func(n float64, d time.Duration) leases.Fsync {
		total = total.plus(counted(n, d))
		at = at.Add(fsyncInterval)
		w.add(at, total)
		return w.last
	}
	if got := add(1000, 200*ms); got.Known() {
		t.Fatalf("after one read: %+v", got)
	}
	if got := add(1000, 200*ms); got != (leases.Fsync{Speed: leases.SpeedSlow, P99: 256 * ms}) {
		t.Fatalf("after two reads: %+v", got)
	}
	steps := int(fsyncOver / fsyncInterval)
	for i := range steps - 1 {
		if got := add(1, 3*ms); got.Speed != leases.SpeedSlow {
			t.Fatalf("after %d fast writes, the slow ones are still in the window: %+v", i+1, got)
		}
	}
	for range steps + 1 {
		add(100, 3*ms)
	}
	if got := w.last; got != (leases.Fsync{Speed: leases.SpeedOK, P99: 4 * ms}) || len(w.reads) > steps+1 {
		t.Fatalf("after the slow writes left the window: %+v of %d reads", got, len(w.reads))
	}
	for range steps + 1 {
		add(0, ms)
	}
	if w.last != (leases.Fsync{Speed: leases.SpeedOK}) {
		t.Errorf("an idle member keeps its verdict, without a measured time: %+v", w.last)
	}
	total = counted(0, ms)
	if got := add(500, 3*ms); got.Known() {
		t.Errorf("a new process of etcd counts from zero, and has no verdict before its second read: %+v", got)
	}
}

// TestFsyncDiskVerySlow: a disk too slow for a hundred writes is very slow.
// A fast disk that becomes so slow that etcd writes fewer than a hundred times in five minutes is not reported as fast.
func TestFsyncDiskVerySlow(t *testing.T) {
	var w fsyncWindow
	at := time.Unix(1_800_000_000, 0)
	total := counted(1000, 3*ms)
	w.add(at, total)
	read := func(more histogram) leases.Fsync {
		total, at = total.plus(more), at.Add(fsyncInterval)
		w.add(at, total)
		return w.last
	}
	fast := leases.Fsync{Speed: leases.SpeedOK, P99: 4 * ms}
	if got := read(counted(1000, 3*ms)); got != fast {
		t.Fatalf("a fast disk: %+v, want %+v", got, fast)
	}
	steps := int(fsyncOver / fsyncInterval)
	for range steps {
		read(counted(3, 5*time.Second)) // all of the time
	}
	slow := leases.Fsync{Speed: leases.SpeedVerySlow, P99: 8192 * ms}
	if got := read(counted(3, 5*time.Second)); got != slow {
		t.Fatalf("60 writes of 5 s: %+v, want %+v", got, slow)
	}
	for range steps - 2 {
		read(counted(0, ms))
	}
	if got := read(counted(10, 3*ms)); got != (leases.Fsync{Speed: leases.SpeedVerySlow}) {
		t.Errorf("after a few fast writes: %+v, want the earlier verdict without a time", got)
	}
	if got := read(counted(200, 3*ms)); got != fast {
		t.Errorf("after many fast writes: %+v, want %+v", got, fast)
	}
}

// TestFsyncFailedReadMakesVerdictOld: a read that fails makes the verdict old at once.
// After a failed read, the time is not known until the next one. What was counted in a long gap might be old.
func TestFsyncFailedReadMakesVerdictOld(t *testing.T) {
	var w fsyncWindow
	at := time.Unix(1_800_000_000, 0)
	total := counted(0, ms)
	read := func(later time.Duration) leases.Fsync {
		total, at = total.plus(counted(1000, 3*ms)), at.Add(later)
		w.add(at, total)
		return w.last
	}
	known, old := leases.Fsync{Speed: leases.SpeedOK, P99: 4 * ms}, leases.Fsync{Speed: leases.SpeedOK}
	read(0)
	if got := read(fsyncInterval); got != known {
		t.Fatalf("got %+v, want %+v", got, known)
	}
	if w.add(at.Add(fsyncInterval), histogram{}); w.last != old {
		t.Errorf("after a failed read: %+v, want %+v", w.last, old)
	}
	if got := read(maxGap); got != known {
		t.Errorf("after a gap of a minute: %+v, want %+v", got, known)
	}
	if got := read(maxGap + 1); got != old {
		t.Errorf("after a longer gap: %+v, want %+v", got, old)
	}
	if got := read(fsyncInterval); got != known {
		t.Errorf("after two reads in a row: %+v, want %+v", got, known)
	}
}

// metricsPage is what etcd serves, cut to what matters.
func metricsPage(h histogram) string {
	var page strings.Builder
	page.WriteString("# TYPE etcd_disk_backend_commit_duration_seconds histogram\netcd_disk_backend_commit_duration_seconds_bucket{le=\"0.001\"} 7\n" +
		"# TYPE etcd_disk_wal_fsync_duration_seconds histogram\n")
	for _, b := range h.buckets {
		bound := fmt.Sprint(b.bound)
		if math.IsInf(b.bound, 1) {
			bound = "+Inf"
		}
		fmt.Fprintf(&page, "%s_bucket{le=%q} %v\n", fsyncMetric, bound, b.count)
	}
	fmt.Fprintf(&page, "%s_sum %v\n%s_count %v\n", fsyncMetric, h.sum, fsyncMetric, h.buckets[len(h.buckets)-1].count)
	return page.String()
}

func TestTheAgentReadsWhatEtcdServes(t *testing.T) {
	var page atomic.Value
	var stopped atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := page.Load().(string)
		if text == "" || r.URL.Path != "/metrics" {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	var got leases.Fsync
	d := &disk{
		client: transport.Transport{}.HTTPClient(), url: server.URL + "/metrics", mayRun: func() bool { return !stopped.Load() },
		log: slog.New(slog.DiscardHandler), measured: func(f leases.Fsync) { got = f },
	}
	slow, old := leases.Fsync{Speed: leases.SpeedVerySlow, P99: 1024 * ms}, leases.Fsync{Speed: leases.SpeedVerySlow}
	slowest := leases.Fsync{Speed: leases.SpeedVerySlow, P99: 8192 * ms}
	for i, step := range []struct {
		page string
		last leases.Fsync
		now  leases.Fsync
	}{
		{metricsPage(counted(0, ms)), leases.Fsync{}, leases.Fsync{}},
		{metricsPage(counted(1000, 900*ms)), slow, slow},
		{"", old, leases.Fsync{}},
		{"# nothing of a disk\n", old, leases.Fsync{}},
		{fsyncMetric + `_bucket{le="0.001"} many` + "\n", old, leases.Fsync{}},
		{fsyncMetric + `_bucket{le="0.001"} 7` + "\n", old, leases.Fsync{}},
		{fsyncMetric + `_bucket{le="0.001"} 7` + "\n" + fsyncMetric + "_sum much\n", old, leases.Fsync{}},
		{metricsPage(counted(2000, 900*ms)), slow, slow},
		{metricsPage(counted(1, 900*ms)), leases.Fsync{}, leases.Fsync{}},
		{metricsPage(counted(1, 900*ms).plus(counted(12, 5*time.Second))), slowest, slowest},
	} {
		page.Store(step.page)
		d.measure(t.Context())
		if got != step.last || d.now() != step.now {
			t.Errorf("step %d: reported %+v, now %+v, want %+v and %+v", i, got, d.now(), step.last, step.now)
		}
	}
	stopped.Store(true)
	page.Store(metricsPage(counted(2000, ms)))
	d.measure(t.Context())
	if got != (leases.Fsync{Speed: leases.SpeedVerySlow}) || d.now().Known() {
		t.Errorf("read although etcd does not run: %+v", got)
	}
}
