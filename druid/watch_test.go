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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

func TestOnlyChangesCostAPass(t *testing.T) {
	base := func(component leases.Component) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "demo-a", UID: "1", ResourceVersion: "1", Annotations: map[string]string{},
				Labels: map[string]string{leases.LabelCluster: "demo", leases.LabelComponent: string(component)},
			},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("1f:Member"), RenewTime: &metav1.MicroTime{Time: time.Unix(100, 0)}, LeaseDurationSeconds: new(int32(45)),
			},
		}
	}
	renew := func(l *coordinationv1.Lease) { l.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(115, 0)} }
	tests := map[string]struct {
		component leases.Component
		took      leases.Liveness
		change    func(*coordinationv1.Lease)
		pass      bool
	}{
		"a renewal of a member that is alive": {leases.ComponentMember, leases.Live, func(l *coordinationv1.Lease) {
			renew(l)
			l.Annotations["etcd.druid.dev/revision"] = "7"
			l.Annotations["etcd.druid.dev/raft"] = leases.Raft{Term: 2, Committed: 9, LastTerm: 2, LastIndex: 9}.String()
		}, false},
		"a renewal of a member that was taken for stale": {leases.ComponentMember, leases.Stale, renew, true},
		"a renewal of a member without a verdict":        {leases.ComponentMember, 0, renew, true},
		"another role": {leases.ComponentMember, leases.Live, func(l *coordinationv1.Lease) {
			renew(l)
			l.Spec.HolderIdentity = new("1f:Leader")
		}, true},
		"another reason to wait": {leases.ComponentMember, leases.Live, func(l *coordinationv1.Lease) {
			renew(l)
			l.Annotations["etcd.druid.dev/rule"], l.Annotations["etcd.druid.dev/reason"] = "await-quorum", "no quorum answers"
		}, true},
		"nonsense": {leases.ComponentMember, leases.Live, func(l *coordinationv1.Lease) {
			renew(l)
			l.Spec.HolderIdentity = new("nonsense")
		}, true},
		"a renewal of the leader's Lease": {leases.ComponentLeader, 0, renew, false},
		"another leader":                  {leases.ComponentLeader, 0, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("demo-b") }, false},
		"a Lease that loses its owner": {leases.ComponentLeader, 0, func(l *coordinationv1.Lease) {
			l.OwnerReferences = []metav1.OwnerReference{{}}
		}, true},
		"a backup that goes on": {leases.ComponentDeltaSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			renew(l)
			l.Spec.HolderIdentity = new("8")
			l.Annotations["etcd.druid.dev/object"], l.Annotations["etcd.druid.dev/lag"] = "next", "1s"
			l.Annotations["etcd.druid.dev/taken"] = "2026-11-21T20:00:00Z"
		}, false},
		"another full backup": {leases.ComponentFullSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			l.Annotations["etcd.druid.dev/taken"] = "2026-11-21T20:00:00Z"
		}, true},
		"a restorable window that begins later": {leases.ComponentFullSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			l.Annotations["etcd.druid.dev/restorable-since"] = "2026-11-21T20:00:00Z"
		}, true},
		"a backup that was taken for stale": {leases.ComponentFullSnapshot, leases.Stale, renew, true},
		"the first backup":                  {leases.ComponentFullSnapshot, leases.Live, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("0") }, true},
		"a backup that fails": {leases.ComponentDeltaSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			l.Annotations["etcd.druid.dev/error"] = "access denied"
		}, true},
		"a backup that is verified": {leases.ComponentFullSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			l.Annotations["etcd.druid.dev/verdict"] = "Verified"
		}, true},
		"a backup that is verified again": {leases.ComponentFullSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			l.Annotations["etcd.druid.dev/verified-revision"], l.Annotations["etcd.druid.dev/verified-at"] = "9", "2026-11-21T20:00:00Z"
		}, false},
		"a record that changed": {leases.ComponentRecord, 0, func(l *coordinationv1.Lease) { l.Annotations["etcd.druid.dev/phase"] = "Formed" }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{memory: newMemory(), now: time.Now}
			before, after := base(test.component), base(test.component)
			if leases.ReportsBackups(before) {
				before.Spec.HolderIdentity, after.Spec.HolderIdentity = new("7"), new("7")
			}
			after.ResourceVersion = "2"
			test.change(after)
			handler := r.leaseHandler()
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer q.ShutDown()
			r.sees(before)
			if test.took != 0 {
				r.memory.remember(keyOf(before), "demo", test.took)
			}
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
			if pass := q.Len() == 1; pass != test.pass {
				t.Errorf("asked for a pass: %t, want %t", pass, test.pass)
			}
		})
	}
}

// TestOnlyUnseenExpiryCausesPass: only an expiry that was not seen causes a pass.
func TestOnlyUnseenExpiryCausesPass(t *testing.T) {
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
		"before it expires":        {took: leases.Live, at: duration - 1},
		"when it expires":          {took: leases.Live, at: duration, want: demo},
		"its renewal was not seen": {took: leases.Unknown, at: duration, want: demo},
		"it was not renewed yet":   {took: leases.Never, at: duration},
		"it was stale already":     {took: leases.Stale, at: duration},
		"a pass was asked before":  {took: leases.Live, then: func(m *memory) { m.expired(begun.Add(duration)) }, at: 2 * duration},
		"it was renewed in time":   {took: leases.Live, then: func(m *memory) { m.watcher.Observe(lease(7), begun.Add(15*time.Second)) }, at: duration},
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
		if after := time.Since(begun); e.Object.GetName() != "demo" || e.Object.GetNamespace() != "ns" || after < 45*time.Second ||
			after > 45*time.Second+expiryInterval {
			t.Errorf("reported %s/%s after %s", e.Object.GetNamespace(), e.Object.GetName(), after)
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

func TestOwnStatusIsReadBeforeTheCachesHaveIt(t *testing.T) {
	at := func(version string) *v1alpha1.EtcdCluster {
		return &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo", ResourceVersion: version}}
	}
	tests := map[string]struct {
		do           func(*statuses)
		cached, want string
	}{
		"nothing was written":                   {func(*statuses) {}, "1", "1"},
		"the caches are behind":                 {func(s *statuses) { s.wrote("1", at("2")) }, "1", "2"},
		"the caches have it":                    {func(s *statuses) { s.wrote("1", at("2")) }, "2", "2"},
		"the caches are two writes behind":      {func(s *statuses) { s.wrote("1", at("2")); s.wrote("2", at("3")) }, "1", "3"},
		"the caches are one of two behind":      {func(s *statuses) { s.wrote("1", at("2")); s.wrote("2", at("3")) }, "2", "3"},
		"someone else wrote after it":           {func(s *statuses) { s.wrote("1", at("2")) }, "5", "5"},
		"someone else wrote between two writes": {func(s *statuses) { s.wrote("1", at("2")); s.wrote("5", at("6")) }, "5", "6"},
		"once the caches had it, it is over":    {func(s *statuses) { s.wrote("1", at("2")); s.latest(at("2")) }, "1", "1"},
		"it is gone": {func(s *statuses) {
			s.wrote("1", at("2"))
			s.forget(client.ObjectKeyFromObject(at("2")))
		}, "1", "1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStatuses()
			test.do(s)
			if got := s.latest(at(test.cached)); got.ResourceVersion != test.want {
				t.Errorf("with version %s in the caches: got %s, want %s", test.cached, got.ResourceVersion, test.want)
			}
		})
	}
}
