package druid

import (
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

func (m *memory) facts(uid types.UID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[fact]bool{}
	for f := range m.since {
		all[f] = true
	}
	for f := range m.values {
		all[f] = true
	}
	for f := range m.renewals {
		all[f] = true
	}
	n := len(m.seen[uid])
	for f := range all {
		if f.cluster == uid && m.seen[uid][f] == 0 {
			n++
		}
	}
	return n
}

func TestAClockEndsWithTheWaitThatItMeasures(t *testing.T) {
	m, now := newMemory(), time.Now()
	key := types.NamespacedName{Namespace: "ns", Name: "demo"}
	waits := fact{"uid", "demo-a waits"}
	look := func(after time.Duration, ask bool) (lasts bool) {
		now = now.Add(after)
		m.beginLook(key, "uid")
		if ask {
			lasts, _ = m.lasts(waits, true, time.Minute, now)
		}
		m.endLook("uid")
		return lasts
	}
	look(0, true)
	if !look(time.Minute, true) {
		t.Error("a wait of a minute does not last for one")
	}
	look(time.Second, false)
	if look(time.Hour, true) {
		t.Error("a look that did not ask for the clock did not end it")
	}
	m.beginLook(key, "another")
	if n := m.facts("uid"); n > 0 {
		t.Errorf("%d facts of a cluster are kept whose name another one has", n)
	}
}

func TestNothingIsKeptOfAClusterThatIsGone(t *testing.T) {
	c, names := stuckCluster(t, 3)
	c.pass()
	c.after(time.Minute)
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	if c.memory.facts(cluster.UID) == 0 {
		t.Fatal("nothing was known of it, and this test shows nothing")
	}
	if err := c.stage.Delete(t.Context(), &cluster); err != nil {
		t.Fatal(err)
	}
	if err := c.fetch("demo", &cluster); !apierrors.IsNotFound(err) {
		t.Fatalf("still there: %v", err)
	}
	if err := c.reconcile(c.Reconciler); err != nil {
		t.Fatal(err)
	}
	if n := c.memory.facts(cluster.UID); n > 0 {
		t.Errorf("%d facts are kept", n)
	}
	if n := len(c.memory.judged); n > 0 {
		t.Errorf("%d Leases are remembered, of %v", n, names)
	}
}

func (c *clocked) waits(name string) {
	c.Helper()
	c.kubelet(name, false)
	c.stage.says(name, leases.Prefix+"rule", "await-quorum")
	c.stage.says(name, leases.Prefix+"reason", "no quorum responds, and this member has no data that it can resume")
}

func (c *clocked) serves(name string) {
	c.Helper()
	c.editLease(name, func(l *coordinationv1.Lease) {
		l.Annotations[leases.Prefix+"rule"] = "resume"
		delete(l.Annotations, leases.Prefix+"reason")
	})
	c.kubelet(name, true)
}

func TestAnEarlierWaitIsNotTakenForOneOfNow(t *testing.T) {
	c, names := stuckCluster(t, 3)
	c.waits(names[1])
	c.pass()
	c.at = c.at.Add(3 * time.Second)
	c.serves(names[1])
	c.pass()
	c.at = c.at.Add(20 * time.Minute)
	c.pass()
	c.waits(names[1])
	c.pass()
	if d := c.degraded(t); d.Reason == v1alpha1.ReasonMemberCannotStart {
		t.Errorf("a wait that just began counts as one of twenty minutes: %s", d.Message)
	}
	c.at = c.at.Add(startMaxWait)
	c.pass()
	if d := c.degraded(t); d.Reason != v1alpha1.ReasonMemberCannotStart {
		t.Errorf("a wait that lasts is not reported: %s", d.Reason)
	}
}

// inPods makes a formed cluster called demo whose members store in their Pods.
func (s *stage) inPods(medium v1alpha1.StorageMedium, replicas int32) []string {
	s.Helper()
	cluster := s.newCluster("demo", replicas)
	cluster.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("1Gi"), Medium: medium}
	if medium == v1alpha1.StorageMemory {
		cluster.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
	}
	if err := s.Create(s.Context(), cluster); err != nil {
		s.Fatal(err)
	}
	var names []string
	s.eventually("mark the Leases with Pods as volumes", func() error {
		record, err := s.record("demo")
		if err != nil || len(record.Members) != int(replicas) {
			return errors.Join(err, fmt.Errorf("the record is %+v", record))
		}
		for _, name := range record.Members {
			err = errors.Join(err, s.markedInPod(name))
		}
		names = record.Members
		return err
	})
	s.eventually("form", func() error {
		record, version, err := s.store("demo").Record(s.Context())
		if err != nil {
			return err
		}
		record.Phase, record.ClusterID, record.FormedEpoch = leases.PhaseFormed, clusterID, record.Epoch
		record.Nonce, record.Lineage = "0123456789abcdef", leases.LineageOf(1, "0123456789abcdef")
		_, err = s.store("demo").UpdateRecord(s.Context(), version, record)
		return err
	})
	for _, name := range names {
		s.kubelet(name, true)
	}
	s.renew(names)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	return names
}

// markedInPod says whether the Lease names the Pod, and the Pod as the volume, and the Pod has that volume.
func (s *stage) markedInPod(name string) error {
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil {
		return err
	}
	m, err := s.store("demo").Member(s.Context(), name)
	if err == nil && (m.PodUID != string(pod.UID) || m.VolumeUID != string(pod.UID)) {
		err = fmt.Errorf("Lease %s names Pod %q and volume %q, want both to be %s", name, m.PodUID, m.VolumeUID, pod.UID)
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == "data" && volume.EmptyDir != nil {
			return err
		}
	}
	return errors.Join(err, fmt.Errorf("volumes of Pod %s are %+v", name, pod.Spec.Volumes))
}

func TestMembersInPodsHaveNoClaims(t *testing.T) {
	for _, medium := range []v1alpha1.StorageMedium{v1alpha1.StorageMemory, v1alpha1.StorageDisk} {
		t.Run(string(medium), func(t *testing.T) { testMembersInPodsHaveNoClaims(t, medium) })
	}
}

func testMembersInPodsHaveNoClaims(t *testing.T, medium v1alpha1.StorageMedium) {
	s := newStage(t)
	s.startDruid()
	names := s.inPods(medium, 3)
	s.beat = func() { s.renew(names) }
	var claims corev1.PersistentVolumeClaimList
	if err := s.List(t.Context(), &claims, client.InNamespace(s.namespace)); err != nil || len(claims.Items) > 0 {
		t.Errorf("there are claims: %v, %v", claims.Items, err)
	}
	lost := names[2]
	before := s.uids(names, &corev1.Pod{})[lost]
	s.end(lost)
	s.replaced(lost, before, &corev1.Pod{})
	s.eventually("mark the Lease again", func() error { return s.markedInPod(lost) })
	s.kubelet(lost, true)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	// A member that leaves leaves nothing.
	s.scale("demo", 1)
	for range 2 {
		member := s.requested().Member
		s.answer(member, done)
		s.struck(member)
		s.swept(member)
	}
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	// The only copy that is left is not replaced by a Pod of another spec.
	only := s.onlyMember()
	uid := s.uids([]string{only}, &corev1.Pod{})[only]
	s.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"123m"}}}}`)
	s.words(v1alpha1.ConditionProgressing, []string{only, "stores its data in its Pod"}, nil)
	if now := s.uids([]string{only}, &corev1.Pod{})[only]; now != uid {
		t.Errorf("Pod %s is %s, want %s", only, now, uid)
	}
	// When it is lost all the same nothing is formed in its place.
	s.beat = nil
	s.end(only)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonDataLost)
	s.eventually("make the Pod again", func() error { return s.markedInPod(only) })
	record, err := s.record("demo")
	if err != nil || record.Phase != leases.PhaseFormed || record.ClusterID != clusterID {
		t.Errorf("the record is %+v, %v; want it as it was", record, err)
	}
}

// onlyMember is the only name that the record lists.
func (s *stage) onlyMember() string {
	s.Helper()
	record, err := s.record("demo")
	if err != nil || len(record.Members) != 1 {
		s.Fatalf("the record is %+v, %v; want one member", record, err)
	}
	return record.Members[0]
}
