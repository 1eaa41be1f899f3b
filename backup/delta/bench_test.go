package delta

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcd-druid/druid/test/machine"
)

// BenchmarkDelta writes and reads delta backups of changes in the mix that the figures of other tools use. Of five
// changes, four are puts of 1 KiB, one half of which is random letters and digits and the other half like a Pod, and
// one is a deletion. It reports CPU time and size per event, and the size of the random half alone, below which no
// compression gets.
func BenchmarkDelta(b *testing.B) {
	const perDelta = 20_000
	changes := likePods(perDelta)
	b.Run("write", func(b *testing.B) {
		var events, size int64
		begin := machine.CPU()
		for b.Loop() {
			s := encode(b, changes)
			events, size = events+perDelta, size+s.Size
		}
		report(b, machine.CPU()-begin, events)
		b.ReportMetric(float64(size)/float64(events), "B/event")
		b.ReportMetric(0.8*0.5*1024*math.Log2(62)/8, "floor-B/event")
	})
	b.Run("read", func(b *testing.B) {
		s := encode(b, changes)
		var events int64
		begin := machine.CPU()
		for b.Loop() {
			r, err := NewReader(s.Reader(), Expected{})
			if err != nil {
				b.Fatal(err)
			}
			for {
				batch, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					b.Fatal(err)
				}
				events += int64(len(batch))
			}
			r.Close()
		}
		report(b, machine.CPU()-begin, events)
	})
}

func encode(b *testing.B, changes []change) *FinishedDelta {
	b.Helper()
	w, err := NewWriter(Header{Lineage: lineage})
	if err != nil {
		b.Fatal(err)
	}
	var scratch []byte
	for _, c := range changes {
		key := AppendKey(scratch[:0], c.Kv.ModRevision, c.sub, c.Type == mvccpb.Event_DELETE)
		record := appendValue(key, c.Event)
		scratch = record[:0]
		if err := w.Append(key, record[len(key):], start); err != nil {
			b.Fatal(err)
		}
	}
	s, err := w.Finish(start, Leases{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func likePods(n int) []change {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	random := rand.New(rand.NewPCG(1, 2))
	changes := make([]change, 0, n)
	for i := range n {
		key := fmt.Appendf(nil, "/registry/pods/namespace-%d/pod-%08d", random.IntN(50), random.IntN(1_000_000))
		revision := int64(firstRevision + i)
		e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: key, ModRevision: revision}}
		if i%5 == 4 {
			e.Type = mvccpb.Event_DELETE
		} else {
			value := fmt.Appendf(make([]byte, 0, 1024), `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%08d","uid":"%016x"},`, i, random.Uint64())
			for len(value) < 512 {
				value = append(value, `"spec":{"containers":[{"name":"main","image":"registry.example.org/app:v1","resources":{"requests":{"cpu":"100m"}}}]},`...)
			}
			for value = value[:512]; len(value) < 1024; {
				value = append(value, letters[random.IntN(len(letters))])
			}
			e.Kv.Value, e.Kv.CreateRevision, e.Kv.Version = value, revision, 1
		}
		changes = append(changes, change{Event: e})
	}
	return changes
}

func report(b *testing.B, used time.Duration, events int64) {
	b.Helper()
	b.ReportMetric(float64(used.Nanoseconds())/1000/float64(events), "cpu-us/event")
}
