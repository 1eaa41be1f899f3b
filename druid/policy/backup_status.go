package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// backupStatus has the times of the backups that do not change between two full backups. A Lease that cannot be read
// leaves them as they were.
func backupStatus(p messageContext, before *v1alpha1.BackupStatus) *v1alpha1.BackupStatus {
	if !p.Backup {
		return nil
	}
	full := p.Full.Reports
	if !full.EverSaved() {
		return before
	}
	was := v1alpha1.BackupStatus{}
	if before != nil {
		was = *before
	}
	now := v1alpha1.BackupStatus{LastFullTime: sameTime(was.LastFullTime, full.Taken), RestorableFrom: sameTime(was.RestorableFrom, full.Since)}
	switch {
	case p.backups.failing() && p.unsaved() != "", p.resting() == restingPaused:
		now.RestorableTo = sameTime(was.RestorableTo, p.savedUntil())
	case p.backups.reason == v1alpha1.ReasonUnknown:
		now.RestorableTo = was.RestorableTo // druid has just started, and does not know whether backups succeed
	}
	return &now
}

// sameTime is at in the precision of the API, or was if that is the same time. Zero, which is unknown, leaves was.
func sameTime(was *metav1.Time, at time.Time) *metav1.Time {
	at = at.Truncate(time.Second)
	if at.IsZero() || was != nil && was.Time.Equal(at) {
		return was
	}
	return &metav1.Time{Time: at}
}
