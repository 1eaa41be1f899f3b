package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestBackupReadyPromisesNothingThatIsNotKnown(t *testing.T) {
	checkTable(t, backupRows, "backup", "The condition BackupReady: druid/policy.backupRows", func(f backupFacts, d rules.Decision[conditionVerdict]) string {
		status, reason := d.Verdict.parts()
		if f.paused == rules.Yes {
			if status != metav1.ConditionUnknown || reason != v1alpha1.ReasonPaused {
				return "speaks of backups although no one runs"
			}
			return ""
		}
		claimed := map[string]storeClaim{v1alpha1.ReasonBackupClaimMissing: storeClaimMissing, v1alpha1.ReasonBackupClaimNotShared: storeClaimNotShared}[reason]
		known := f.full == leases.Live || f.reported == BackupReportedGood || f.reported == BackupReportedDeltaFailed && f.full == leases.Unknown
		switch {
		case claimed != 0 && (f.claim != claimed || (f.full|f.delta)&leases.Stale != 0):
			return "blames the claim for what it is not"
		case status == metav1.ConditionTrue && f.claim != storeClaimGood:
			return "calls a backup good that some members cannot write"
		case status == metav1.ConditionTrue && (f.full|f.delta)&leases.Stale != 0:
			return "calls a backup good that stopped"
		case status == metav1.ConditionTrue && (f.full == leases.Never || !known):
			return "calls a backup good of which no one reported"
		case reason == v1alpha1.ReasonIncrementalBackupSucceeded && f.delta == leases.Never:
			return "calls changes saved that no one saved"
		case status == metav1.ConditionTrue && f.superseded == rules.Yes:
			return "calls a backup good that a restore of the latest would not take"
		case status == metav1.ConditionTrue && f.valid == rules.No:
			return "hides that the spec is not obeyed"
		case status != metav1.ConditionFalse && (f.full|f.delta)&leases.Stale != 0:
			return "hides a backup that stopped"
		case status == metav1.ConditionFalse && f.full == leases.Live && f.delta == leases.Live && f.claim == storeClaimGood && f.valid == rules.Yes && f.superseded == rules.No:
			return "condemns a backup that goes on"
		case status == metav1.ConditionFalse && (f.full|f.delta)&leases.Stale == 0 && f.fullFailed == rules.No && f.deltaFailed == rules.No &&
			f.attached == rules.Yes && f.claim == storeClaimGood && f.valid == rules.Yes && f.superseded == rules.No && f.reported&(BackupReportedGood|BackupReportedElse) != 0:
			return "condemns what is merely not known"
		}
		return ""
	})
}

// saved is a cluster of which a full backup and all changes are saved.
func saved(o *Observed) {
	o.Full = Snapshot{Lease: LeaseOurs, Reports: leases.Backup{Revision: 7}, Liveness: leases.Live}
	o.Delta = Snapshot{Lease: LeaseOurs, Reports: leases.Backup{Revision: 9}, Liveness: leases.Live}
}

// unsaved is one whose deltas stopped.
func unsaved(o *Observed) {
	saved(o)
	o.Delta.Liveness, o.Delta.Reports.Error = leases.Stale, "bucket backups: access denied"
}

func TestBackupSteps(t *testing.T) {
	on, off := Desired{Replicas: 3, Backup: true}, Desired{Replicas: 3}
	goingOn := Desired{Replicas: 3, Backup: true, WhenFailing: WhenFailingContinue}
	absent := func(o *Observed) {
		o.Full, o.Delta = Snapshot{Lease: LeaseAbsent, Liveness: leases.Unknown}, Snapshot{Lease: LeaseAbsent, Liveness: leases.Unknown}
	}
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    []string
	}{
		"a backup is asked for": {on, []func(*Observed){absent}, []string{
			"CreateSnapshotLease snapshot-lease-missing full-snapshot", "CreateSnapshotLease snapshot-lease-missing delta-snapshot",
		}},
		"it goes on":        {on, []func(*Observed){saved}, []string{}},
		"none is asked for": {off, []func(*Observed){absent}, []string{}},
		"none any more":     {off, []func(*Observed){saved}, []string{"DeleteSnapshotLease backup-ended full-snapshot", "DeleteSnapshotLease backup-ended delta-snapshot"}},
		"not someone else's": {off, []func(*Observed){saved, func(o *Observed) { o.Full.Lease = LeaseForeign }}, []string{
			"DeleteSnapshotLease backup-ended delta-snapshot",
		}},
		"one that fails allows no eviction":                   {on, []func(*Observed){unsaved}, []string{"ApplyBudget budget-raised  3"}},
		"one that fails allows evictions if the spec says so": {goingOn, []func(*Observed){unsaved}, []string{}},
		"one that is well again does":                         {on, []func(*Observed){saved, func(o *Observed) { o.BudgetMin = 3 }}, []string{"ApplyBudget budget-lowered  2"}},
		"what is not known hinders no one": {on, []func(*Observed){saved, func(o *Observed) {
			o.Full.Liveness, o.Delta.Liveness = leases.Unknown, leases.Unknown
		}}, []string{}},
		"a store that the Pods do not reach yet hinders no one: an eviction would repair it": {on, []func(*Observed){saved, func(o *Observed) {
			o.Full.Liveness, o.Full.Reports, o.Unattached = leases.Never, leases.Backup{Error: "no credentials"}, []string{"c-a"}
		}}, []string{}},
		"one of a cluster that is not backed up any more hinders no one": {off, []func(*Observed){unsaved}, []string{
			"DeleteSnapshotLease backup-ended full-snapshot", "DeleteSnapshotLease backup-ended delta-snapshot",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, short(Steps(Evaluate(test.desired, whole(test.change...))))); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesOfBackupReady(t *testing.T) {
	begins := func(o *Observed) { o.Full, o.Delta = never(), never() }
	tests := map[string]struct {
		desired Desired
		change  func(*Observed)
		before  metav1.ConditionStatus
		reason  string // empty: no condition
		want    string
		event   string // reason of the Event, empty for none
	}{
		"not asked for": {Desired{Replicas: 3}, saved, metav1.ConditionTrue, "", "", ""},
		"begins":        {Desired{Backup: true}, begins, "", v1alpha1.ReasonUnknown, "the first full backup does not exist yet", ""},
		"begins without the store": {
			Desired{Backup: true}, func(o *Observed) { begins(o); o.Unattached = []string{"c-a", "c-b"} }, "",
			v1alpha1.ReasonBackupStoreNotAttached, "because they are older than its configuration: c-a, c-b. Delete them one at a time", "BackupStoreNotAttached",
		},
		"begins with a claim that does not exist": {
			Desired{Backup: true}, func(o *Observed) {
				begins(o)
				o.Unattached, o.StoreClaim = []string{"c-a", "c-b"}, StoreClaim{Name: "archive", Missing: true}
			}, "",
			v1alpha1.ReasonBackupClaimMissing, "PersistentVolumeClaim archive does not exist or is being deleted, and no Pod of a member can start without it. " +
				"Create it, or correct spec.backup.store.directory.claimName.", "BackupClaimMissing",
		},
		"its claim is for one node": {
			Desired{Backup: true}, func(o *Observed) {
				saved(o)
				onNodes("n1", "n2", "n1")(o)
				o.Members[1].Pod, o.StoreClaim = PodUnstarted, StoreClaim{Name: "archive", Modes: []string{"ReadWriteOnce"}}
			}, metav1.ConditionTrue,
			v1alpha1.ReasonBackupClaimNotShared, "PersistentVolumeClaim archive has the access mode ReadWriteOnce. Create a claim with ReadWriteMany", "BackupClaimNotShared",
		},
		"a failure counts more than the claim": {
			Desired{Backup: true}, func(o *Observed) { unsaved(o); o.StoreClaim = StoreClaim{Name: "archive", Missing: true} }, metav1.ConditionTrue,
			v1alpha1.ReasonIncrementalBackupFailed, "allows no eviction. PersistentVolumeClaim archive does not exist", "IncrementalBackupFailed",
		},
		"begins with a mistake": {
			Desired{Backup: true, BackupProblem: "schedule 0 25"}, begins, "", v1alpha1.ReasonBackupSpecInvalid, "schedule 0 25", "BackupSpecInvalid",
		},
		"the first one fails": {
			Desired{Backup: true}, func(o *Observed) { begins(o); o.Full.Reports.Error = "no such bucket" }, "",
			v1alpha1.ReasonFullBackupFailed, "the first full backup failed: no such bucket. Until a backup succeeds, druid removes no member", "FullBackupFailed",
		},
		"the store denies access": {
			Desired{Backup: true}, func(o *Observed) {
				begins(o)
				o.Full.Reports.Error, o.Full.Reports.Cause = "access denied", leases.BackupUnauthorized
			}, "",
			v1alpha1.ReasonFullBackupFailed,
			"the first full backup failed: Unauthorized: correct the credentials of the backup store, or their permissions. The error is: access denied. Until a backup", "FullBackupFailed",
		},
		"a cause of a newer agent": {
			Desired{Backup: true}, func(o *Observed) { unsaved(o); o.Delta.Reports.Cause = "Frozen" }, metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupFailed,
			"changes are not saved: Frozen: bucket backups: access denied. Until", "IncrementalBackupFailed",
		},
		"the first one is there": {
			Desired{Backup: true}, func(o *Observed) { saved(o); o.Delta = never() }, metav1.ConditionUnknown,
			v1alpha1.ReasonFullBackupSucceeded, "Changes since then are not saved yet", "FullBackupSucceeded",
		},
		"all is saved": {
			Desired{Backup: true}, saved, metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupSucceeded, "all changes since then are saved", "",
		},
		"all is saved again": {
			Desired{Backup: true}, saved, metav1.ConditionFalse, v1alpha1.ReasonIncrementalBackupSucceeded, "all changes since then are saved", "IncrementalBackupSucceeded",
		},
		"deltas stop": {
			Desired{Backup: true}, unsaved, metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupFailed,
			"changes are not saved: bucket backups: access denied. Until", "IncrementalBackupFailed",
		},
		"deltas stop, and druid continues": {
			Desired{Backup: true, WhenFailing: WhenFailingContinue}, unsaved, metav1.ConditionTrue, v1alpha1.ReasonIncrementalBackupFailed,
			"access denied. Until a backup succeeds, druid removes no member. It replaces Pods and allows evictions, because spec.backup.whenFailing is Continue.", "IncrementalBackupFailed",
		},
		"fulls stop, and no one says why": {
			Desired{Backup: true}, func(o *Observed) { saved(o); o.Full.Liveness = leases.Stale }, metav1.ConditionTrue,
			v1alpha1.ReasonFullBackupFailed, "the newest full backup is older than spec.backup.full allows. No agent reported an error", "FullBackupFailed",
		},
		"fulls stop": {
			Desired{Backup: true}, func(o *Observed) { saved(o); savedAt(o); o.Full.Liveness = leases.Stale }, metav1.ConditionTrue,
			v1alpha1.ReasonFullBackupFailed, "the newest full backup of 2026-11-25 00:00 UTC is older than spec.backup.full allows. No agent reported an error: " +
				"check that the cluster has a leader and that its agent runs. Until", "FullBackupFailed",
		},
		"fulls and deltas stop": {
			Desired{Backup: true}, func(o *Observed) {
				unsaved(o)
				savedAt(o)
				o.Full.Liveness, o.Full.Reports.Error = leases.Stale, "denied"
			}, metav1.ConditionTrue,
			v1alpha1.ReasonFullBackupFailed, "spec.backup.full allows: denied. Changes since about 2026-11-26 13:04 UTC are not saved. Until", "FullBackupFailed",
		},
		"deltas stop, and it is known when": {
			Desired{Backup: true}, func(o *Observed) { unsaved(o); savedAt(o) }, metav1.ConditionTrue,
			v1alpha1.ReasonIncrementalBackupFailed, "changes since about 2026-11-26 13:04 UTC are not saved: bucket", "IncrementalBackupFailed",
		},
		"no deltas were ever saved": {
			Desired{Backup: true}, func(o *Observed) { unsaved(o); savedAt(o); o.Delta.Reports.Revision = 0 }, metav1.ConditionTrue,
			v1alpha1.ReasonIncrementalBackupFailed, "changes since about 2026-11-25 00:00 UTC are not saved: bucket", "IncrementalBackupFailed",
		},
		"someone else's Leases": {
			Desired{Backup: true}, func(o *Observed) { o.Full = Snapshot{Lease: LeaseForeign, Liveness: leases.Unknown}; o.Delta = o.Full }, "",
			v1alpha1.ReasonUnknown, "have another owner", "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var before v1alpha1.EtcdClusterStatus
			if test.before != "" {
				before.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionBackupReady, Status: test.before, Reason: "Before"}}
			}
			o := whole(test.change)
			after := Status(Evaluate(test.desired, o), before, nil, 1, metav1.Now())
			got := condition(after, v1alpha1.ConditionBackupReady)
			if got.Reason != test.reason || !strings.Contains(strings.ToLower(got.Message), strings.ToLower(test.want)) {
				t.Errorf("got %s %q, want %s %q", got.Reason, got.Message, test.reason, test.want)
			}
			event := ""
			for _, e := range Events(before, after) {
				if e.Note == got.Message && got.Message != "" {
					event = e.Reason
					if e.Warning != (got.Status == metav1.ConditionFalse) {
						t.Errorf("event %+v of status %s", e, got.Status)
					}
				}
			}
			if event != test.event {
				t.Errorf("event %q, want %q", event, test.event)
			}
			foreign := condition(after, v1alpha1.ConditionDegraded).Reason == v1alpha1.ReasonObjectNotOwned
			if foreign != (test.desired.Backup && o.Full.Lease == LeaseForeign) {
				t.Errorf("reported as someone else's object: %t", foreign)
			}
		})
	}
}

// savedAt is when the full backup was taken and all changes were last saved.
func savedAt(o *Observed) {
	o.Full.Reports.Taken = time.Date(2026, 11, 25, 0, 0, 9, 0, time.UTC)
	o.Delta.Renewed = time.Date(2026, 11, 26, 14, 4, 59, 0, time.FixedZone("CET", 3600))
}

// While backups fail, the agent writes a larger lag with each attempt, and druid can start again. Each change of the message is a write.
func TestMessageOfFailingBackupsStaysTheSame(t *testing.T) {
	failing := map[string]func(*Observed){
		"deltas": func(o *Observed) { unsaved(o); savedAt(o) },
		"fulls and deltas": func(o *Observed) {
			unsaved(o)
			savedAt(o)
			o.Full.Liveness, o.Full.Reports.Error = leases.Stale, "bucket backups: access denied"
		},
	}
	passes := map[string]func(*Observed){
		"an hour later": func(o *Observed) { o.Delta.Reports.Lag += time.Hour },
		"a druid that has just started": func(o *Observed) {
			o.Full.Liveness, o.Delta.Liveness, o.Delta.Reports.Lag = leases.Unknown, leases.Unknown, 2*time.Hour
		},
		"members were written again": func(o *Observed) { o.Members[0].Reports.Revision += 1000 },
	}
	for name, fails := range failing {
		before := Status(Evaluate(Desired{Replicas: 3, Backup: true}, whole(fails)), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
		for what, pass := range passes {
			t.Run(name+", "+what, func(t *testing.T) {
				d := Desired{Replicas: 3, Backup: true, BackupReported: BackupReportedBy(before.Conditions)}
				later := metav1.NewTime(time.Now().Add(time.Hour))
				got := condition(Status(Evaluate(d, whole(fails, pass)), before, nil, 1, later), v1alpha1.ConditionBackupReady)
				if diff := cmp.Diff(condition(before, v1alpha1.ConditionBackupReady), got); diff != "" {
					t.Errorf("the condition changed (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// onNodes binds the Pods of the members to nodes.
func onNodes(nodes ...string) func(*Observed) {
	return func(o *Observed) {
		for i, node := range nodes {
			o.Members[i].On = node
		}
	}
}

func TestClaimOfTheStoreIsForAllMembers(t *testing.T) {
	of := func(modes ...string) func(*Observed) {
		return func(o *Observed) { o.StoreClaim = StoreClaim{Name: "archive", Modes: modes} }
	}
	waits := func(o *Observed) { o.Members[2].Pod = PodUnstarted }
	three, one := Desired{Replicas: 3, Backup: true}, Desired{Replicas: 1, Backup: true}
	alone := func(o *Observed) { o.Members, o.Record.Members = o.Members[:1], o.Record.Members[:1] }
	apart := onNodes("n1", "n2", "n3")
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    storeClaim
	}{
		"a bucket":                                 {three, []func(*Observed){apart, waits}, storeClaimGood},
		"no backups any more":                      {Desired{Replicas: 3}, []func(*Observed){of("ReadOnlyMany")}, storeClaimGood},
		"it does not exist":                        {three, []func(*Observed){func(o *Observed) { o.StoreClaim = StoreClaim{Name: "archive", Missing: true} }}, storeClaimMissing},
		"it is being deleted":                      {three, []func(*Observed){of("ReadWriteMany"), func(o *Observed) { o.StoreClaim.Missing = true }}, storeClaimMissing},
		"for many nodes":                           {three, []func(*Observed){of("ReadWriteMany"), apart, waits}, storeClaimGood},
		"for one node, or for many to read":        {three, []func(*Observed){of("ReadWriteOnce", "ReadOnlyMany"), apart, waits}, storeClaimNotShared},
		"for one node, and the Pods are on three":  {three, []func(*Observed){of("ReadWriteOnce"), apart, waits}, storeClaimNotShared},
		"for one node, and all Pods run with it":   {three, []func(*Observed){of("ReadWriteOnce"), apart}, storeClaimGood},
		"for one node, and a Pod does not have it": {three, []func(*Observed){of("ReadWriteOnce"), apart, func(o *Observed) { o.Unattached = []string{"c-b"} }}, storeClaimNotShared},
		"for one node, on which all Pods are":      {three, []func(*Observed){of("ReadWriteOnce"), onNodes("n1", "n1", "n1"), waits}, storeClaimGood},
		"for one node, and no node is chosen yet":  {three, []func(*Observed){of("ReadWriteOnce"), onNodes("n1", "", ""), waits}, storeClaimGood},
		"for one node, for one member":             {one, []func(*Observed){alone, of("ReadWriteOnce")}, storeClaimGood},
		"for one Pod, for one member":              {one, []func(*Observed){alone, of("ReadWriteOncePod")}, storeClaimGood},
		"for one Pod, for three members":           {three, []func(*Observed){of("ReadWriteOncePod"), onNodes("n1", "n1", "n1")}, storeClaimNotShared},
		"for one Pod, and more members are due":    {three, []func(*Observed){alone, of("ReadWriteOncePod")}, storeClaimNotShared},
		"for no one to write":                      {one, []func(*Observed){alone, of("ReadOnlyMany")}, storeClaimNotShared},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := storeClaimOf(test.desired, whole(test.change...)); got != test.want {
				t.Errorf("the claim is %s, want %s", got, test.want)
			}
		})
	}
}

func TestEachCauseOfAFailedBackupHasAdvice(t *testing.T) {
	for _, cause := range leases.BackupCauses() {
		got := because(Snapshot{Reports: leases.Backup{Error: "broken", Cause: cause}})
		if advice := backupAdvice[cause]; advice == "" || got != ": "+string(cause)+": "+advice+". The error is: broken" {
			t.Errorf("%s: got %q", cause, got)
		}
	}
	if len(backupAdvice) != len(leases.BackupCauses()) {
		t.Errorf("%d causes have advice, and there are %d", len(backupAdvice), len(leases.BackupCauses()))
	}
}

// never is a Lease that no one renewed yet.
func never() Snapshot { return Snapshot{Lease: LeaseOurs, Liveness: leases.Never} }

func TestWhatTheStatusReportedIsReadBack(t *testing.T) {
	for reported, c := range map[BackupReported]metav1.Condition{
		BackupReportedGood:        {Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFullBackupSucceeded},
		BackupReportedFullFailed:  {Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFullBackupFailed},
		BackupReportedDeltaFailed: {Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonIncrementalBackupFailed},
		BackupReportedElse:        {Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonBackupSpecInvalid},
	} {
		c.Type = v1alpha1.ConditionBackupReady
		if got := BackupReportedBy([]metav1.Condition{c}); got != reported {
			t.Errorf("%s %s: got %d, want %d", c.Status, c.Reason, got, reported)
		}
	}
	if got := BackupReportedBy(nil); got != BackupReportedElse {
		t.Errorf("no condition: got %d", got)
	}
}

func TestEveryReasonOfABackupHasASentence(t *testing.T) {
	p := messageContext{Evaluation: Evaluation{Desired: Desired{BackupProblem: "wrong"}}}
	for _, r := range backupRows.Rows() {
		if words, ok := backupSentences[r.Verdict.reason]; !ok || words(p) == "" {
			t.Errorf("row %s: reason %s says nothing to an operator", r.Name, r.Verdict.reason)
		}
	}
}

func TestAFailingBackupKeepsMembersAndReportsSo(t *testing.T) {
	for _, whenFailing := range []WhenFailing{0, WhenFailingBlock, WhenFailingContinue} {
		o := whole(aged, unsaved)
		status := Status(Evaluate(Desired{Replicas: 1, Backup: true, WhenFailing: whenFailing}, o), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
		got := condition(status, v1alpha1.ConditionProgressing)
		want := "3 members, 1 requested: member c-c cannot be removed, because backups fail (see condition BackupReady)."
		if got.Reason != v1alpha1.ReasonScaleDownBlocked || got.Message != want {
			t.Errorf("%s: got %s %q, want %q", whenFailing, got.Reason, got.Message, want)
		}
	}
}

func TestFailingBackupsHoldBackWhatDeletesACopy(t *testing.T) {
	checkTable(t, backupHolds, "backup-holds", "What waits while backups fail: druid/policy.backupHolds", func(f backupHoldFacts, d rules.Decision[backupHold]) string {
		waits := d.Verdict == holdWaits
		switch {
		case waits && f.failing == rules.No:
			return "waits for a backup that does not fail"
		case !waits && f.failing == rules.Yes && f.action == actionRemove:
			return "deletes a copy of the data while backups fail"
		case !waits && f.failing == rules.Yes && f.whenFailing == WhenFailingBlock:
			return "goes on although the spec says Block"
		case waits && f.action != actionRemove && f.whenFailing == WhenFailingContinue:
			return "waits although the spec says Continue"
		}
		return ""
	})
}

func TestBackupVerifiedCallsNothingGoodThatWasNotVerified(t *testing.T) {
	checkTable(t, verifiedRows, "backup-verified", "Condition BackupVerified: druid/policy.verifiedRows", func(f verifiedFacts, d rules.Decision[conditionVerdict]) string {
		status, reason := d.Verdict.parts()
		switch {
		case f.paused == rules.Yes:
			if status == metav1.ConditionUnknown && reason != v1alpha1.ReasonPaused {
				return "is for a reason by which an alert is raised, although the cluster is paused"
			}
		case status == metav1.ConditionTrue && (f.reported != VerificationVerified || f.present != rules.Yes):
			return "calls backups good that no one proved"
		case status == metav1.ConditionFalse && (f.reported != VerificationBroken || f.present != rules.Yes):
			return "condemns backups that no one found broken"
		case (f.reported == VerificationVerified || f.reported == VerificationBroken) && f.present == rules.Yes && status == metav1.ConditionUnknown:
			return "hides what was found"
		case (status == metav1.ConditionUnknown) != (reason == v1alpha1.ReasonNotYetVerified):
			return "has another reason than its status"
		}
		return ""
	})
}

func TestMessagesOfBackupVerified(t *testing.T) {
	verificationOf := func(v leases.Verification) func(*Observed) {
		return func(o *Observed) {
			saved(o)
			o.Full.Reports.Lineage, o.Full.Verified = "a", v
		}
	}
	on := Desired{Replicas: 3, Backup: true}
	for name, test := range map[string]struct {
		desired Desired
		change  func(*Observed)
		status  metav1.ConditionStatus
		reason  string
		words   string
	}{
		"verified": {on, verificationOf(leases.Verification{Verdict: leases.VerdictVerified, Lineage: "a"}), metav1.ConditionTrue, v1alpha1.ReasonVerificationSucceeded, "equal to that of etcd"},
		"broken, and which": {
			on, verificationOf(leases.Verification{Verdict: leases.VerdictBroken, Lineage: "a", Trouble: "full x is damaged"}),
			metav1.ConditionFalse, v1alpha1.ReasonVerificationFailed, "full x is damaged",
		},
		"another history": {on, verificationOf(leases.Verification{Verdict: leases.VerdictBroken, Lineage: "b"}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "this lineage"},
		"no room":         {on, verificationOf(leases.Verification{Lineage: "a", Trouble: "not enough space"}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not enough space"},
		"never":           {on, verificationOf(leases.Verification{}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not verified yet"},
		"unreadable":      {on, func(o *Observed) { saved(o); o.Full.Unreadable = true }, metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "cannot be parsed"},
		"not backed up":   {Desired{Replicas: 3}, saved, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := v1alpha1.EtcdClusterStatus{Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionBackupVerified, Status: metav1.ConditionTrue, Reason: "Before"},
			}}
			after := Status(Evaluate(test.desired, whole(test.change)), before, nil, 1, metav1.Now())
			c := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionBackupVerified)
			if test.status == "" {
				if c != nil {
					t.Errorf("it has %+v", c)
				}
				return
			}
			if c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.words) {
				t.Errorf("got %+v", c)
			}
		})
	}
}
