package s3

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

// What a Put allocates in all, and not only at its peak, is two parts, the growth of the first, and what requests cost:
// it does not grow with the object by more than the latter.
func TestTheMemoryOfAPutDoesNotGrowWithTheObject(t *testing.T) {
	server := bucket.Start(t)
	s := opened(t, configOf(t, server.Endpoint, server.Make(t, "memory", false)), defaults)
	allocated := func(key string, size int64) uint64 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := s.Put(t.Context(), key, storetest.Content(key, size), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if got, limit := allocated("delta", 10_000), uint64(1<<20); got > limit {
		t.Errorf("a put of 10 kB allocated %d bytes, want at most %d", got, limit)
	}
	const parts = 8
	if got, limit := allocated("full", parts*store.PartSize), uint64(4*store.PartSize+parts<<20); got > limit {
		t.Errorf("a put of %d parts allocated %d bytes, want at most %d", parts, got, limit)
	}
	same(t, s, "full", "full", parts*store.PartSize)
}

// What lies in memory is sent from there, and from its beginning, else it is read as any other.
func TestWhatLiesInMemoryIsNotCopied(t *testing.T) {
	server := bucket.Start(t)
	s := opened(t, configOf(t, server.Endpoint, server.Make(t, "resident", false)), defaults)
	for key, size := range map[string]int64{"delta": store.PartSize - 1, "large": store.PartSize, "empty": 0} {
		content, err := io.ReadAll(storetest.Content(key, size))
		if err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(content)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o, err := s.Put(t.Context(), key, r, store.PutOptions{})
		if err != nil || o.Size != size {
			t.Fatalf("put of %d bytes: %d, %v", size, o.Size, err)
		}
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20); size < store.PartSize && got > limit {
			t.Errorf("a put of %d bytes allocated %d, want at most %d", size, got, limit)
		}
		same(t, s, key, key, size)
	}
	r := bytes.NewReader([]byte("not this, this"))
	if _, err := r.Seek(10, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if o, err := s.Put(t.Context(), "rest", r, store.PutOptions{}); err != nil || o.Size != 4 {
		t.Errorf("put of what is left: %d bytes, %v, want 4", o.Size, err)
	}
}

// BenchmarkPut256MiB reports what the heap holds at its peak while 256 MiB stream through it.
func BenchmarkPut256MiB(b *testing.B) {
	const size = 256 << 20
	server := bucket.Start(b)
	s, err := open(b.Context(), configOf(b, server.Endpoint, server.Make(b, "benchmark", false)), defaults)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	var peak, system uint64
	for b.Loop() {
		r := &watched{Reader: storetest.Content("b", size)}
		if _, err := s.Put(b.Context(), "b", r, store.PutOptions{}); err != nil {
			b.Fatal(err)
		}
		peak, system = max(peak, r.peak), max(system, r.system)
	}
	b.ReportMetric(float64(peak)/(1<<20), "peak-heap-MiB")
	b.ReportMetric(float64(system)/(1<<20), "from-system-MiB")
}

// watched looks at the heap each time that a megabyte was read.
type watched struct {
	io.Reader
	read, looked, peak, system uint64
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if w.read += uint64(n); w.read-w.looked >= 1<<20 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.looked, w.peak, w.system = w.read, max(w.peak, m.HeapAlloc), max(w.system, m.Sys-m.HeapReleased)
	}
	return n, err
}
