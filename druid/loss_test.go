package druid

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
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

func TestDeletedClaimGoesWithItsPodAndBothComeBack(t *testing.T) {
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
	removalCandidate := ""
	s.eventually("delete one Pod", func() error {
		got := terminating()
		if len(got) != 1 {
			return fmt.Errorf("%v terminate, want one", got)
		}
		removalCandidate = got[0]
		return nil
	})

	s.end(removalCandidate)
	s.eventually("a Pod must not keep the claim from going", func() error {
		if pods := s.calls.creations("/pods"); len(pods) != 3 {
			return fmt.Errorf("%d Pods were created, want 3", len(pods))
		}
		return nil
	})
	var claim corev1.PersistentVolumeClaim
	s.edit(removalCandidate, &claim, func() {
		if len(claim.Finalizers) == 0 {
			t.Fatal("the claim has no finalizer: the API server does not protect claims in use, and this test shows nothing")
		}
		controllerutil.RemoveFinalizer(&claim, claim.Finalizers[0])
	})
	s.replaced(removalCandidate, claims[removalCandidate], &corev1.PersistentVolumeClaim{})
	s.replaced(removalCandidate, pods[removalCandidate], &corev1.Pod{})
	s.eventually("mark", func() error { return s.marked(removalCandidate) })
	if got := terminating(); len(got) != 0 {
		t.Errorf("%v terminate while %s heals", got, removalCandidate)
	}

	// Healed: the next one has its turn.
	s.binder(removalCandidate)
	s.kubelet(removalCandidate, true)
	s.agent("demo", removalCandidate, 77, leases.RoleMember)
	s.eventually("delete the next Pod", func() error {
		if got := terminating(); len(got) != 1 || got[0] == removalCandidate {
			return fmt.Errorf("%v terminate, want one other than %s", got, removalCandidate)
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

func TestAllLeasesDeletedComeBackAndNothingElseChanges(t *testing.T) {
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

func TestRecordThatVanishedBeforeTheClusterWasKnownLetsNoOneForm(t *testing.T) {
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
