package start

import (
	"context"
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// While the API server is unreachable, the cluster can be formed again without this member. So the first renewal after a failure asks for
// one read of the record, and no other renewal does.
func TestRenewalAfterAFailureReadsRecord(t *testing.T) {
	failed := errors.New("no route to host")
	b := &Bootstrapper{later: make(chan struct{}, 1)}
	for i, step := range []struct {
		err  error
		want bool
	}{{nil, false}, {nil, false}, {failed, false}, {failed, false}, {nil, true}, {nil, false}, {failed, false}, {nil, true}} {
		b.Renewed(step.err)
		asked := len(b.later) > 0
		if asked {
			<-b.later
		}
		if asked != step.want {
			t.Errorf("renewal %d: %v; a read is asked for %t, want %t", i, step.err, asked, step.want)
		}
	}
}

// recordOnly is an API server that has only a cluster record.
type recordOnly struct {
	leases.Client
	record leases.Record
}

func (o recordOnly) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leases.RecordName("c"), ResourceVersion: "1"}}
	return lease, o.record.Encode(lease)
}

// An etcd that serves does not stop for a recovery order. Another raft group can follow the order, so its agent reads the record again.
func TestRecordIsReadAgainDuringAnOrder(t *testing.T) {
	before := leases.Record{
		Phase: leases.PhaseFormed, ClusterID: 0xc, Epoch: 2, FormedEpoch: 2, Nonce: "aa", Lineage: "00000002-aa", MaxLearners: leases.MaxLearners,
		Members: []string{"c-a"},
	}
	during, err := before.Prepare(leases.Recovery{Epoch: 3, Nonce: "bb", Mode: leases.RecoverSurvivor, Chosen: "c-a"})
	must(t, err)
	for name, test := range map[string]struct {
		record leases.Record
		idle   bool
	}{
		"no order": {before, true}, "an order": {during, false},
	} {
		b := alone(t)
		b.store = leases.NewStore(recordOnly{record: test.record}, "c")
		b.setIdentity(datadir.IdentityFile{ClusterID: 0xc, Epoch: 2})
		idle, err := b.follow(t.Context(), rules.Yes, func(context.Context, string) error { return errors.New("etcd was stopped") })
		if must(t, err); idle != test.idle {
			t.Errorf("%s: the record calls for nothing is %t, want %t", name, idle, test.idle)
		}
	}
}
