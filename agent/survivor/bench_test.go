package survivor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/test/machine"
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
				_, err := c.Txn(tb.Context()).Then(ops...).Commit()
				for tries := 0; err != nil && tries < 10; tries++ { // a busy etcd times out; the puts can be repeated
					_, err = c.Txn(tb.Context()).Then(ops...).Commit()
				}
				if err != nil {
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

// peak returns the most bytes of objects on the heap while work runs, above what was there before. It calls each look as often as
// it reads that.
func peak(work func(), looks ...func()) int64 {
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
				for _, look := range looks {
					look()
				}
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

// taskVariable of the environment names a volume. This program then applies its log and prints what it used.
const taskVariable = "DRUID_SURVIVOR_VOLUME"

func TestMain(m *testing.M) {
	if volume := os.Getenv(taskVariable); volume != "" {
		if err := perform(volume); err != nil {
			fmt.Fprintln(os.Stderr, "apply:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// usage is what a process used that applied one log. Sizes are in bytes.
type usage struct {
	// Heap is the most bytes of objects on the heap. Anonymous is the most memory that no file has.
	Heap, Anonymous int64
	Applied         uint64
	Size            int64
	CPU             float64
}

// perform applies the log of a volume and prints its usage.
func perform(volume string) error {
	c := Config{EtcdVersion: "3.7", Name: member.Name, PeerURL: "http://127.0.0.1:1", Token: "recovered", MinLeaseTTL: 2, Volume: volume}
	debug.SetGCPercent(50) // as the agent (agent/cli.GCPercent)
	var u usage
	var result Result
	var err, unread error
	u.Heap = peak(func() { result, err = Run(context.Background(), c) }, func() {
		anonymous, err := machine.Anonymous()
		unread = cmp.Or(unread, err)
		u.Anonymous = max(u.Anonymous, anonymous)
	})
	if err := cmp.Or(err, unread); err != nil {
		return err
	}
	u.Applied, u.Size, u.CPU = result.Applied, result.Size, machine.CPU().Seconds()
	return json.NewEncoder(os.Stdout).Encode(u)
}

// inProcess applies a log in a process of its own, so that its memory is its own.
func inProcess(tb testing.TB, volume string) (u usage) {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), program)
	cmd.Env, cmd.Stderr = append(os.Environ(), taskVariable+"="+volume), tb.Output()
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &u)
	}
	if err != nil {
		tb.Fatalf("apply a log in its own process: %v", err)
	}
	return u
}

// The agent has 200 MiB for a database of 400 MiB. One run on 2 cores had 126 MiB.
func BenchmarkRun(b *testing.B) {
	const mib = 400
	volume := filled(b, mib)
	b.ResetTimer()
	for range b.N {
		u := inProcess(b, volume)
		b.ReportMetric(float64(u.Heap>>20), "heap-MiB")
		b.ReportMetric(float64(u.Anonymous>>20), "anonymous-MiB")
		b.ReportMetric(u.CPU, "cpu-s")
		b.ReportMetric(float64(u.Applied), "entries")
		b.ReportMetric(float64(u.Size>>20), "MiB")
	}
}

// maxSmall is the most memory on the heap for a database of 64 MiB. Two runs on 2 cores had 34 MiB: etcd's index of 65
// 536 keys, the entries of a transaction, which are at most uncommitted, the pages that bbolt changed for them, and
// garbage. The collector lets garbage grow to half of what is in use. The pages of the file itself are in the page
// cache. With the complete tail in memory, which has 21 MiB, it was 66 MiB. The bound is between the two.
const maxSmall = 48 << 20

func TestMemoryOfASmallDatabase(t *testing.T) {
	u := inProcess(t, filled(t, 64))
	if t.Logf("%+v", u); u.Applied < 100 || u.Size < 64<<20 {
		t.Errorf("%+v, want a database of 64 MiB and a log", u)
	}
	if u.Heap > maxSmall {
		t.Errorf("%d MiB on the heap for a database of 64 MiB, want at most %d", u.Heap>>20, maxSmall>>20)
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
	if heap > maxSmall {
		t.Errorf("%d MiB on the heap for a log of 96 MiB, want at most %d", heap>>20, maxSmall>>20)
	}
	if r, err := datadir.Inspect(t.Context(), c.Volume, datadir.Options{}); err != nil || r.State != datadir.Intact {
		t.Errorf("%v, %v: the data of the survivor changed", r, err)
	}
}
