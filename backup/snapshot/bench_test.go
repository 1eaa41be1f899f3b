package snapshot

import (
	"errors"
	"flag"
	"io"
	"runtime/debug"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

var benchKeys = flag.Int("keys", 50_000, "keys of 1 KiB in the database of the benchmark")

// BenchmarkFull takes a full backup into a directory. It also measures, in the same run, the stream alone, and the
// upload with only a compressor. CPU and memory are those of this process, without etcd.
func BenchmarkFull(b *testing.B) {
	m := member.Start(b, member.Minors[len(member.Minors)-1], member.Options{})
	fill(b, m.Client, *benchKeys, 1024)
	alone := func(into func(io.Reader) error) time.Duration {
		begun := time.Now()
		stream, err := m.Client.SnapshotWithVersion(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(into(stream.Snapshot), stream.Snapshot.Close()); err != nil {
			b.Fatal(err)
		}
		return time.Since(begun)
	}
	streamed := alone(func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err })
	compressed := alone(func(r io.Reader) error {
		w, err := zstd.NewWriter(io.Discard, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		return errors.Join(err, w.Close())
	})
	for b.Loop() {
		debug.FreeOSMemory()
		s := directory(b)
		cfg := configOf(m, s)
		var anonymous int64
		cfg.Progress = func(int64) {
			now, err := machine.Anonymous()
			if err != nil {
				b.Error(err)
			}
			anonymous = max(anonymous, now)
		}
		begun, cpu := time.Now(), machine.CPU()
		got, err := Take(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(got.Size)
		used := (machine.CPU() - cpu).Seconds()
		b.ReportMetric(used, "cpu-s")
		b.ReportMetric(float64(anonymous)/(1<<20), "anon-MiB")
		b.ReportMetric(time.Since(begun).Seconds()/streamed.Seconds(), "x-stream")
		b.Logf("full wall=%.2fs cpu=%.2fs anon-MiB=%d db-MiB=%d object-MiB=%d stream-alone=%.2fs stream-and-zstd=%.2fs", time.Since(begun).Seconds(),
			used, anonymous>>20, got.Size>>20, got.ObjectSize>>20, streamed.Seconds(), compressed.Seconds())
		if err := s.Delete(b.Context(), got.Key); err != nil {
			b.Fatal(err)
		}
	}
}
