package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// joined is a formed cluster of so many members next to three others, and a druid that works on it.
func joined(t *testing.T, count int32) (s *stage, names []string, stop func()) {
	t.Helper()
	s = newStage(t)
	s.joins = true
	stop = s.startDruid()
	names = s.formed("demo", count)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonExternalMembersPresent)
	return s, names, stop
}

// TestJoiningClusterHasFinalizer: a cluster that joins has the finalizer before any member may join, and as long as others are there.
func TestJoiningClusterHasFinalizer(t *testing.T) {
	s, _, _ := joined(t, 1)
	held, err := s.calls.firstCall("PATCH", "/etcdclusters/demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"/leases", "/pods", "/persistentvolumeclaims"} {
		if made, err := s.calls.firstCall("POST", kind); err != nil || made < held {
			t.Errorf("the first %s was call %d (%v), and the finalizer call %d", kind, made, err, held)
		}
	}
	if err := s.isHeld(true); err != nil {
		t.Error(err)
	}
	s.changeRecord(func(r *leases.Record) { alongside(r) })
	s.eventually("it is released when no other member is there", func() error { return s.isHeld(false) })
	s.changeRecord(func(r *leases.Record) { alongside(r, "etcd-1") })
	s.eventually("and held again when one comes back", func() error { return s.isHeld(true) })
	s.changeRecord(func(r *leases.Record) { alongside(r) })
	s.eventually("and let go again", func() error { return s.isHeld(false) })
	s.delete("demo", metav1.DeletePropagationBackground)
	s.ended()
	if record, err := s.record("demo"); err != nil || record.Leaving {
		t.Errorf("an ordinary deletion sends members off: %+v %v", record, err)
	}
}

// TestDeletedJoinedMembersLeaveFirst: members of a cluster that is deleted alongside others leave before it goes.
func TestDeletedJoinedMembersLeaveFirst(t *testing.T) {
	s, names, stop := joined(t, 3)
	s.delete("demo", metav1.DeletePropagationBackground)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonLeavingJoinedCluster)
	s.reported(v1alpha1.ReasonLeavingJoinedCluster, "")
	// Nothing of it is in druid's memory.
	stop()
	s.startDruid()
	out := s.acknowledges(names)
	s.ended()
	if slices.Sort(out); !slices.Equal(out, names) {
		t.Errorf("left have %v, want all of %v", out, names)
	}
	if deletes := s.calls.matching("DELETE", "persistentvolumeclaims"); len(deletes) > 0 {
		t.Errorf("druid deleted %v", deletes)
	}
	if deletes := s.calls.matching("DELETE", "leases"); len(deletes) > 0 {
		t.Errorf("druid deleted %v", deletes)
	}
}

// TestDeletionBeforeJoinNotHeld: a deletion before any member began to join is not held up.
func TestDeletionBeforeJoinNotHeld(t *testing.T) {
	s := newStage(t)
	s.joins = true
	s.startDruid()
	s.createCluster("demo", 3)
	s.members("demo", 3)
	if err := s.isHeld(true); err != nil {
		t.Error(err)
	}
	s.delete("demo", metav1.DeletePropagationBackground)
	s.ended()
}

// TestDeletionWaitsForJoiningSeed: a deletion that begins while the seed joins waits until it is in.
func TestDeletionWaitsForJoiningSeed(t *testing.T) {
	s := newStage(t)
	s.joins = true
	s.startDruid()
	s.createCluster("demo", 1)
	names := s.members("demo", 1)
	s.changeRecord(func(r *leases.Record) { r.Executor, r.ClusterID, r.Externals = "executor", clusterID, []string{"a1"} })
	s.delete("demo", metav1.DeletePropagationBackground)
	message := s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonLeavingJoinedCluster).Message
	if !strings.Contains(message, names[0]) || !strings.Contains(message, "kubectl patch etcd") {
		t.Errorf("it is reported %q", message)
	}
	s.form("demo", names)
	if out := s.acknowledges(names); len(out) != 1 {
		t.Errorf("left have %v", out)
	}
	s.ended()
}

// TestOrphanedJoinedClusterReleased: a cluster that is orphaned alongside others is released as it is.
func TestOrphanedJoinedClusterReleased(t *testing.T) {
	s, _, _ := joined(t, 1)
	s.delete("demo", metav1.DeletePropagationOrphan)
	s.eventually("it is let go", func() error { return s.isHeld(false) })
	s.orphan("demo")
	if record, err := s.record("demo"); err != nil || record.Leaving || record.PendingRemoval != nil {
		t.Errorf("members are sent off: %+v %v", record, err)
	}
}

// TestForegroundDeletionMembersLeave: members of a cluster that is deleted in the foreground come back to leave.
// The garbage collector takes Pods and Leases at once, anyone who holds the EtcdCluster. Afterwards the members come back on their
// volumes, and leave.
func TestForegroundDeletionMembersLeave(t *testing.T) {
	s, names, _ := joined(t, 3)
	uid := s.delete("demo", metav1.DeletePropagationForeground)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonLeavingJoinedCluster)
	s.collect("demo", uid)
	before := s.calls.creations("")
	s.eventually("rest", func() error { return s.rests() })
	if after := s.calls.creations(""); len(after) != len(before) {
		t.Errorf("druid works against the garbage collector: %v", after[len(before):])
	}
	s.unfinish(metav1.FinalizerDeleteDependents)
	again := s.members("demo", 3)
	if strings.Join(again, " ") != strings.Join(names, " ") {
		t.Errorf("members are %v, were %v", again, names)
	}
	s.form("demo", names)
	s.acknowledges(names)
	s.ended()
}

// TestLostLeasesNeedOrderToRemove: lost Leases during a deletion remove no member without an order.
// kubectl delete leases --all takes the orders too. They are given again.
func TestLostLeasesNeedOrderToRemove(t *testing.T) {
	s, names, _ := joined(t, 3)
	s.delete("demo", metav1.DeletePropagationBackground)
	s.requested()
	s.wipe(&coordinationv1.Lease{})
	s.members("demo", 3)
	s.form("demo", names)
	s.acknowledges(names)
	s.ended()
}

// TestHeldDeletionRetriesTrouble: trouble of a deletion that is held is tried again.
// What goes wrong on the way is no end of it.
func TestHeldDeletionRetriesTrouble(t *testing.T) {
	s, names, stop := joined(t, 1)
	stop()
	s.end(names[0])
	s.delete("demo", metav1.DeletePropagationBackground)
	stale := behind{Client: s.Client}
	if err := s.fetch("demo", &stale.cluster); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(s.Client)
	r.client = stale
	if err := s.reconcile(r); !apierrors.IsForbidden(err) {
		t.Errorf("its Pod is refused: got %v, want that error", err)
	}
}

// TestJoinedClusterReleasesNamespace: a cluster alongside others does not hold up its namespace.
func TestJoinedClusterReleasesNamespace(t *testing.T) {
	s, names, stop := joined(t, 1)
	stop()
	if err := s.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}); err != nil {
		t.Fatal(err)
	}
	s.delete("demo", metav1.DeletePropagationBackground)
	s.end(names[0])
	r := s.reconciler(s.Client)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: s.namespace, Name: "demo"}}); err != nil {
		t.Errorf("the namespace goes: %v", err)
	}
	s.ended()
}

// TestFinalizerRemovedByLiveReadOnly: a deleted cluster is released only after a live read.
// A plan that is older than what the agents report removes no member: the voters would stay in the others' list.
func TestFinalizerRemovedByLiveReadOnly(t *testing.T) {
	s, _, stop := joined(t, 1)
	stop()
	s.changeRecord(func(r *leases.Record) { alongside(r) })
	s.delete("demo", metav1.DeletePropagationBackground)
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(s.Client)
	o, err := r.observe(t.Context(), r.cached, &cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.changeRecord(func(r *leases.Record) { alongside(r, "etcd-1") })
	if written, _, err := r.guardDeletion(t.Context(), o); err != nil || written != nil {
		t.Errorf("others came back: it wrote %t, %v", written != nil, err)
	}
	if err := s.isHeld(true); err != nil {
		t.Error(err)
	}
	s.changeRecord(func(r *leases.Record) { alongside(r) })
	if written, _, err := r.guardDeletion(t.Context(), o); err != nil || written == nil {
		t.Errorf("there is no other member: it wrote %t, %v", written != nil, err)
	}
	s.ended()
}

// lingers is a finalizer of someone else.
const lingers = "test.druid.dev/lingers"

// next to makes the record that of a group that was joined, in which so many are left of those that were there before.
func alongside(record *leases.Record, left ...string) {
	record.Externals = []string{"a1", "a2", "a3"}
	record.MemberList = &leases.MemberList{RaftTerm: 2, RaftIndex: 9}
	for i, name := range slices.Concat(left, record.Members) {
		record.MemberList.Members = append(record.MemberList.Members, leases.ListedMember{ID: fmt.Sprintf("a%d", i+1), Name: name, PeerURL: "http://" + name})
	}
}

// isHeld says whether druid's finalizer is there as it should be.
func (s *stage) isHeld(want bool) error {
	var c v1alpha1.EtcdCluster
	if err := s.fetch("demo", &c); err != nil {
		return err
	}
	if slices.Contains(c.Finalizers, v1alpha1.JoinFinalizer) != want {
		return fmt.Errorf("finalizers are %v", c.Finalizers)
	}
	return nil
}

// deleteLingering deletes the EtcdCluster, which someone else's finalizer keeps to be looked at.
func (s *stage) deleteLingering() {
	s.Helper()
	var c v1alpha1.EtcdCluster
	s.edit("demo", &c, func() { c.Finalizers = append(c.Finalizers, lingers) })
	s.delete("demo", metav1.DeletePropagationBackground)
}

// changeRecord rewrites the record as an agent would.
func (s *stage) changeRecord(change func(*leases.Record)) {
	s.Helper()
	s.eventually("change the record", func() error {
		record, version, err := s.store("demo").Record(s.Context())
		if err != nil {
			return err
		}
		change(&record)
		_, err = s.store("demo").UpdateRecord(s.Context(), version, record)
		return err
	})
}

// acknowledges answers, as an agent does, each member that is asked to leave, and returns them in their order when none is left.
func (s *stage) acknowledges(names []string) (out []string) {
	s.Helper()
	s.beat = s.renewAsIs // druid knows no leader before it saw a renewal
	defer func() { s.beat = nil }()
	s.eventually("all members leave", func() error {
		record, err := s.record("demo")
		if err != nil {
			return err
		}
		if len(record.Members) == 0 {
			return nil
		}
		slot := record.PendingRemoval
		if slot == nil {
			return fmt.Errorf("the slot is free, and %v are left", record.Members)
		}
		if mark := s.mark(slot.Member); mark.State == leases.RemovalRequested && slot.Orders(slot.Member, mark) {
			s.answer(slot.Member, done)
			out = append(out, slot.Member)
		}
		return fmt.Errorf("%s is on its way out, out are %v of %v", slot.Member, out, names)
	})
	return out
}

// ended waits until the EtcdCluster is gone.
func (s *stage) ended() {
	s.Helper()
	s.eventually("the EtcdCluster is gone", func() error { return s.gone("demo", &v1alpha1.EtcdCluster{}) })
}

// unfinish takes a finalizer away, as anyone who set it does.
func (s *stage) unfinish(finalizer string) {
	s.Helper()
	var c v1alpha1.EtcdCluster
	s.edit("demo", &c, func() { c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == finalizer }) })
}

// firstCall is the place of the first call of the method whose path ends so, among all that druid made.
func (c *calls) firstCall(method, end string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.made, func(call string) bool { return strings.HasPrefix(call, method+" ") && strings.HasSuffix(call, end) })
	if i < 0 {
		return 0, errors.New("no " + method + " of " + end)
	}
	return i, nil
}

// wipe deletes all Leases of the namespace.
func (s *stage) wipe(object client.Object) {
	s.Helper()
	if err := s.DeleteAllOf(s.Context(), object, client.InNamespace(s.namespace), client.GracePeriodSeconds(0)); err != nil {
		s.Fatal(err)
	}
}
