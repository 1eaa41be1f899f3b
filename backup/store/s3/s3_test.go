package s3

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

func TestMain(m *testing.M) { os.Exit(bucket.Main(m)) }

// minPart is the smallest part that S3 accepts, except for the last one.
const minPart = 5 << 20

// quick has small pages and short waits. Its stall is still long enough for a busy machine; tests that wait for a
// stall reduce it.
var quick = tuning{attempts: 6, backoff: 20 * time.Millisecond, stall: time.Minute, inFlight: time.Minute, release: time.Minute, part: minPart,
	page: 5, connections: 4}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	for name, c := range map[string]struct {
		versioned bool
		change    func(*store.S3)
	}{
		"plain":                            {change: func(c *store.S3) { c.Prefix = "some/prefix" }},
		"versioned, checksums as required": {versioned: true, change: func(c *store.S3) { c.Checksum = store.ChecksumWhenRequired }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := server.Make(t, "conformance-"+strings.Fields(strings.ReplaceAll(name, ",", ""))[0], c.versioned)
			config := configOf(t, server.Endpoint, in)
			c.change(&config)
			storetest.Run(t, storetest.Subject{
				Part:      minPart,
				Open:      func(t *testing.T) store.Store { return opened(t, config, quick) },
				Leftovers: func(t *testing.T) int { return server.Uploads(t, in) },
				Abandon:   func(t *testing.T, key string) { abandon(t, server, in, *opened(t, config, quick).name(key)) },
			})
		})
	}
}

func abandon(t *testing.T, server *bucket.Server, in, name string) {
	t.Helper()
	upload := &s3.CreateMultipartUploadInput{Bucket: aws.String(in), Key: aws.String(name)}
	if _, err := server.Client().CreateMultipartUpload(t.Context(), upload); err != nil {
		t.Fatal(err)
	}
}

// configOf returns a bucket behind an endpoint, with the credentials of the administrator in a directory.
func configOf(t testing.TB, endpoint, in string) store.S3 {
	t.Helper()
	dir := t.TempDir()
	writeCredentials(t, dir, bucket.AccessKey, bucket.SecretKey)
	return store.S3{Bucket: in, Region: bucket.Region, Endpoint: endpoint, PathStyle: true, CredentialsDir: dir}
}

func writeCredentials(t testing.TB, dir, access, secret string) {
	t.Helper()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "accessKeyID"), []byte(access), 0o600),
		os.WriteFile(filepath.Join(dir, "secretAccessKey"), []byte(secret+"\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, c store.S3, tune tuning) *Store {
	t.Helper()
	s, err := open(t.Context(), c, tune)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Google Cloud Storage changes Accept-Encoding before it verifies the signature. The proxy here does the same in front
// of a server that verifies signatures. It also rejects the first request of each operation, so that retries are
// signed too.
func TestAcceptEncodingChangeSurvived(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	for _, checksum := range []store.Checksum{store.ChecksumWhenSupported, store.ChecksumWhenRequired} {
		proxy := server.Before(t)
		name := "accept-encoding-" + strings.ToLower(string(checksum))
		config := configOf(t, proxy.Endpoint, server.Make(t, name, false))
		config.Checksum = checksum
		s := opened(t, config, quick)
		seen := map[string]bool{}
		proxy.Break(func(op string, r *http.Request) bucket.Fault {
			if by := r.Header.Get("Authorization"); !strings.HasPrefix(by, "AWS4-HMAC-SHA256 ") || strings.Contains(by, "accept-encoding") {
				t.Errorf("%s is signed as %q, want a signature without accept-encoding", op, by)
			}
			if got := r.Header.Values("Accept-Encoding"); len(got) != 1 || got[0] != "identity" {
				t.Errorf("%s accepts the encodings %q, want identity, for a range is one of the object's own bytes", op, got)
			}
			r.Header.Set("Accept-Encoding", "identity,gzip(gfe)")
			if !seen[op] {
				seen[op] = true
				return bucket.Answer(http.StatusServiceUnavailable, "SlowDown")
			}
			return nil
		})
		for key, size := range map[string]int64{"small": small, "large": large} {
			if _, err := s.Put(t.Context(), key, storetest.Content(key, size), store.PutOptions{IfAbsent: true}); err != nil {
				t.Errorf("put %s: %v", key, err)
				continue
			}
			same(t, s, key, key, size)
		}
		for o, err := range s.List(t.Context(), "") {
			if err != nil {
				t.Errorf("list: %+v, %v", o, err)
			}
		}
		if err := s.Delete(t.Context(), "small"); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
}

// TestPutMemoryIndependentOfSize: the memory of a put does not grow with the object.
// All allocations of a Put, and not only its peak, are two parts, the growth of the first, and the cost of requests.
// With the size of the object, only the last one grows.
func TestPutMemoryIndependentOfSize(t *testing.T) {
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

// Content in memory is sent without a copy, if it is read from its beginning. Otherwise it is read like any other
// content.
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

// BenchmarkPut256MiB reports the peak of the heap while 256 MiB are streamed.
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

// watched measures the heap after each megabyte that is read.
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
