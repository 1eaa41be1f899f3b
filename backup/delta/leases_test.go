package delta

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// leaseServer answers of each lease that it is gone, and with a list that is of no use.
type leaseServer struct {
	etcdserverpb.LeaseClient
	listed int64
	err    error
}

func (s leaseServer) LeaseLeases(context.Context, *etcdserverpb.LeaseLeasesRequest, ...grpc.CallOption) (*etcdserverpb.LeaseLeasesResponse, error) {
	r := &etcdserverpb.LeaseLeasesResponse{}
	for i := range s.listed {
		r.Leases = append(r.Leases, &etcdserverpb.LeaseStatus{ID: 1<<40 + i})
	}
	return r, s.err
}

func (leaseServer) LeaseTimeToLive(context.Context, *etcdserverpb.LeaseTimeToLiveRequest, ...grpc.CallOption) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	return &etcdserverpb.LeaseTimeToLiveResponse{TTL: -1}, nil
}

func TestTheLeaseBookIsBoundedWithoutAList(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]leaseServer{
		"too many are alive": {listed: MaxAlive + 1},
		"etcd does not list": {err: errors.New("no leader")},
	} {
		t.Run(name, func(t *testing.T) {
			at := start
			b := newLeaseBook(nil, func() time.Time { return at })
			b.client = server
			ctx, cancel := context.WithCancel(t.Context())
			var asking errgroup.Group
			asking.Go(func() error { return b.run(ctx) })
			const each = 500
			for round := range int64(5) {
				referenced := map[int64]*leaseEntry{}
				for i := range int64(each) {
					id := round*each + i + 1
					referenced[id], _ = b.see(id)
				}
				if l := b.collect(ctx, referenced); l.Known || len(l.Records) != each {
					t.Fatalf("round %d: known %t, %d records", round, l.Known, len(l.Records))
				}
				if len(b.known) > 2*each {
					t.Fatalf("round %d: the book holds %d leases, and %d were referenced", round, len(b.known), each)
				}
				at = at.Add(10 * leaseMemory)
				b.collect(ctx, referenced)
				for id, entry := range referenced {
					if got, isNew := b.see(id); isNew || got != entry {
						t.Fatalf("lease %d, which was just referenced, was forgotten", id)
					}
				}
			}
			cancel()
			if err := asking.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
