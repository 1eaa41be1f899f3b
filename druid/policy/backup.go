package policy

import (
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// Snapshot is one of the two Leases in which the agents report backups.
type Snapshot struct {
	Lease LeaseState
	// Reports is empty where the Lease cannot be read.
	Reports leases.Backup
	// Verified is what the Lease of the full backups reports about verifications. Unreadable reports that it cannot be
	// read.
	Verified   leases.Verification
	Unreadable bool
	// Liveness is also Stale for a Lease that was not renewed within the time that the first backup may take.
	Liveness leases.Liveness
}

// backups is the reason that condition BackupReady has, or would have if the cluster were not paused. It is empty where the cluster is
// not backed up.
type backups string

func backupsOf(d Desired, o Observed) backups {
	if !d.Backup {
		return ""
	}
	return backups(backupRows.Decide(backupFactsOf(d, o)).Verdict.reason)
}

// block reports whether backups fail, so that steps that could lose the last good copy must wait. Unknown blocks
// nothing.
func (b backups) block() bool {
	return b == v1alpha1.ReasonFullBackupFailed || b == v1alpha1.ReasonIncrementalBackupFailed
}

// backupSteps create the Leases in which the agents report backups, and delete them when spec.backup is removed.
func backupSteps(e Evaluation, add func(Step)) {
	for _, s := range []struct {
		component leases.Component
		snapshot  Snapshot
	}{{leases.ComponentFullSnapshot, e.Full}, {leases.ComponentDeltaSnapshot, e.Delta}} {
		switch {
		case e.Backup && s.snapshot.Lease == LeaseAbsent:
			add(Step{Kind: CreateSnapshotLease, Rule: "snapshot-lease-missing", Stage: StageShared, Object: string(s.component)})
		case !e.Backup && s.snapshot.Lease == LeaseOurs:
			add(Step{Kind: DeleteSnapshotLease, Rule: "backup-ended", Stage: StageLate, Object: string(s.component)})
		}
	}
}
