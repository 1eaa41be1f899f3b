package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	return b.reason == v1alpha1.ReasonFullBackupFailed || b.reason == v1alpha1.ReasonDeltaBackupFailed
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

// StoreClaim is the PersistentVolumeClaim that holds the backups. Its Name is empty if the store is something else, or
// if druid could not read the claim.
type StoreClaim struct {
	Name string
	// Missing says that it does not exist, or that it is being deleted.
	Missing bool
	// Modes are its access modes, in the words of Kubernetes.
	Modes []string
}

// storeClaim is whether the members can use the claim of the backup store together.
type storeClaim uint8

const (
	storeClaimGood      storeClaim = 1 << iota // nothing speaks against it, or the store is no claim
	storeClaimMissing                          // it does not exist, or it is being deleted
	storeClaimNotShared                        // its access mode does not let all members write to it
)

func (c storeClaim) String() string {
	return rules.Word(c, "good or none", "missing", "not for all members")
}

// The access modes of Kubernetes (core/v1 PersistentVolumeAccessMode).
const (
	modeReadWriteMany = "ReadWriteMany"
	modeReadWriteOnce = "ReadWriteOnce"
)

// storeClaimOf classifies the claim. ReadWriteOnce means one node and not one Pod. So it is good while the Pods are on one node, and where
// the Pods of all members run with it: some drivers do not enforce the mode.
func storeClaimOf(d Desired, o Observed) storeClaim {
	claim, listed := o.StoreClaim, o.listed()
	several := max(d.Replicas, len(listed)) > 1
	switch {
	case !d.Backup || claim.Name == "":
		return storeClaimGood
	case claim.Missing:
		return storeClaimMissing
	case slices.Contains(claim.Modes, modeReadWriteMany):
		return storeClaimGood
	case slices.Contains(claim.Modes, modeReadWriteOnce):
		if several && severalNodes(listed) && !allRunWithStore(o, listed) {
			return storeClaimNotShared
		}
		return storeClaimGood
	case slices.ContainsFunc(claim.Modes, func(mode string) bool { return strings.HasPrefix(mode, modeReadWriteOnce) }) && !several:
		return storeClaimGood // ReadWriteOncePod, for one Pod
	default:
		return storeClaimNotShared
	}
}

// severalNodes says whether the Pods of the members are bound to more than one node.
func severalNodes(listed []Member) bool {
	nodes := map[string]bool{}
	for _, m := range listed {
		if m.On != "" {
			nodes[m.On] = true
		}
	}
	return len(nodes) > 1
}

// allRunWithStore says whether each member runs in a Pod that has the volume of the store.
func allRunWithStore(o Observed, listed []Member) bool {
	return len(o.Unattached) == 0 && !slices.ContainsFunc(listed, func(m Member) bool { return m.Pod != PodLive })
}

// storeClaimAdvice says what is wrong with the claim and what to do, or nothing.
func storeClaimAdvice(d Desired, o Observed) string {
	switch claim := o.StoreClaim; storeClaimOf(d, o) {
	case storeClaimMissing:
		return fmt.Sprintf("PersistentVolumeClaim %s does not exist or is being deleted, and no Pod of a member can start without it. "+
			"Create it, or correct spec.backup.store.directory.claimName", claim.Name)
	case storeClaimNotShared:
		return fmt.Sprintf("PersistentVolumeClaim %s has the access mode %s. Create a claim with ReadWriteMany and name it in "+
			"spec.backup.store.directory.claimName, or use a bucket", claim.Name, strings.Join(claim.Modes, " and "))
	default:
		return ""
	}
}

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
