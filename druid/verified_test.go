package druid

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// What an agent found out about the backups is reported as a condition and an Event, for as long as there are backups.
func TestBackupVerifiedFollowsTheLease(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.routes(s.whole(1)...)
	s.patchCluster(backupsOn)
	s.eventually("prepare for backups", func() error { return s.snapshotLeases(true) })
	is := func(status metav1.ConditionStatus, reason, words string) {
		s.Helper()
		s.condition("demo", v1alpha1.ConditionBackupVerified, status, reason)
		s.words(v1alpha1.ConditionBackupVerified, []string{words}, nil)
	}
	is(metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not verified yet")
	now := time.Now()
	inform := func(v leases.Verification) {
		s.Helper()
		v.Lineage, v.At, v.Tried = "00000001-a", now, now
		s.eventually("report a proof", func() error { return s.store("demo").ReportVerification(s.Context(), v) })
	}
	s.eventually("report a backup", func() error {
		return s.store("demo").RenewBackup(s.Context(), full, leases.BackupPatch{
			Backup: leases.Backup{Revision: 7, Lineage: "00000001-a", Object: "some", Size: 1}, RenewTime: &now, Duration: day,
		})
	})
	inform(leases.Verification{Verdict: leases.VerdictProven, Full: "some", ProvenFull: "some", Revision: 7})
	is(metav1.ConditionTrue, v1alpha1.ReasonVerificationSucceeded, "what etcd reported")
	inform(leases.Verification{Verdict: leases.VerdictBroken, Full: "some", ProvenFull: "older", Broken: "some", Trouble: "full some is damaged"})
	is(metav1.ConditionFalse, v1alpha1.ReasonVerificationFailed, "full some is damaged")
	s.notified(v1alpha1.ReasonVerificationFailed, "")
	s.patchCluster(backupsOff)
	s.eventually("take the condition away", func() error {
		var c v1alpha1.EtcdCluster
		err := s.fetch("demo", &c)
		if err == nil && meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionBackupVerified) != nil {
			err = errors.New("it is there")
		}
		return err
	})
}
