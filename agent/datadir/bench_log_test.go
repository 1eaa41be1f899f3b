package datadir

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	etcdlayout "go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/test/machine"
)

var logMiB = flag.String("log", "64,512", "sizes of the logs that BenchmarkInspectLog looks at, in MiB")

// reader is one program that reads the complete log at a start.
type reader struct {
	name string
	read func(dir string, start *walpb.Snapshot) error
}

// readers are the agent's inspection, and what etcd has: Verify, which etcdutl runs before it restores, and ReadAll, which
// etcd runs at each start. ReadAll keeps all entries in memory.
func readers(b *testing.B) []reader {
	b.Helper()
	return []reader{
		{"inspect", func(dir string, _ *walpb.Snapshot) error {
			r, err := Inspect(b.Context(), dir, Options{})
			if err == nil && r.State != Intact {
				err = fmt.Errorf("%v: %s", r, r.Detail)
			}
			return err
		}},
		{"verify", func(dir string, start *walpb.Snapshot) error {
			_, err := wal.Verify(zap.NewNop(), walDir(dir), start)
			return err
		}},
		{"readall", func(dir string, start *walpb.Snapshot) error {
			w, err := wal.OpenForRead(zap.NewNop(), walDir(dir), start)
			if err != nil {
				return err
			}
			defer w.Close() // only read
			_, _, _, err = w.ReadAll()
			return err
		}},
	}
}

func walDir(dir string) string { return etcdlayout.ToWALDir(volume.DataPath(dir)) }

// BenchmarkInspectLog reads logs of several sizes, with entries of 1 KiB, by turns with the agent's inspection and with
// etcd's own readers. The page cache has the log. It reports the medians of the CPU time and of the time, and the load of the machine.
func BenchmarkInspectLog(b *testing.B) {
	for size := range strings.SplitSeq(*logMiB, ",") {
		mib, err := strconv.Atoi(size)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(size+"MiB", func(b *testing.B) {
			dir := b.TempDir()
			if err := os.CopyFS(dir, os.DirFS(servedVolume(b))); err != nil {
				b.Fatal(err)
			}
			start := fillLog(b, dir, mib)
			cpu, wall := map[string][]float64{}, map[string][]float64{}
			for b.Loop() {
				for _, r := range readers(b) {
					begun, used := time.Now(), machine.CPU()
					if err := r.read(dir, start); err != nil {
						b.Fatalf("%s: %v", r.name, err)
					}
					wall[r.name] = append(wall[r.name], time.Since(begun).Seconds())
					cpu[r.name] = append(cpu[r.name], (machine.CPU() - used).Seconds())
				}
			}
			for name := range cpu {
				b.ReportMetric(median(cpu[name]), name+"-cpu-s")
				b.ReportMetric(median(wall[name]), name+"-s")
			}
			b.ReportMetric(median(cpu["inspect"])/median(cpu["verify"]), "cpu/verify")
			b.ReportMetric(load(b), "load")
			b.ReportMetric(0, "ns/op") // the sum of all three
		})
	}
}

// fillLog appends entries to the log of a volume, as its etcd would, until the log has so many MiB. It returns the newest
// snapshot in the log.
func fillLog(b *testing.B, dir string, mib int) *walpb.Snapshot {
	b.Helper()
	segment := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 64 << 20 // etcd's own, which TestMain made smaller
	defer func() { wal.SegmentSizeBytes = segment }()
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), walDir(dir))
	if err != nil {
		b.Fatal(err)
	}
	start := snapshots[len(snapshots)-1]
	w, err := wal.Open(zap.NewNop(), walDir(dir), start)
	if err != nil {
		b.Fatal(err)
	}
	w.SetUnsafeNoFsync()
	_, state, entries, err := w.ReadAll()
	if err != nil {
		b.Fatal(err)
	}
	index, term := start.GetIndex(), state.GetTerm()
	if len(entries) > 0 {
		index = entries[len(entries)-1].GetIndex()
	}
	const perSave = 64
	for written := 0; written < mib<<10; written += perSave {
		batch := make([]*raftpb.Entry, perSave)
		for i := range batch {
			index++
			at := index
			batch[i] = &raftpb.Entry{Term: &term, Index: &at, Data: make([]byte, 1<<10)}
		}
		if err := w.Save(state, batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return start
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// load is what else ran on the machine: the load average of the last minute.
func load(b *testing.B) (load float64) {
	b.Helper()
	content, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(content), &load)
	}
	if err != nil {
		b.Fatal(err)
	}
	return load
}
