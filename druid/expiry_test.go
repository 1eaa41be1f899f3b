package druid

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

func TestOnlyAnExpiryThatNoOneJudgedCostsAPass(t *testing.T) {
	const duration = 45 * time.Second
	begun := time.Unix(1000, 0)
	lease := func(renewed int64) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo-a", UID: "1"},
			Spec: coordinationv1.LeaseSpec{
				RenewTime: &metav1.MicroTime{Time: time.Unix(renewed, 0)}, LeaseDurationSeconds: new(int32(duration / time.Second)),
			},
		}
	}
	demo := []types.NamespacedName{{Namespace: "ns", Name: "demo"}}
	tests := map[string]struct {
		took leases.Liveness
		then func(*memory)
		at   time.Duration
		want []types.NamespacedName
	}{
		"before it expires":       {took: leases.Live, at: duration - 1},
		"when it expires":         {took: leases.Live, at: duration, want: demo},
		"no one saw it renewed":   {took: leases.Unknown, at: duration, want: demo},
		"no one ever renewed it":  {took: leases.Never, at: duration},
		"it was stale already":    {took: leases.Stale, at: duration},
		"a pass was asked before": {took: leases.Live, then: func(m *memory) { m.expired(begun.Add(duration)) }, at: 2 * duration},
		"it was renewed in time":  {took: leases.Live, then: func(m *memory) { m.watcher.Observe(lease(7), begun.Add(15*time.Second)) }, at: duration},
		"it expires after that": {
			took: leases.Live, then: func(m *memory) { m.watcher.Observe(lease(7), begun.Add(15*time.Second)) }, at: duration + 15*time.Second, want: demo,
		},
		"it is gone": {took: leases.Live, then: func(m *memory) { m.forget(client.ObjectKeyFromObject(lease(1))) }, at: duration},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.watcher.Observe(lease(1), begun)
			m.remember(client.ObjectKeyFromObject(lease(1)), "demo", test.took)
			if test.then != nil {
				test.then(m)
			}
			if diff := cmp.Diff(test.want, m.expired(begun.Add(test.at))); diff != "" {
				t.Errorf("clusters to look at (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpiriesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &Reconciler{memory: newMemory(), now: time.Now, expiries: make(chan event.GenericEvent)}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo-a", UID: "1"}}
		r.memory.watcher.Observe(lease, time.Now())
		r.memory.remember(keyOf(lease), "demo", leases.Live)
		var group errgroup.Group
		group.Go(func() error { return r.watchExpiries(ctx) })
		begun := time.Now()
		e := <-r.expiries
		if after := time.Since(begun); e.Object.GetName() != "demo" || e.Object.GetNamespace() != "ns" || after < 45*time.Second || after > 45*time.Second+expiryInterval {
			t.Errorf("informed of %s/%s after %s", e.Object.GetNamespace(), e.Object.GetName(), after)
		}
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// Nothing is reported by an event here: the Lease merely is not renewed.
func TestMemberWhoseLeaseExpiresIsUnknown(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	now := time.Now()
	short := leases.MemberPatch{
		Member:    leases.Member{ID: 2, Role: leases.RoleMember, ClusterID: clusterID},
		RenewTime: &now, Duration: 3 * time.Second,
	}
	if _, err := s.store("demo").PatchMember(t.Context(), names[1], short); err != nil {
		t.Fatal(err)
	}
	s.eventually("an unknown member", func() error {
		var cluster v1alpha1.EtcdCluster
		if err := s.fetch("demo", &cluster); err != nil {
			return err
		}
		for _, m := range cluster.Status.Members {
			if want := m.Name == names[1]; (m.Status == v1alpha1.MemberUnknown) != want {
				return fmt.Errorf("%s is %s (%s)", m.Name, m.Status, m.Reason)
			}
		}
		return nil
	})
}
