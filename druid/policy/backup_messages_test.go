package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

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
			v1alpha1.ReasonBackupClaimNotShared, "PersistentVolumeClaim archive has the access mode ReadWriteOnce. Create a claim with ReadWriteMany",
			"BackupClaimNotShared",
		},
		"a failure counts more than the claim": {
			Desired{Backup: true}, func(o *Observed) { unsaved(o); o.StoreClaim = StoreClaim{Name: "archive", Missing: true} }, metav1.ConditionTrue,
			v1alpha1.ReasonDeltaBackupFailed, "allows no eviction. PersistentVolumeClaim archive does not exist", "DeltaBackupFailed",
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
			"the first full backup failed: Unauthorized: correct the credentials of the backup store, or their permissions. The error is: access denied. Until a backup",
			"FullBackupFailed",
		},
		"a cause of a newer agent": {
			Desired{Backup: true}, func(o *Observed) { unsaved(o); o.Delta.Reports.Cause = "Frozen" }, metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupFailed,
			"changes are not saved: Frozen: bucket backups: access denied. Until", "DeltaBackupFailed",
		},
		"the first one is there": {
			Desired{Backup: true}, func(o *Observed) { saved(o); o.Delta = never() }, metav1.ConditionUnknown,
			v1alpha1.ReasonFullBackupSucceeded, "Changes since then are not saved yet", "FullBackupSucceeded",
		},
		"all is saved": {
			Desired{Backup: true}, saved, metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupSucceeded, "all changes since then are saved", "",
		},
		"all is saved again": {
			Desired{Backup: true}, saved, metav1.ConditionFalse, v1alpha1.ReasonDeltaBackupSucceeded, "all changes since then are saved",
			"DeltaBackupSucceeded",
		},
		"deltas stop": {
			Desired{Backup: true}, unsaved, metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupFailed,
			"changes are not saved: bucket backups: access denied. Until", "DeltaBackupFailed",
		},
		"deltas stop, and druid continues": {
			Desired{Backup: true, WhenFailing: WhenFailingContinue}, unsaved, metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupFailed,
			"access denied. Until a backup succeeds, druid removes no member. It replaces Pods and allows evictions, because spec.backup.whenFailing is Continue.",
			"DeltaBackupFailed",
		},
		"full backups stop without a reason": {
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
			v1alpha1.ReasonDeltaBackupFailed, "changes since about 2026-11-26 13:04 UTC are not saved: bucket", "DeltaBackupFailed",
		},
		"no deltas were ever saved": {
			Desired{Backup: true}, func(o *Observed) { unsaved(o); savedAt(o); o.Delta.Reports.Revision = 0 }, metav1.ConditionTrue,
			v1alpha1.ReasonDeltaBackupFailed, "changes since about 2026-11-25 00:00 UTC are not saved: bucket", "DeltaBackupFailed",
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

// never is a Lease that was not renewed yet.
func never() Snapshot { return Snapshot{Lease: LeaseOurs, Liveness: leases.Never} }

func TestEveryReasonOfABackupHasASentence(t *testing.T) {
	p := messageContext{Evaluation: Evaluation{Desired: Desired{BackupProblem: "wrong"}}}
	for _, r := range backupRows.Rows() {
		if words, ok := backupSentences[r.Verdict.reason]; !ok || words(p) == "" {
			t.Errorf("row %s: reason %s says nothing to an operator", r.Name, r.Verdict.reason)
		}
	}
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
		"verified": {on, verificationOf(leases.Verification{Verdict: leases.VerdictVerified, Lineage: "a"}), metav1.ConditionTrue,
			v1alpha1.ReasonVerificationSucceeded, "equal to that of etcd"},
		"broken, and which": {
			on, verificationOf(leases.Verification{Verdict: leases.VerdictBroken, Lineage: "a", Trouble: "full x is damaged"}),
			metav1.ConditionFalse, v1alpha1.ReasonVerificationFailed, "full x is damaged",
		},
		"another history": {on, verificationOf(leases.Verification{Verdict: leases.VerdictBroken, Lineage: "b"}), metav1.ConditionUnknown,
			v1alpha1.ReasonNotYetVerified, "this lineage"},
		"no room": {on, verificationOf(leases.Verification{Lineage: "a", Trouble: "not enough space"}), metav1.ConditionUnknown,
			v1alpha1.ReasonNotYetVerified, "not enough space"},
		"never":         {on, verificationOf(leases.Verification{}), metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "not verified yet"},
		"unreadable":    {on, func(o *Observed) { saved(o); o.Full.Unreadable = true }, metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "cannot be parsed"},
		"not backed up": {Desired{Replicas: 3}, saved, "", "", ""},
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
