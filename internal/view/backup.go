package view

import (
	"cmp"
	"time"

	"github.com/etcd-druid/druid/leases"
)

// Backup is what the Leases report about the backups of a cluster.
type Backup struct {
	// Saved says up to which revision everything is saved, and SavedAt when everything due was last known to be saved.
	Saved   *int64     `json:"savedRevision,omitempty"`
	SavedAt *time.Time `json:"savedAt,omitempty"`
	// Unsaved is how old the oldest write was that was not saved then, in seconds.
	Unsaved float64 `json:"unsavedSeconds,omitempty"`
	// FullAt, FullRevision and FullSize, in bytes, are those of the last full backup.
	FullAt       *time.Time `json:"fullAt,omitempty"`
	FullRevision *int64     `json:"fullRevision,omitempty"`
	FullSize     *int64     `json:"fullSizeBytes,omitempty"`
	Lineage      string     `json:"lineage,omitempty"`
	// RestorableFrom and RestorableTo are the beginning and the end of the newest sequence of states without a gap that can
	// be restored.
	RestorableFrom *time.Time `json:"restorableFrom,omitempty"`
	RestorableTo   *time.Time `json:"restorableTo,omitempty"`
	// Error is that of the last attempt, and Cause its kind.
	Error string `json:"error,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Verdict is that of the last verification: Verified, Broken, or Never if there was none.
	Verdict          string     `json:"verdict,omitempty"`
	VerifiedAt       *time.Time `json:"verifiedAt,omitempty"`
	VerifiedRevision *int64     `json:"verifiedRevision,omitempty"`
	// Trouble is why the last verification had no result, or a bad one.
	Trouble string `json:"verifyTrouble,omitempty"`
}

// NeverVerified is the verdict of backups that no agent has verified yet.
const NeverVerified = "Never"

// backup is nil without spec.backup. Where no Lease says it, the times are those of the status.
func (f findings) backup() *Backup {
	if f.Cluster.Spec.Backup == nil {
		return nil
	}
	b := &Backup{}
	if s := f.Cluster.Status.Backup; s != nil {
		b.FullAt, b.RestorableFrom, b.RestorableTo = timeOf(s.LastFullTime), timeOf(s.RestorableFrom), timeOf(s.RestorableTo)
	}
	if f.full != nil {
		b.FullAt, b.FullRevision, b.FullSize = cmp.Or(moment(f.full.Taken), b.FullAt), Known(f.full.Revision), Known(f.full.Size)
		b.RestorableFrom = cmp.Or(moment(f.full.Since), b.RestorableFrom)
		b.Saved, b.SavedAt = b.FullRevision, b.FullAt
		b.fail(*f.full)
	}
	if f.delta != nil {
		if f.delta.Revision > 0 {
			b.Saved, b.Unsaved = Known(f.delta.Revision), f.delta.Lag.Seconds()
			if at := f.deltaLease.Spec.RenewTime; at != nil {
				b.SavedAt = moment(at.Time)
			}
		}
		b.fail(*f.delta)
	}
	if b.SavedAt != nil {
		b.RestorableTo = b.SavedAt
		if b.FullAt != nil && b.FullAt.After(*b.SavedAt) { // delta backups failed, and a full backup succeeded
			b.RestorableTo = b.FullAt
		}
	}
	if v := f.verified; v != nil {
		b.Verdict, b.VerifiedAt, b.VerifiedRevision, b.Trouble = cmp.Or(string(v.Verdict), NeverVerified), moment(v.At), Known(v.Revision), v.Trouble
	}
	return b
}

// fail adds the error of a Lease. Those of delta backups come last, for they are newer.
func (b *Backup) fail(of leases.Backup) {
	if of.Lineage != "" {
		b.Lineage = of.Lineage
	}
	if of.Error != "" {
		b.Error, b.Cause = of.Error, string(of.Cause)
	}
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
