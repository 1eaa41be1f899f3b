package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

const (
	full  = leases.ComponentFullSnapshot
	delta = leases.ComponentDeltaSnapshot
	// day is longer than any test runs.
	day = 24 * time.Hour
)

func (s *stage) backupIs(status metav1.ConditionStatus, reason string) {
	s.Helper()
	s.condition("demo", v1alpha1.ConditionBackupReady, status, reason)
}

// The whole life of backups: asked for, made, failing, made again by another druid's eyes, and given up.
func TestBackupReadyFollowsTheLeases(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	s.routes(names...)
	s.patchCluster(backupsOn)
	s.eventually("prepare for backups", func() error { return s.snapshotLeases(true) })
	s.eventually("inform the agents", func() error {
		b, err := s.backup()
		if err == nil && b == nil {
			err = errors.New("their configuration has no backup")
		}
		return err
	})
	s.backupIs(metav1.ConditionUnknown, v1alpha1.ReasonUnknown)
	s.saves(full, day)
	s.backupIs(metav1.ConditionTrue, v1alpha1.ReasonFullBackupSucceeded)
	s.saves(delta, day)
	s.backupIs(metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupSucceeded)
	s.minAvailable(2)

	s.supersedes("00000009-old")
	s.backupIs(metav1.ConditionFalse, v1alpha1.ReasonBackupSuperseded)
	s.words(v1alpha1.ConditionBackupReady, []string{"00000009-old", "prefix"}, nil)
	s.minAvailable(2)
	s.supersedes("")
	s.backupIs(metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupSucceeded)

	// A second is what it promises now, and then it is silent.
	s.saves(delta, time.Second)
	s.fails(delta, "bucket backups: access denied")
	s.backupIs(metav1.ConditionFalse, v1alpha1.ReasonDeltaBackupFailed)
	s.words(v1alpha1.ConditionBackupReady, []string{"Changes since about " + time.Now().UTC().Format("2006-01-02 "), "access denied",
		"Unauthorized: correct the credentials of the backup store", "druid removes no member"}, nil)
	s.minAvailable(3)
	s.reported(v1alpha1.ReasonDeltaBackupFailed, "")
	s.scale("demo", 1)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonScaleDownBlocked)

	// A druid that just started has seen no failure, and keeps the message.
	stop()
	s.startDruid()
	s.renew(names)
	s.deleteLease(leases.LeaderName("demo"))
	s.eventually("look at the cluster", func() error { return s.fetch(leases.LeaderName("demo"), &coordinationv1.Lease{}) })
	s.words(v1alpha1.ConditionProgressing, []string{"backups fail"}, nil)
	for _, name := range names {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil || pod.Labels[manifests.LabelServing] == "" {
			t.Errorf("clients of %s suffer from a backup that fails: %v %v", name, pod.Labels, err)
		}
	}
	if record, err := s.record("demo"); err != nil || len(record.Members) != 3 || record.PendingRemoval != nil {
		t.Errorf("members %v, retiring %v (%v), want all three and none", record.Members, record.PendingRemoval, err)
	}

	// Agents renew again and again: a druid believes what it saw change.
	s.beat = func() {
		s.renew(names)
		s.saves(delta, day)
	}
	s.backupIs(metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupSucceeded)
	s.slot() // now the one that is too many may go
	s.beat = nil
	s.patchCluster(backupsOff)
	s.eventually("forget backups", func() error { return s.snapshotLeases(false) })
	s.eventually("take the condition away", func() error {
		var c v1alpha1.EtcdCluster
		err := s.fetch("demo", &c)
		if err == nil && meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionBackupReady) != nil {
			err = errors.New("it is there")
		}
		return err
	})
}

// TestPodsReplacedDespiteFailedBackup: Pods are replaced although backups fail, if the spec says so.
// A rolling update and evictions wait while backups fail, until the spec says that they continue.
func TestPodsReplacedDespiteFailedBackup(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(backupsOn)
	c.pass()
	c.saves(full, day)
	c.saves(delta, time.Second)
	c.fails(delta, "bucket backups: access denied")
	c.pass()
	c.after(2 * time.Second)
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"123m"}}}}`)
	c.pass()
	if got := c.going(names); len(got) != 0 {
		t.Fatalf("%v were deleted although backups fail", got)
	}
	if p := c.progressing(); p.Reason != v1alpha1.ReasonRollingUpdateBlocked || !strings.Contains(p.Message, "backups fail") {
		t.Errorf("condition is %+v, want that it waits for backups", p)
	}
	c.patchCluster(`{"spec":{"backup":{"whenFailing":"Continue"}}}`)
	c.pass()
	if got := c.going(names); !slices.Equal(got, names[1:2]) {
		t.Fatalf("%v were deleted, want the first follower", got)
	}
	c.words(v1alpha1.ConditionBackupReady, []string{"spec.backup.whenFailing is Continue"}, []string{"allows no eviction"})
}

func TestPodsThatDoNotReachTheStoreAreNamed(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	s.patchCluster(`{"spec":{"backup":{"store":{"s3":{"bucket":"backups","credentialsSecretRef":{"name":"s3"}}}}}}`)
	s.backupIs(metav1.ConditionFalse, v1alpha1.ReasonBackupStoreNotAttached)
	s.words(v1alpha1.ConditionBackupReady, []string{names[0], names[2]}, nil)
	s.eventually("replace the first follower's Pod", func() error { return s.terminating(names[1]) })
	s.minAvailable(3) // no eviction next to it
	s.end(names[1])
	s.words(v1alpha1.ConditionBackupReady, []string{names[0], names[2]}, names[1:2])
	s.eventually("make the Pod with the Secret", func() error {
		var pod corev1.Pod
		if err := s.fetch(names[1], &pod); err != nil {
			return err
		}
		for _, v := range pod.Spec.Volumes {
			if v.Secret != nil && v.Secret.SecretName == "s3" {
				return nil
			}
		}
		return errors.New("it has no volume of the Secret")
	})
}

func TestClaimOfTheStoreIsChecked(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(3)
	s.patchCluster(`{"spec":{"backup":{"store":{"directory":{"claimName":"archive"}}}}}`)
	s.backupIs(metav1.ConditionFalse, v1alpha1.ReasonBackupClaimMissing)
	s.words(v1alpha1.ConditionBackupReady, []string{"PersistentVolumeClaim archive does not exist", "spec.backup.store.directory.claimName"},
		[]string{"Delete them one at a time"})
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "archive"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if err := s.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	s.backupIs(metav1.ConditionFalse, v1alpha1.ReasonBackupClaimNotShared)
	s.words(v1alpha1.ConditionBackupReady, []string{"archive has the access mode ReadWriteOncePod. Create a claim with ReadWriteMany"}, nil)
	if calls := s.calls.matching("PATCH", "/persistentvolumeclaims/archive"); len(calls) != 0 {
		t.Errorf("druid wrote to the claim of the user: %v", calls)
	}
}

// TestInvalidScheduleUsesDefault: an invalid schedule is reported and replaced by the default.
func TestInvalidScheduleUsesDefault(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(1)
	s.patchCluster(`{"spec":{"backup":{"store":{"s3":{"bucket":"backups"}},"full":{"schedule":"0 25 * * *"}}}}`)
	s.backupIs(metav1.ConditionFalse, v1alpha1.ReasonBackupSpecInvalid)
	s.words(v1alpha1.ConditionBackupReady, []string{"0 25 * * *", manifests.DefaultSchedule}, nil)
	b, err := s.backup()
	if err != nil || b == nil || b.Full.Schedule != manifests.DefaultSchedule {
		t.Errorf("the agents read %+v (%v), want the default schedule", b, err)
	}
	s.patchCluster(`{"spec":{"backup":{"full":{"schedule":"0 5 * * *"}}}}`)
	s.backupIs(metav1.ConditionUnknown, v1alpha1.ReasonUnknown)
}

func TestSomeoneElsesSnapshotLeaseIsLeftAlone(t *testing.T) {
	s := newStage(t)
	foreign := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: leases.FullSnapshotName("demo")}}
	if err := s.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.startDruid()
	s.whole(1)
	s.patchCluster(backupsOn)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonObjectNotOwned)
	s.backupIs(metav1.ConditionUnknown, v1alpha1.ReasonUnknown)
	s.patchCluster(backupsOff)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	var after coordinationv1.Lease
	if err := s.fetch(foreign.Name, &after); err != nil || after.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("it is %+v (%v), want it as it was", after, err)
	}
}

const (
	// backupsOn asks for backups to a bucket that needs no Secret, and backupsOff for none.
	backupsOn  = `{"spec":{"backup":{"store":{"s3":{"bucket":"backups"}}}}}`
	backupsOff = `{"spec":{"backup":null}}`
)

// snapshotLeases says whether the Leases that report backups, and the agents' right to write them, are there or are gone.
func (s *stage) snapshotLeases(want bool) error {
	var role rbacv1.Role
	if err := s.fetch(manifests.AgentName("demo"), &role); err != nil {
		return err
	}
	for _, name := range []string{leases.FullSnapshotName("demo"), leases.DeltaSnapshotName("demo")} {
		gone := s.gone(name, &coordinationv1.Lease{})
		if want != (gone != nil) {
			return errors.Join(gone, fmt.Errorf("Lease %s is there: %t, want %t", name, !want, want))
		}
		if allowed := slices.Contains(role.Rules[0].ResourceNames, name); allowed != want {
			return fmt.Errorf("the agents may write Lease %s: %t, want %t", name, allowed, want)
		}
	}
	return nil
}

// backup is what the agents read of backups.
func (s *stage) backup() (*config.Backup, error) {
	var object corev1.ConfigMap
	if err := s.fetch(manifests.AgentName("demo"), &object); err != nil {
		return nil, err
	}
	read, err := config.ParseReloadable([]byte(object.Data[config.ConfigFile]))
	return read.Backup, err
}

// saves lets the leader's agent report that everything is saved, for as long as it says.
func (s *stage) saves(component leases.Component, duration time.Duration) {
	s.Helper()
	now := time.Now()
	s.eventually("report a backup", func() error {
		return s.store("demo").RenewBackup(s.Context(), component, leases.BackupPatch{
			Backup: leases.Backup{Revision: now.UnixNano(), Object: "some", Size: 1, SHA256: "ab"}, RenewTime: &now, Duration: duration,
		})
	})
}

// fails lets it report that it could not, because the store denies access.
func (s *stage) fails(component leases.Component, why string) {
	s.Helper()
	s.eventually("report a failure", func() error {
		return s.store("demo").RenewBackup(s.Context(), component, leases.BackupPatch{Backup: leases.Backup{Error: why, Cause: leases.BackupUnauthorized}})
	})
}

// supersedes lets it report that the latest backup in its place is of the lineage, or of none other.
func (s *stage) supersedes(lineage string) {
	s.Helper()
	s.eventually("report whose backup is the latest", func() error {
		return s.store("demo").RenewBackup(s.Context(), full, leases.BackupPatch{Backup: leases.Backup{SupersededBy: lineage}})
	})
}

// words waits until the message of the cluster's condition holds all of want and none of the others.
func (s *stage) words(kind string, want, others []string) {
	s.Helper()
	s.eventually("say "+strings.Join(want, ", "), func() error {
		var c v1alpha1.EtcdCluster
		if err := s.fetch("demo", &c); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(c.Status.Conditions, kind)
		if condition == nil {
			return errors.New("there is no such condition")
		}
		missing := func(w string) bool { return !strings.Contains(condition.Message, w) }
		if slices.ContainsFunc(want, missing) || slices.ContainsFunc(others, func(w string) bool { return !missing(w) }) {
			return fmt.Errorf("it says %q, want %q and not %q", condition.Message, want, others)
		}
		return nil
	})
}
