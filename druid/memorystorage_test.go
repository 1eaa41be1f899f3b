package druid

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// inMemory makes a formed cluster called demo whose members store in memory.
func (s *stage) inMemory(replicas int32) []string {
	s.Helper()
	cluster := s.newCluster("demo", replicas)
	cluster.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("1Gi"), Medium: v1alpha1.StorageMemory}
	cluster.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
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
			err = errors.Join(err, s.markedInMemory(name))
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

// markedInMemory says whether the Lease names the Pod, and the Pod as the volume, and the Pod's volume is memory.
func (s *stage) markedInMemory(name string) error {
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil {
		return err
	}
	m, err := s.store("demo").Member(s.Context(), name)
	if err == nil && (m.PodUID != string(pod.UID) || m.VolumeUID != string(pod.UID)) {
		err = fmt.Errorf("Lease %s names Pod %q and volume %q, want both to be %s", name, m.PodUID, m.VolumeUID, pod.UID)
	}
	for _, volume := range pod.Spec.Volumes {
		if e := volume.EmptyDir; volume.Name == "data" && e != nil && e.Medium == corev1.StorageMediumMemory && e.SizeLimit.String() == "1Gi" {
			return err
		}
	}
	return errors.Join(err, fmt.Errorf("volumes of Pod %s are %+v", name, pod.Spec.Volumes))
}

func TestMembersInMemoryHaveNoClaims(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.inMemory(3)
	s.beat = func() { s.renew(names) }
	var claims corev1.PersistentVolumeClaimList
	if err := s.List(t.Context(), &claims, client.InNamespace(s.namespace)); err != nil || len(claims.Items) > 0 {
		t.Errorf("there are claims: %v, %v", claims.Items, err)
	}
	lost := names[2]
	before := s.uids(names, &corev1.Pod{})[lost]
	s.end(lost)
	s.replaced(lost, before, &corev1.Pod{})
	s.eventually("mark the Lease again", func() error { return s.markedInMemory(lost) })
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
	s.words(v1alpha1.ConditionProgressing, []string{only, "stores in memory"}, nil)
	if now := s.uids([]string{only}, &corev1.Pod{})[only]; now != uid {
		t.Errorf("Pod %s is %s, want %s", only, now, uid)
	}
	// When it is lost all the same nothing is formed in its place.
	s.beat = nil
	s.end(only)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonDataLost)
	s.eventually("make the Pod again", func() error { return s.markedInMemory(only) })
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
