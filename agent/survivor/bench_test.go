package survivor

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/test/member"
)

// fill writes so many MiB of values of 1 KiB.
func fill(tb testing.TB, c *clientv3.Client, mib int) {
	tb.Helper()
	const perTxn, writers = 64, 4
	value := strings.Repeat("v", 1<<10)
	var group errgroup.Group
	for w := range writers {
		group.Go(func() error {
			for n := 0; n < mib<<10/writers; n += perTxn {
				ops := make([]clientv3.Op, perTxn)
				for i := range ops {
					ops[i] = clientv3.OpPut(fmt.Sprintf("key-%d-%08d", w, n+i), value)
				}
				if _, err := c.Txn(tb.Context()).Then(ops...).Commit(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		tb.Fatal(err)
	}
}

// peak returns the most bytes of objects on the heap while work runs, above what was there before.
func peak(work func()) int64 {
	read := func() int64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	runtime.GC()
	before, most, done := read(), int64(0), make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for tick := time.Tick(5 * time.Millisecond); ; {
			select {
			case <-tick:
				most = max(most, read()-before)
			case <-done:
				return
			}
		}
	}()
	work()
	close(done)
	<-finished
	return most
}

// filled is a volume with a database of so many MiB, and half as much in the tail of the log.
func filled(tb testing.TB, mib int) string {
	tb.Helper()
	m := member.Start(tb, "3.7", member.Options{Token: "t", Args: []string{
		"--quota-backend-bytes=8589934592", "--backend-batch-interval=1h", fmt.Sprint("--backend-batch-limit=", mib<<10*2/3),
	}})
	fill(tb, m.Client, mib)
	m.Kill(tb)
	return volumeOf(m)
}

// The agent has 200 MiB for a database of 400 MiB. Most of it is etcd's index of the keys.
func BenchmarkRun(b *testing.B) {
	const mib = 400
	volume := filled(b, mib)
	b.ResetTimer()
	for range b.N {
		var result Result
		var err error
		heap := peak(func() {
			result, err = Run(b.Context(), Config{
				Volume: volume, EtcdVersion: "3.7", Name: member.Name, PeerURL: "http://127.0.0.1:1", Token: fmt.Sprint(b.N), MinLeaseTTL: 2,
			})
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(heap>>20), "heap-MiB")
		b.ReportMetric(float64(result.Applied), "entries")
		b.ReportMetric(float64(result.Size>>20), "MiB")
	}
}

// Values are not kept in memory: with few keys, the memory does not grow with the database or with the log.
func TestMemoryDoesNotGrowWithTheValues(t *testing.T) {
	m := member.Start(t, "3.7", member.Options{Token: "t", Args: lazy})
	value := strings.Repeat("v", 1<<20)
	for i := range 96 {
		if _, err := m.Client.Put(t.Context(), fmt.Sprint(i%8), value); err != nil {
			t.Fatal(err)
		}
	}
	m.Kill(t)
	c := config(t, m, "3.7")
	var result Result
	var err error
	heap := peak(func() { result, err = Run(t.Context(), c) })
	if err != nil || result.Applied < 96 {
		t.Fatalf("%+v, %v; want all writes in the tail", result, err)
	}
	if heap > 48<<20 {
		t.Errorf("%d MiB on the heap for a log of 96 MiB, want at most 48", heap>>20)
	}
	if r, err := datadir.Inspect(t.Context(), c.Volume, datadir.Options{}); err != nil || r.State != datadir.Intact {
		t.Errorf("%v, %v: the data of the survivor changed", r, err)
	}
}
