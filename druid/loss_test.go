package druid

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func TestLostPodComesBackUnderItsName(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	pods, claims := s.uids(names, &corev1.Pod{}), s.uids(names, &corev1.PersistentVolumeClaim{})

	s.end(names[0])
	s.replaced(names[0], pods[names[0]], &corev1.Pod{})
	s.eventually("mark", func() error { return s.marked(names[0]) })

	// Failed is lost too.
	s.eventually("fail Pod "+names[1], func() error {
		var pod corev1.Pod
		if err := s.fetch(names[1], &pod); err != nil {
			return err
		}
		pod.Status.Phase = corev1.PodFailed
		return s.Status().Update(t.Context(), &pod)
	})
	s.replaced(names[1], pods[names[1]], &corev1.Pod{})
	s.eventually("mark", func() error { return s.marked(names[1]) })
	if diff := cmp.Diff(claims, s.uids(names, &corev1.PersistentVolumeClaim{})); diff != "" {
		t.Errorf("claims changed (-before +after):\n%s", diff)
	}
}

// TestDeletedClaimAndPodReturn: a deleted claim goes with its Pod and both come back.
func TestDeletedClaimAndPodReturn(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	pods, claims := s.uids(names, &corev1.Pod{}), s.uids(names, &corev1.PersistentVolumeClaim{})

	// All three are deleted at once; a finalizer keeps each while its Pod runs.
	for _, name := range names {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
		if err := s.Delete(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonVolumeDeleted)
	terminating := func() (found []string) {
		for _, name := range names {
			var pod corev1.Pod
			if s.fetch(name, &pod) == nil && pod.DeletionTimestamp != nil {
				found = append(found, name)
			}
		}
		return found
	}
	affected := ""
	s.eventually("delete one Pod", func() error {
		got := terminating()
		if len(got) != 1 {
			return fmt.Errorf("%v terminate, want one", got)
		}
		affected = got[0]
		return nil
	})

	s.end(affected)
	s.eventually("a Pod must not keep the claim from going", func() error {
		if pods := s.calls.creations("/pods"); len(pods) != 3 {
			return fmt.Errorf("%d Pods were created, want 3", len(pods))
		}
		return nil
	})
	var claim corev1.PersistentVolumeClaim
	s.edit(affected, &claim, func() {
		if len(claim.Finalizers) == 0 {
			t.Fatal("the claim has no finalizer: the API server does not protect claims in use, and this test shows nothing")
		}
		controllerutil.RemoveFinalizer(&claim, claim.Finalizers[0])
	})
	s.replaced(affected, claims[affected], &corev1.PersistentVolumeClaim{})
	s.replaced(affected, pods[affected], &corev1.Pod{})
	s.eventually("mark", func() error { return s.marked(affected) })
	if got := terminating(); len(got) != 0 {
		t.Errorf("%v terminate while %s heals", got, affected)
	}

	// Healed: the next one has its turn.
	s.binder(affected)
	s.kubelet(affected, true)
	s.agent("demo", affected, 77, leases.RoleMember)
	s.eventually("delete the next Pod", func() error {
		if got := terminating(); len(got) != 1 || got[0] == affected {
			return fmt.Errorf("%v terminate, want one other than %s", got, affected)
		}
		return nil
	})
}

func TestRecordComesBackAsFormed(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	before, err := s.record("demo")
	if err != nil {
		t.Fatal(err)
	}
	s.deleteLease(leases.RecordName("demo"))
	var after leases.Record
	s.eventually("record", func() error {
		after, err = s.record("demo")
		return err
	})
	before.Seed, before.Executor = "", ""
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("record (-before +after):\n%s", diff)
	}
	if got := s.members("demo", 3); !cmp.Equal(got, names) {
		t.Errorf("members are %v, want %v", got, names)
	}
}

func (s *stage) deleteLease(name string) {
	s.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.Delete(s.Context(), lease); err != nil {
		s.Fatalf("delete Lease %s: %v", name, err)
	}
}

// TestDeletedLeasesReturn: all Leases deleted come back and nothing else changes.
func TestDeletedLeasesReturn(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	pods := s.uids(names, &corev1.Pod{})
	if err := s.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	if got := s.members("demo", 3); !cmp.Equal(got, names) {
		t.Errorf("members are %v, want %v", got, names)
	}
	record, err := s.record("demo")
	if err != nil {
		t.Fatal(err)
	}
	if record.Phase != leases.PhaseFormed || record.ClusterID != clusterID {
		t.Errorf("record is %+v, want Formed with cluster ID %x", record, uint64(clusterID))
	}
	s.eventually("leader Lease", func() error { return s.fetch(leases.LeaderName("demo"), &coordinationv1.Lease{}) })
	if diff := cmp.Diff(pods, s.uids(names, &corev1.Pod{})); diff != "" {
		t.Errorf("Pods changed (-before +after):\n%s", diff)
	}
	if deletes := s.calls.matching("DELETE", ""); len(deletes) != 0 {
		t.Errorf("druid deleted %v", deletes)
	}
	for _, name := range names {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil || pod.Labels["etcd.druid.dev/serving"] != "true" {
			t.Errorf("Pod %s lost its clients: %v %v", name, pod.Labels, err)
		}
	}
}

// TestLostBootstrapRecordBlocks: a record that vanished during bootstrap blocks the bootstrap.
func TestLostBootstrapRecordBlocks(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createCluster("demo", 3)
	names := s.members("demo", 3)
	s.deleteLease(leases.RecordName("demo"))
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonRecordLost)
	record, err := s.record("demo")
	if err != nil || record.Phase != leases.PhaseFormed || record.Nonce != "" || record.ClusterID != 0 {
		t.Fatalf("record is %+v, %v; want Formed, and nothing that a group could be formed by", record, err)
	}

	// A group had formed after all: its agent reports.
	for _, name := range names {
		s.binder(name)
		s.kubelet(name, true)
	}
	s.agent("demo", names[0], 1, leases.RoleLeader)
	s.eventually("identify the cluster", func() error {
		record, err := s.record("demo")
		if err == nil && (record.ClusterID != clusterID || record.Nonce != "0123456789abcdef" || record.Epoch != 1) {
			return fmt.Errorf("record is %+v", record)
		}
		return err
	})
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
}

func TestDeletedClusterIsLeftToGo(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(1)
	var cluster v1alpha1.EtcdCluster
	s.edit("demo", &cluster, func() { controllerutil.AddFinalizer(&cluster, "test.etcd.druid.dev/keep") })
	if err := s.Delete(t.Context(), &cluster); err != nil {
		t.Fatal(err)
	}
	s.caughtUp("demo", &cluster)
	s.eventually("let druid see the deletion", func() error { return s.rests() })
	before := s.calls.count()
	s.end(names[0])
	if err := s.rests(); err != nil {
		t.Errorf("%v: %v", err, s.calls.since(before))
	}
}

func TestOrphansAreReportedAndNeverDeleted(t *testing.T) {
	c, names := stuckCluster(t, 3)
	const orphan = "demo-zzzzz"
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	lease := manifests.MemberLease(&cluster, orphan)
	for _, object := range []client.Object{lease, manifests.PersistentVolumeClaim(&cluster, orphan)} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	c.pass()
	if condition := c.degraded(t); condition.Status != metav1.ConditionFalse {
		t.Errorf("what may pass by itself is reported at once: %s", condition.Message)
	}
	c.after(2 * time.Minute)
	condition := c.degraded(t)
	if want := "Lease, PersistentVolumeClaim " + orphan; condition.Reason != v1alpha1.ReasonOrphanedObjects || !strings.Contains(condition.Message, want) ||
		!strings.Contains(condition.Message, "kubectl delete lease,pvc "+orphan) {
		t.Errorf("condition is %s: %s", condition.Reason, condition.Message)
	}
	c.after(24 * time.Hour)
	for _, object := range []client.Object{&coordinationv1.Lease{}, &corev1.PersistentVolumeClaim{}} {
		if err := c.fetch(orphan, object); err != nil || object.GetDeletionTimestamp() != nil {
			t.Errorf("%T was deleted without proof: %v", object, err)
		}
	}

	// The acknowledgement of a removal is the proof, and anyone who goes by it needs no person.
	value, err := leases.RemovalRequest{
		State: leases.RemovalDone, Mark: "abcde", By: "pod", MemberID: "7", ClusterID: leases.FormatID(clusterID), RaftTerm: 2, RaftIndex: 9,
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c.says(orphan, leases.AnnotationRemoval, value)
	c.pass()
	if condition := c.degraded(t); condition.Status != metav1.ConditionFalse {
		t.Errorf("condition is %s: %s", condition.Reason, condition.Message)
	}
	if got := c.members("demo", 3); strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("members are %v, want %v", got, names)
	}
}

// homeless ends the member's Pod, and no node takes the next one.
func (c *clocked) homeless(name string) {
	c.Helper()
	c.end(name)
	c.pass()
	var pod corev1.Pod
	if err := c.fetch(name, &pod); err != nil {
		c.Fatal(err)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	if err := c.Status().Update(c.Context(), &pod); err != nil {
		c.Fatal(err)
	}
	c.pass()
}

// TestLostLearnerNamedToLeader: a learner whose Pod does not come is named to the leader.
func TestLostLearnerNamedToLeader(t *testing.T) {
	c, names := stuckCluster(t, 3)
	joiner := names[2]
	const learner = "a1b2"
	c.editRecord(func(r *leases.Record) {
		r.MemberList = &leases.MemberList{RaftTerm: 2, RaftIndex: 9, Members: []leases.ListedMember{
			{ID: "1", Name: names[0], PeerURL: "http://" + names[0] + ".demo-peer.ns.svc:2380"},
			{ID: "2", Name: names[1], PeerURL: "http://" + names[1] + ".demo-peer.ns.svc:2380"},
			{ID: learner, PeerURL: "http://" + joiner + ".demo-peer.ns.svc:2380", Learner: true},
		}}
	})
	c.after(10 * time.Minute)
	if c.repairing(joiner).NotComing != "" {
		t.Fatal("the Pod runs, and its learner is given up")
	}
	c.homeless(joiner)
	if c.repairing(joiner).NotComing != "" {
		t.Fatal("a Pod had no time to come up")
	}
	c.after(2 * time.Minute)
	if got := c.repairing(joiner).NotComing; got != learner {
		t.Errorf("the Lease names %q, want %s", got, learner)
	}
	for _, name := range names[:2] {
		if c.repairing(name) != (leases.Repairing{}) {
			t.Errorf("%s is named too: %+v", name, c.repairing(name))
		}
	}
}

// TestLostMembersSlotReturned: a slot of a member that does not come back is given back.
func TestLostMembersSlotReturned(t *testing.T) {
	c, names := stuckCluster(t, 3)
	holder := names[1] // the first one leads
	slot := func(podUID string) *leases.Replacing {
		return &leases.Replacing{Member: holder, PodUID: podUID, MemberID: "1"}
	}
	taken := func() *leases.Replacing {
		record, err := c.stage.record("demo")
		if err != nil {
			t.Fatal(err)
		}
		return record.Replacing
	}
	c.homeless(holder)
	pods := c.uids(names, &corev1.Pod{})
	c.editRecord(func(r *leases.Record) { r.Replacing = slot(string(pods[holder])) })
	c.after(time.Hour)
	if taken() == nil {
		t.Fatal("the slot was taken from the Pod that holds it")
	}
	c.editRecord(func(r *leases.Record) { r.Replacing = slot("a Pod that is gone") })
	c.agent("demo", names[0], 1, leases.RoleLeader)
	c.pass()
	if taken() != nil {
		t.Error("the slot is not used, and stays taken")
	}

	// A Pod of that name that runs takes it over by itself.
	c.node(c.nodeName(), true)
	c.kubelet(holder, false)
	c.pass()
	c.editRecord(func(r *leases.Record) { r.Replacing = slot("a Pod that is gone") })
	c.after(2 * time.Hour)
	if taken() == nil {
		t.Error("the slot was taken from a member whose Pod runs")
	}

	// No leader reports for longer than its Lease lasts, so the published member list can be older than a removal.
	c.homeless(holder)
	c.after(time.Hour)
	if taken() == nil {
		t.Error("the slot was freed, and only it shows which member can be removed")
	}
}
