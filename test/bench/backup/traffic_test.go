package backup

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// size of a measurement.
type size struct {
	keys int
	rate int
}

// events that follow on the database: of five, four put a key again and one deletes another.
func (s size) events() int { return s.keys / 2 }

const (
	valueSize = 1024
	letters   = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	// letterBits is log2(62): what no compression gets below for each random letter.
	letterBits = 5.954
)

// floorPerEvent is how many bytes of an event, on average, are random and stay.
const floorPerEvent = 0.8 * 0.5 * valueSize * letterBits / 8

func keyOf(i int) string { return fmt.Sprintf("/registry/pods/namespace-%d/pod-%08d", i%50, i) }

// values makes the values of a generation of keys; the same ones each time.
type values struct {
	source *rand.ChaCha8
	raw    [valueSize]byte
}

// of is random letters and digits for every other key, and much like a Pod for the others.
func (v *values) of(i, generation int) string {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], uint64(i))
	binary.BigEndian.PutUint64(seed[8:], uint64(generation))
	if v.source == nil {
		v.source = rand.NewChaCha8(seed)
	}
	v.source.Seed(seed)
	if i%2 == 1 {
		_, _ = v.source.Read(v.raw[:]) // it never fails
		for j, b := range v.raw {
			v.raw[j] = letters[int(b)%len(letters)]
		}
		return string(v.raw[:])
	}
	pod := fmt.Appendf(v.raw[:0], `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%08d","namespace":"namespace-%d","uid":"%016x",`+
		`"generation":%d,"labels":{"app":"app-%d"}},"spec":{"nodeName":"node-%d","containers":[`,
		i, i%50, v.source.Uint64(), generation, i%200, v.source.Uint64()%1000)
	for len(pod) < valueSize {
		pod = append(pod, `{"name":"main","image":"registry.example.org/app:v1","resources":{"requests":{"cpu":"100m","memory":"64Mi"}},`+
			`"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"},`...)
	}
	return string(pod[:valueSize])
}

const (
	perTransaction = 100 // below etcd's limit of 128
	writers        = 48
)

// fill puts all keys, many in a transaction.
func fill(tb testing.TB, c *clientv3.Client, s size) {
	tb.Helper()
	g, ctx := errgroup.WithContext(tb.Context())
	g.SetLimit(8)
	for from := 0; from < s.keys; from += perTransaction {
		g.Go(func() error {
			var v values
			var puts []clientv3.Op
			for i := from; i < min(from+perTransaction, s.keys); i++ {
				puts = append(puts, clientv3.OpPut(keyOf(i), v.of(i, 0)))
			}
			_, err := c.Txn(ctx).Then(puts...).Commit()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		tb.Fatalf("fill etcd: %v", err)
	}
}

// rounds of events that a database is good for: what one deletes no other touches.
const rounds = 2

// event is the i-th of a round: each makes a revision of its own, for what is deleted is there and is not put again.
func event(i, round int, s size, v *values) clientv3.Op {
	deleted := s.events() / 5
	if i%5 == 4 {
		return clientv3.OpDelete(keyOf(round*deleted + i/5))
	}
	kept := rounds * deleted
	key := kept + int(uint(i)*2654435761%uint(s.keys-kept))
	return clientv3.OpPut(keyOf(key), v.of(key, round*s.events()+i+1))
}

// traffic makes the first n events of a round, so many in a second or as fast as etcd takes them, and reports how many it
// made in a second.
func traffic(tb testing.TB, c *clientv3.Client, s size, n, round, perSecond int) float64 {
	tb.Helper()
	g, ctx := errgroup.WithContext(tb.Context())
	next := make(chan int, writers)
	begin := time.Now()
	for range writers {
		g.Go(func() error {
			var v values
			for i := range next {
				if _, err := c.Do(ctx, event(i, round, s, &v)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(next)
		return pace(ctx, n, perSecond, next)
	})
	if err := g.Wait(); err != nil {
		tb.Fatalf("write to etcd: %v", err)
	}
	return float64(n) / time.Since(begin).Seconds()
}

// pace hands out numbers, as many in a second; 0 means at once.
func pace(ctx context.Context, n, perSecond int, out chan<- int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for i := range n {
		for perSecond > 0 && float64(i) > time.Since(begin).Seconds()*float64(perSecond) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case out <- i:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
