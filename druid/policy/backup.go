package policy

import (
	"cmp"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
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
	// Renewed is when an agent last reported by its clock that everything due was saved, zero for never. It does not change
	// while backups fail.
	Renewed time.Time
	// Liveness is also Stale for a Lease that was not renewed within the time that the first backup may take.
	Liveness leases.Liveness
}

// backups is what the policies know about the backups of a cluster.
type backups struct {
	// reason that condition BackupReady has, or would have if the cluster were not paused. It is empty where the cluster
	// is not backed up.
	reason string
	// whenFailing is what spec.backup.whenFailing requests.
	whenFailing WhenFailing
}

func backupsOf(d Desired, o Observed) backups {
	b := backups{whenFailing: cmp.Or(d.WhenFailing, WhenFailingBlock)}
	if d.Backup {
		b.reason = backupRows.Decide(backupFactsOf(d, o)).Verdict.reason
	}
	return b
}

// failing reports whether backups fail. Unknown does not count.
func (b backups) failing() bool {
	return b.reason == v1alpha1.ReasonFullBackupFailed || b.reason == v1alpha1.ReasonIncrementalBackupFailed
}

// block reports whether the action must wait, because backups fail.
func (b backups) block(action backupAction) bool {
	return backupHolds.Decide(backupHoldFacts{failing: rules.YesNoOf(b.failing()), action: action, whenFailing: b.whenFailing}).Verdict == holdWaits
}

type (
	// WhenFailing is what a user requests for the time in which backups fail.
	WhenFailing uint8

	backupAction uint8 // what could reduce the copies of the data
	backupHold   uint8 // what failing backups mean for it
)

// The values of spec.backup.whenFailing.
const (
	WhenFailingBlock WhenFailing = 1 << iota
	WhenFailingContinue
)

func (w WhenFailing) String() string { return rules.Word(w, "Block", "Continue") }

const (
	actionReplacePod backupAction = 1 << iota // a Pod is replaced, and its volume stays
	actionEvict                               // a Pod is evicted, and its volume stays
	actionRemove                              // a member is removed, with its copy of the data
)

func (a backupAction) String() string {
	return rules.Word(a, "replace a Pod", "evict a Pod", "remove a member")
}

const (
	holdNothing backupHold = 1 << iota
	holdWaits
)

func (h backupHold) String() string { return rules.Word(h, "Allowed", "Waits") }

// backupHolds decide what waits while backups fail, because the members have the only good copy of the data. The save that a pause,
// a change of version or a restore in place needs is another decision, which spec.backup.whenFailing does not change.
var backupHolds = rules.New(holdWaits, []rules.Row[backupHoldFacts, backupHold]{
	{Name: "not-failing", When: backupHoldFacts{failing: rules.No}, Verdict: holdNothing,
		Why: "backups do not fail, or the cluster has none"},
	{Name: "continue", When: backupHoldFacts{failing: rules.Yes, action: actionReplacePod | actionEvict, whenFailing: WhenFailingContinue}, Verdict: holdNothing,
		Why: "the volume of the Pod stays, and spec.backup.whenFailing is Continue"},
	{Name: "removal", When: backupHoldFacts{failing: rules.Yes, action: actionRemove}, Verdict: holdWaits,
		Why: "a copy of the data would be deleted, whatever spec.backup.whenFailing is"},
	{Name: "block", When: backupHoldFacts{failing: rules.Yes, action: actionReplacePod | actionEvict, whenFailing: WhenFailingBlock}, Verdict: holdWaits,
		Why: "backups fail, and the members have the only good copy"},
})

// backupHoldFacts is the complete input of backupHolds.
type backupHoldFacts struct {
	failing     rules.YesNo  `fact:"backups fail"`
	action      backupAction `fact:"what waits"`
	whenFailing WhenFailing  `fact:"spec.backup.whenFailing"`
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
