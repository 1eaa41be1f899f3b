package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// times are those of savedAt, and of the first state that can be restored.
func times(o *Observed) {
	savedAt(o)
	o.Full.Reports.Since = time.Date(2026, 11, 19, 0, 0, 9, 0, time.UTC)
}

func TestStatusHasTheRestorableWindow(t *testing.T) {
	at := func(day, hour, minute, second int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 11, day, hour, minute, second, 0, time.UTC)}
	}
	good := v1alpha1.BackupStatus{LastFullTime: at(25, 0, 0, 9), RestorableFrom: at(19, 0, 0, 9)}
	failing := good
	failing.RestorableTo = at(26, 13, 4, 59)
	for name, c := range map[string]struct {
		desired Desired
		change  func(*Observed)
		before  *v1alpha1.BackupStatus
		want    *v1alpha1.BackupStatus
	}{
		"backups succeed":          {Desired{Replicas: 3, Backup: true}, func(o *Observed) { saved(o); times(o) }, nil, &good},
		"backups succeed again":    {Desired{Replicas: 3, Backup: true}, func(o *Observed) { saved(o); times(o) }, &failing, &good},
		"backups fail":             {Desired{Replicas: 3, Backup: true}, func(o *Observed) { unsaved(o); times(o) }, &good, &failing},
		"only full backups fail":   {Desired{Replicas: 3, Backup: true}, func(o *Observed) { saved(o); times(o); o.Full.Liveness = leases.Stale }, &failing, &good},
		"no backup was ever made":  {Desired{Replicas: 3, Backup: true}, func(o *Observed) { o.Full, o.Delta = never(), never() }, nil, nil},
		"the Lease cannot be read": {Desired{Replicas: 3, Backup: true}, func(o *Observed) { saved(o); o.Full.Reports = leases.Backup{} }, &failing, &failing},
		"an agent reports no window": {Desired{Replicas: 3, Backup: true}, func(o *Observed) { saved(o); savedAt(o) }, nil,
			&v1alpha1.BackupStatus{LastFullTime: at(25, 0, 0, 9)}},
		"spec.backup was removed": {Desired{Replicas: 3}, func(o *Observed) { saved(o); times(o) }, &good, nil},
		"druid has just started": {Desired{Replicas: 3, Backup: true}, func(o *Observed) {
			saved(o)
			times(o)
			o.Full.Liveness, o.Delta.Liveness = leases.Unknown, leases.Unknown
		}, &failing, &failing},
		"no delta backup is saved": {Desired{Replicas: 3, Backup: true}, func(o *Observed) { unsaved(o); times(o); o.Delta.Reports.Revision = 0 }, nil,
			&v1alpha1.BackupStatus{LastFullTime: at(25, 0, 0, 9), RestorableFrom: at(19, 0, 0, 9), RestorableTo: at(25, 0, 0, 9)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := v1alpha1.EtcdClusterStatus{Backup: c.before}
			if diff := cmp.Diff(c.want, Status(Evaluate(c.desired, whole(c.change)), before, nil, 1, metav1.Now()).Backup); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A delta backup is saved every few seconds. A write for each would be one for each cluster.
func TestStatusIsTheSameAfterADeltaBackup(t *testing.T) {
	now := metav1.Now()
	before := Status(Evaluate(Desired{Replicas: 3, Backup: true}, whole(saved, times)), v1alpha1.EtcdClusterStatus{}, nil, 1, now)
	after := Status(Evaluate(Desired{Replicas: 3, Backup: true}, whole(saved, times, func(o *Observed) {
		o.Delta.Reports.Revision, o.Delta.Reports.Taken, o.Delta.Renewed = 1000, time.Now(), time.Now()
	})), before, nil, 1, now)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}
