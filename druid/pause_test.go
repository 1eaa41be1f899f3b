package druid

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// alone publishes, as the leader's agent does, that the member is the only one of the raft group.
func (s *stage) alone(name string) {
	s.Helper()
	s.eventually("publish the list", func() error {
		record, version, err := s.store("demo").Record(s.Context())
		if err != nil {
			return err
		}
		record.MemberList = &leases.MemberList{RaftTerm: 2, RaftIndex: 9, Members: []leases.ListedMember{{ID: "1", Name: name}}}
		_, err = s.store("demo").UpdateRecord(s.Context(), version, record)
		return err
	})
}

// paused says whether the status reports that the member is kept on its claim.
func (s *stage) paused(name string) error {
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		return err
	}
	for _, m := range cluster.Status.Members {
		if m.Name == name && m.Status == v1alpha1.MemberPaused && m.Role == "" && strings.Contains(m.Message, "PersistentVolumeClaim "+name) {
			return nil
		}
	}
	return fmt.Errorf("members are %+v, want %s to be paused", cluster.Status.Members, name)
}

// savedUpTo lets the leader's agent report up to which revision all is saved.
func (s *stage) savedUpTo(revision int64) {
	s.Helper()
	now := time.Now()
	for _, component := range []leases.Component{leases.ComponentFullSnapshot, leases.ComponentDeltaSnapshot} {
		s.eventually("report a backup", func() error {
			return s.store("demo").RenewBackup(s.Context(), component, leases.BackupPatch{
				Backup: leases.Backup{Revision: revision, Object: "some", Size: 1, SHA256: "ab"}, RenewTime: &now, Duration: time.Hour,
			})
		})
	}
}

// holds lets the member's agent report the revision of its etcd.
func (s *stage) holds(name string, revision int64) {
	s.Helper()
	s.eventually("report the revision", func() error {
		_, err := s.store("demo").PatchMember(s.Context(), name, leases.MemberPatch{Member: leases.Member{Revision: revision}})
		return err
	})
}

func TestPausedClusterComesBackOnTheSameClaim(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	lastMember := names[0]
	claims := s.uids(names, &corev1.PersistentVolumeClaim{})
	s.scale("demo", 0)
	for range 2 {
		member := s.requested().Member
		s.answer(member, done)
		s.struck(member)
		s.swept(member)
	}
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonPausing)
	s.alone(lastMember)
	s.podGoes(lastMember)
	words := s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonPaused).Message
	if !strings.Contains(words, "PersistentVolumeClaim "+lastMember) {
		t.Errorf("message %q does not name the claim of %s", words, lastMember)
	}
	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	s.eventually("pause", func() error { return s.paused(lastMember) })
	s.eventually("delete the budget", func() error {
		return s.gone(manifests.DisruptionBudgetName("demo"), &policyv1.PodDisruptionBudget{})
	})
	s.reported(v1alpha1.ReasonPaused, "")
	stop()
	if err := s.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	s.startDruid()
	s.eventually("make the Leases again", func() error {
		record, err := s.record("demo")
		if err == nil && (record.Phase != leases.PhaseFormed || record.ClusterID != clusterID || !cmp.Equal(record.Members, []string{lastMember})) {
			err = fmt.Errorf("the record is %+v", record)
		}
		if err == nil {
			err = s.fetch(lastMember, &coordinationv1.Lease{})
		}
		return err
	})
	s.eventually("rest", func() error { return s.rests() })
	if err := s.gone(lastMember, &corev1.Pod{}); err != nil {
		t.Error(err)
	}
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)

	s.scale("demo", 1)
	if got := s.members("demo", 1); got[0] != lastMember {
		t.Errorf("%v came back, want %s", got, lastMember)
	}
	if now := s.uids([]string{lastMember}, &corev1.PersistentVolumeClaim{}); now[lastMember] != claims[lastMember] {
		t.Errorf("claim %s is %s, want %s", lastMember, now[lastMember], claims[lastMember])
	}
	s.kubelet(lastMember, true)
	s.beat = func() { s.agent("demo", lastMember, 1, leases.RoleLeader) }
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	s.minAvailable(1)
	s.scale("demo", 3)
	s.members("demo", 3)
}

// TestPausedClusterNeverFormsAgain: a paused cluster whose claim was deleted is never formed again.
func TestPausedClusterNeverFormsAgain(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	lastMember := s.whole(1)[0]
	s.alone(lastMember)
	s.scale("demo", 0)
	s.podGoes(lastMember)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	if err := s.Delete(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: lastMember}}); err != nil {
		t.Fatal(err)
	}
	s.claimGoes(lastMember)
	words := s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonVolumeDeleted).Message
	if !strings.Contains(words, lastMember) || !strings.Contains(words, "spec.bootstrap.restore") {
		t.Errorf("message %q names neither the claim nor the action", words)
	}
	s.eventually("rest", func() error { return s.rests() })
	if err := s.gone(lastMember, &corev1.PersistentVolumeClaim{}); err != nil {
		t.Error(err)
	}
	// The agent of an empty volume forms nothing by a record that says Formed.
	s.scale("demo", 1)
	s.members("demo", 1)
	if record, err := s.record("demo"); err != nil || record.Phase != leases.PhaseFormed || record.ClusterID != clusterID {
		t.Errorf("the record is %+v, %v; want it as it was", record, err)
	}
}

// TestPauseWaitsForLastBackup: a pause waits until the last member is backed up.
func TestPauseWaitsForLastBackup(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	lastMember := s.whole(1)[0]
	s.patchCluster(backupsOn)
	s.eventually("backups begin", func() error { return s.snapshotLeases(true) })
	s.alone(lastMember)
	s.holds(lastMember, 9)
	s.savedUpTo(8)
	s.scale("demo", 0)
	s.words(v1alpha1.ConditionProgressing, []string{lastMember, "backed up before its Pod is deleted"}, nil)
	s.eventually("take its clients away", func() error {
		var pod corev1.Pod
		err := s.fetch(lastMember, &pod)
		if err == nil && (pod.Labels[manifests.LabelServing] != "" || pod.DeletionTimestamp != nil) {
			err = fmt.Errorf("Pod bears %v, deleted at %v; want it to run and not to serve", pod.Labels, pod.DeletionTimestamp)
		}
		return err
	})
	s.savedUpTo(9)
	s.podGoes(lastMember)
	s.condition("demo", v1alpha1.ConditionBackupReady, metav1.ConditionUnknown, v1alpha1.ReasonPaused)
	s.snapshot("later", v1alpha1.SnapshotFull, nil)
	s.eventually("say why backups stop", func() error {
		var snapshot v1alpha1.EtcdSnapshot
		if err := s.fetch("later", &snapshot); err != nil {
			return err
		}
		if snapshot.Status.Phase != v1alpha1.SnapshotPending || !strings.Contains(snapshot.Status.Message, "paused") {
			return fmt.Errorf("status is %+v", snapshot.Status)
		}
		return nil
	})
}

func TestClusterMadeWithoutReplicasReportsSo(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createCluster("demo", 0)
	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	s.words(v1alpha1.ConditionProgressing, []string{"no member was ever created"}, nil)
	if made := s.calls.matching("POST", "/leases"); len(made) > 0 {
		t.Errorf("druid made %v", made)
	}
	s.scale("demo", 1)
	s.members("demo", 1)
}
