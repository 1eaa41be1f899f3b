package druid

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// TestNamedMembersVolumeKept: the volume of a member that the user names is kept.
// A member is replaced while its volume is to stay. Another one is replaced later, and its volume is deleted as the spec says.
func TestNamedMembersVolumeKept(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	s.startDruid()
	names := s.whole(3)
	for _, bad := range []string{"demo-other", names[0] + ",demo-other", names[0] + ","} {
		s.denies(v1alpha1.KeepVolumeAnnotation, bad, "must have names of members, separated by commas: "+strings.Join(names, ", "))
	}
	if err := s.annotates(v1alpha1.KeepVolumeAnnotation, names[0]); err != nil {
		t.Fatal(err)
	}
	uid := s.uids(names[:1], &corev1.PersistentVolumeClaim{})[names[0]]
	s.replaces(names, names[0], 4)
	s.reported(v1alpha1.EventPVCRetained, names[0])
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	var kept corev1.PersistentVolumeClaim
	if err := s.fetch(names[0], &kept); err != nil || kept.UID != uid || kept.DeletionTimestamp != nil {
		t.Fatalf("claim is %+v, %v; want it to stay", kept, err)
	}
	if kept.Labels[leases.LabelCluster] != "demo" || kept.Labels[leases.LabelMember] != "" || kept.Labels[manifests.LabelClusterUID] != "" ||
		len(kept.OwnerReferences) > 0 {
		t.Errorf("claim has labels %v and owners %v, want only the name of the cluster", kept.Labels, kept.OwnerReferences)
	}

	// The name of a member that has left can stay next to others.
	left := s.members("demo", 3)
	if err := s.annotates(v1alpha1.KeepVolumeAnnotation, names[0]+", "+names[1]); err != nil {
		t.Error(err)
	}
	if err := s.annotates(v1alpha1.KeepVolumeAnnotation, names[0]); err != nil {
		t.Error(err)
	}
	s.replaces(left, names[1], 5)
	s.claimGoes(names[1])
	s.eventually("delete the claim of "+names[1], func() error { return s.gone(names[1], &corev1.PersistentVolumeClaim{}) })
	if err := s.fetch(names[0], &kept); err != nil || kept.DeletionTimestamp != nil {
		t.Errorf("claim is %+v, %v; want it to stay", kept, err)
	}
}

// replaces requests a new member in the place of the named one, which joins with the raft ID, and waits until the named one has left.
func (s *stage) replaces(members []string, named string, raftID uint64) {
	s.Helper()
	if err := s.annotates(v1alpha1.ReplaceAnnotation, named); err != nil {
		s.Fatal(err)
	}
	joins := s.newcomer(slices.Clone(members))
	s.kubelet(joins, true)
	s.agent("demo", joins, raftID, leases.RoleMember)
	if got := s.requested().Member; got != named {
		s.Fatalf("%s leaves, want %s", got, named)
	}
	s.answer(named, done)
	s.struck(named)
	s.podGoes(named)
}
