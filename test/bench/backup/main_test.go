// Package backup measures backups where the limits are measured too: on one machine, in one run, with a real etcd and a
// real S3 server on loopback. What is measured runs in a process of its own, so that its CPU, memory and bytes are its
// own. It judges nothing, and needs no rig; docs/explanation/benchmarks.md says what the figures mean.
package backup

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/bucket"
)

var (
	keys     = flag.Int("backup.keys", 1_000_000, "keys of 1 KiB in the database; half as many events follow")
	rate     = flag.Int("backup.rate", 5_000, "writes per second while deltas are recorded")
	idle     = flag.Duration("backup.idle", 5*time.Minute, "how long an agent with nothing to save is watched")
	profiles = flag.String("backup.profiles", "", "an existing directory for CPU and heap profiles of what is measured")
)

// minor of the etcd that is backed up: the product's default.
const minor = "3.6"

var lines results

func TestMain(m *testing.M) {
	flag.Parse()
	if task := os.Getenv(taskVariable); task != "" {
		os.Exit(child(task))
	}
	// This process looks into the bucket as those that it starts do.
	if err := errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", bucket.AccessKey), os.Setenv("AWS_SECRET_ACCESS_KEY", bucket.SecretKey)); err != nil {
		fmt.Fprintln(os.Stderr, "backup bench:", err)
		os.Exit(1)
	}
	// The result is all there is on stdout.
	out := os.Stdout
	os.Stdout = os.Stderr
	code := bucket.Main(m)
	for _, l := range lines {
		fmt.Fprintln(out, l.median())
	}
	os.Exit(code)
}

func BenchmarkFull(b *testing.B)    { repeat(b, measureFull) }
func BenchmarkDelta(b *testing.B)   { repeat(b, measureDelta) }
func BenchmarkRestore(b *testing.B) { repeat(b, measureRestore) }

func BenchmarkIdle(b *testing.B) { repeat(b, measureIdle) }

func repeat(b *testing.B, measure func(testing.TB, size) *line) {
	b.Helper()
	for range b.N {
		l := measure(b, size{keys: *keys, rate: *rate})
		b.Log(l)
		lines.add(l)
	}
	b.ReportMetric(0, "ns/op") // what it was is in the line
}

// The measurements themselves must not rot: each runs once with little data, and has to find what it stored. That of an idle
// agent has no data, and takes minutes.
func TestMeasurementsRunWithLittleData(t *testing.T) {
	for name, measure := range map[string]func(testing.TB, size) *line{
		"full": measureFull, "delta": measureDelta, "restore": measureRestore,
	} {
		t.Run(name, func(t *testing.T) {
			l := measure(t, size{keys: 2_000, rate: 2_000})
			if l.name != name || !slices.ContainsFunc(l.fields, func(f field) bool { return f.key == "cpu_s" || f.key == "cpu_us_per_event" }) {
				t.Errorf("the line is %q", l)
			}
			t.Log(l)
		})
	}
}
