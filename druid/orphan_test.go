package druid

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

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
	value, err := leases.Retirement{
		State: leases.RetireDone, Mark: "abcde", By: "pod", MemberID: "7", ClusterID: leases.FormatID(clusterID), RaftTerm: 2, RaftIndex: 9,
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c.says(orphan, leases.AnnotationRetire, value)
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

func TestLearnerWhosePodDoesNotComeIsNamedToTheLeader(t *testing.T) {
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
	if c.healing(joiner).NotComing != "" {
		t.Fatal("the Pod runs, and its learner is given up")
	}
	c.homeless(joiner)
	if c.healing(joiner).NotComing != "" {
		t.Fatal("a Pod had no time to come up")
	}
	c.after(2 * time.Minute)
	if got := c.healing(joiner).NotComing; got != learner {
		t.Errorf("the Lease names %q, want %s", got, learner)
	}
	for _, name := range names[:2] {
		if c.healing(name) != (leases.Healing{}) {
			t.Errorf("%s is named too: %+v", name, c.healing(name))
		}
	}
}

func TestSlotOfAMemberThatDoesNotComeBackIsGivenBack(t *testing.T) {
	c, names := stuckCluster(t, 3)
	holder := names[0]
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
	c.pass()
	if taken() != nil {
		t.Error("no one comes for the slot, and it stays taken")
	}

	// A Pod of that name that runs takes it over by itself.
	c.node(c.nodeName(), true)
	c.kubelet(holder, false)
	c.pass()
	c.editRecord(func(r *leases.Record) { r.Replacing = slot("a Pod that is gone") })
	c.after(time.Hour)
	if taken() == nil {
		t.Error("the slot was taken from a member whose Pod runs")
	}
}
