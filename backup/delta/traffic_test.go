package delta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/test/member"
)

// traffic makes changes of all kinds, the same in each run.
type traffic struct {
	tb     testing.TB
	client *clientv3.Client
	random *rand.Rand
	// large is the size of the largest value.
	large  int
	leases []clientv3.LeaseID
}

func newTraffic(tb testing.TB, m *member.Member) *traffic {
	tb.Helper()
	return &traffic{tb: tb, client: m.Client, random: rand.New(rand.NewPCG(1, 2)), large: 2000}
}

// grant creates a lease that some of the puts use.
func (f *traffic) grant(ttl int64) clientv3.LeaseID {
	f.tb.Helper()
	granted, err := f.client.Grant(f.tb.Context(), ttl)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.leases = append(f.leases, granted.ID)
	return granted.ID
}

// run makes n requests.
func (f *traffic) run(n int) {
	f.tb.Helper()
	for range n {
		// A lease of one second may have expired on a slow machine.
		if err := f.request(); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			f.tb.Fatal(err)
		}
	}
}

func (f *traffic) request() error {
	ctx, cancel := context.WithTimeout(f.tb.Context(), maxWait)
	defer cancel()
	var err error
	switch f.random.IntN(8) {
	case 0: // several changes at once
		var ops []clientv3.Op
		for i := range 1 + f.random.IntN(20) {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("txn/%d/%d", f.random.IntN(10), i), f.value()))
		}
		_, err = f.client.Txn(ctx).Then(ops...).Commit()
	case 1: // put and deletion of one key, which etcd takes in two nested transactions
		key := f.key()
		_, err = f.client.Txn(ctx).Then(
			clientv3.OpDelete("txn/3/4"),
			clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(key, f.value())}, nil),
			clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete(key)}, nil),
		).Commit()
	case 2:
		_, err = f.client.Delete(ctx, f.key()) // which may be absent
	case 3:
		_, err = f.client.Delete(ctx, fmt.Sprintf("txn/%d/", f.random.IntN(10)), clientv3.WithPrefix())
	case 4:
		_, err = f.client.Delete(ctx, "absent") // no revision
	default:
		var options []clientv3.OpOption
		if len(f.leases) > 0 && f.random.IntN(3) == 0 {
			options = append(options, clientv3.WithLease(f.leases[f.random.IntN(len(f.leases))]))
		}
		_, err = f.client.Put(ctx, f.key(), f.value(), options...)
	}
	return err
}

func (f *traffic) key() string { return fmt.Sprintf("key/\x00\xff%d", f.random.IntN(200)) }

func (f *traffic) value() string {
	switch f.random.IntN(5) {
	case 0:
		return ""
	case 1:
		b := make([]byte, f.random.IntN(f.large))
		for i := range b {
			b[i] = byte(f.random.Uint32())
		}
		return string(b)
	}
	return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"p-%d"}}`, f.random.IntN(1000))
}

func (f *traffic) put(key, value string) int64 {
	f.tb.Helper()
	response, err := f.client.Put(f.tb.Context(), key, value)
	if err != nil {
		f.tb.Fatal(err)
	}
	return response.Header.Revision
}

// leaseOf returns the lease that a record references.
func leaseOf(tb testing.TB, r Record) int64 {
	tb.Helper()
	kv := &mvccpb.KeyValue{}
	if err := proto.Unmarshal(r.Value, kv); err != nil {
		tb.Fatal(err)
	}
	return kv.Lease
}
