package druid

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/leases"
)

func TestOnlyNewsCostAPass(t *testing.T) {
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
		"a renewal of a member that no one judged yet":   {leases.ComponentMember, 0, renew, true},
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
		}, false},
		"a backup that was taken for stale": {leases.ComponentFullSnapshot, leases.Stale, renew, true},
		"the first backup":                  {leases.ComponentFullSnapshot, leases.Live, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("0") }, true},
		"a backup that fails": {leases.ComponentDeltaSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			l.Annotations["etcd.druid.dev/error"] = "access denied"
		}, true},
		"a backup that is proven": {leases.ComponentFullSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			l.Annotations["etcd.druid.dev/verdict"] = "Proven"
		}, true},
		"a backup that is proven again": {leases.ComponentFullSnapshot, leases.Live, func(l *coordinationv1.Lease) {
			l.Annotations["etcd.druid.dev/verified-revision"], l.Annotations["etcd.druid.dev/verified-at"] = "9", "2026-11-21T20:00:00Z"
		}, false},
		"a record that changed": {leases.ComponentRecord, 0, func(l *coordinationv1.Lease) { l.Annotations["etcd.druid.dev/phase"] = "Formed" }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{memory: newMemory(), now: time.Now}
			before, after := base(test.component), base(test.component)
			if reportsOfBackups(before) {
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
