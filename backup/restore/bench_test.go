package restore

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/test/machine"
)

var (
	benchKeys   = flag.Int("keys", 50_000, "keys of 1 KiB in the full of the benchmarks")
	benchBump   = flag.Int64("bump", 0, "what the benchmarks add to the revision; above 0 only what is alive is written")
	benchEvents = flag.Int("events", 100_000, "events in the deltas of the benchmarks, a fifth of them deletions")
)

// eventsPerDelta is what a busy cluster writes in ten seconds.
const eventsPerDelta = 10_000

// BenchmarkRestore restores a full backup and delta backups from a directory, end to end, and appends the same records
// to an empty bbolt for comparison. CPU, memory and bytes written are those of this process.
func BenchmarkRestore(b *testing.B) {
	s := newSource(b, newest, 1)
	fillFast(b, s.m.Client, *benchKeys)
	full := s.full()
	s.forget()
	p := catalog.Plan{Full: s.named(full.Key)}
	all := make([]delta.Record, 0, *benchEvents)
	for revision := full.Revision + 1; len(all) < *benchEvents; revision += eventsPerDelta {
		records := invented(revision, min(eventsPerDelta, *benchEvents-len(all)))
		d := s.deltaOf(records, delta.Digest{})
		p.Deltas, p.Reach = append(p.Deltas, d), d.To
		all = append(all, records...)
	}
	limit := appendRaw(b, all)
	clear(all) // their memory is not the restore's
	b.ResetTimer()
	for b.Loop() {
		g := newTarget(b)
		cfg := g.config(s, p, newest)
		cfg.Bump = *benchBump
		var anonymous int64
		marks := map[Phase]time.Time{}
		cfg.Progress = func(p Progress) {
			anonymous = max(anonymous, status(b, "/proc/self/status", "RssAnon")<<10)
			if marks[p.Phase].IsZero() || p.Phase == Fetching {
				marks[p.Phase] = time.Now()
			}
		}
		debug.FreeOSMemory() // of what was made for the benchmark
		begun, cpu, written := time.Now(), machine.CPU(), status(b, "/proc/self/io", "wchar")
		got, err := Run(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		wall, applying := time.Since(begun), marks[Finishing].Sub(marks[Fetching]).Seconds()
		rate := float64(got.Events) / applying
		used := (machine.CPU() - cpu).Seconds()
		b.ReportMetric(used, "cpu-s")
		b.ReportMetric(rate, "events/s")
		b.ReportMetric(limit/rate, "x-bbolt-limit")
		b.ReportMetric(float64(anonymous)/(1<<20), "anon-MiB")
		b.ReportMetric(float64(status(b, "/proc/self/io", "wchar")-written)/float64(got.Size), "written/db")
		b.Logf("restore wall=%.2fs cpu=%.2fs events=%d events/s=%.0f bbolt-limit/s=%.0f anon-MiB=%d full-MiB=%d db-MiB=%d", wall.Seconds(),
			used, got.Events, rate, limit, anonymous>>20, full.Size>>20, got.Size>>20)
		_ = os.RemoveAll(g.dir)
	}
}

// forget drops what the watch reported, once it has reported all of it.
func (s *source) forget() {
	s.revision()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = nil
}

// appendRaw returns how many of these records per second bbolt writes when it does nothing else.
func appendRaw(b *testing.B, records []delta.Record) float64 {
	b.Helper()
	path := filepath.Join(b.TempDir(), "raw")
	db, err := openDatabase(path, 1<<30, 0)
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	for len(records) > 0 {
		n := min(transaction/1100, len(records))
		err := db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("key"))
			if err != nil {
				return err
			}
			bucket.FillPercent = fill
			for _, r := range records[:n] {
				if err := bucket.Put(r.Key, r.Value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		records = records[n:]
	}
	if _, err := finish(db); err != nil {
		b.Fatal(err)
	}
	_ = os.Remove(path)
	return float64(*benchEvents) / time.Since(begun).Seconds()
}

// invented returns the records of n revisions from from on. Half of the values compress like a Pod, the others not at
// all.
func invented(from int64, n int) []delta.Record {
	random := rand.New(rand.NewPCG(uint64(from), 7))
	records := make([]delta.Record, 0, n)
	for i := range int64(n) {
		revision, deletes := from+i, i%5 == 4
		kv := &mvccpb.KeyValue{Key: []byte(benchKey(random.IntN(max(*benchKeys, 1))))}
		if !deletes {
			kv.CreateRevision, kv.ModRevision, kv.Version, kv.Value = revision, revision, 1, benchValue(random)
		}
		value, _ := proto.Marshal(kv)
		records = append(records, delta.Record{
			Key: delta.AppendKey(nil, revision, 0, deletes), Value: value, Revision: revision, At: time.UnixMilli(revision),
		})
	}
	return records
}

func benchKey(i int) string { return fmt.Sprintf("/registry/pods/namespace-%03d/pod-%07d", i%100, i) }

func benchValue(random *rand.Rand) []byte {
	value := make([]byte, 0, 1024)
	if random.IntN(2) == 0 {
		for len(value) < 1024 {
			value = binary.BigEndian.AppendUint64(value, random.Uint64())
		}
		return value
	}
	for len(value) < 1000 {
		value = fmt.Appendf(value, `{"kind":"Pod","name":"pod-%d","uid":"%x","phase":"Running","ip":"10.0.%d.%d"},`,
			random.IntN(1e6), random.Uint64(), random.IntN(256), random.IntN(256))
	}
	return value[:1000]
}

func fillFast(b *testing.B, c *clientv3.Client, n int) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 7))
	for i := 0; i < n; {
		var ops []clientv3.Op
		for ; len(ops) < 100 && i < n; i++ {
			ops = append(ops, clientv3.OpPut(benchKey(i), string(benchValue(random))))
		}
		if _, err := c.Do(b.Context(), clientv3.OpTxn(nil, ops, nil)); err != nil {
			b.Fatal(err)
		}
	}
}

// status reads one number of a file in /proc.
func status(b *testing.B, file, field string) int64 {
	b.Helper()
	n, err := machine.Number(file, field)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
