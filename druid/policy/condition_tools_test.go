package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/gitops"
	"github.com/etcd-druid/druid/test/golden"
)

func TestToolConditionsAreTotal(t *testing.T) {
	checkTable(t, toolRows, "condition-tools", "Conditions Reconciling and Stalled: druid/policy.toolRows",
		func(f toolFacts, d rules.Decision[toolVerdict]) string {
			kind, accepted := d.Verdict.kind, f.progress == toolAccepted
			good := f.progress == toolDone && f.problem == toolWell && f.parts == toolWell && f.serves == rules.Yes && f.members == rules.Yes
			needed := f.problem == toolNeeds || f.parts == toolNeeds || f.progress == toolStopped
			switch {
			case (kind == toolNone) != good:
				return "calls a cluster as requested that is not, or the reverse"
			case (kind == v1alpha1.ConditionStalled) != (needed && !accepted):
				return "lets a tool wait for what does not come by itself, or end its wait for what does"
			}
			return ""
		})
}

// toolSituation is a verdict of a table of conditions, and what tools make of it in a cluster that is otherwise as it should be.
type toolSituation struct{ kind, status, reason string }

// toolReading is what a tool reads.
type toolReading struct{ condition, kstatus string }

var (
	readsCurrent = toolReading{"none", "Current"}
	readsWaits   = toolReading{"none", "InProgress"} // Ready is False, and nothing is under way
	readsGoesOn  = toolReading{"Reconciling", "InProgress"}
	readsFailed  = toolReading{"Stalled", "Failed"}
)

// toolReadings are the expected readings of all verdicts.
var toolReadings = map[toolSituation]toolReading{
	{"Ready", "True", "Quorate"}:        readsCurrent,
	{"Ready", "False", "Paused"}:        readsWaits,
	{"Ready", "False", "ClientsCutOff"}: readsWaits,
	{"Ready", "False", "Forming"}:       readsGoesOn,
	{"Ready", "False", "Resuming"}:      readsGoesOn,
	{"Ready", "False", "QuorumLost"}:    readsGoesOn,
	{"Ready", "Unknown", "Unknown"}:     readsGoesOn,

	{"AllMembersReady", "True", "AllReady"}:          readsCurrent,
	{"AllMembersReady", "False", "Paused"}:           readsWaits,
	{"AllMembersReady", "False", "MembersNotReady"}:  readsGoesOn,
	{"AllMembersReady", "Unknown", "MembersUnknown"}: readsGoesOn,

	{"Progressing", "False", "Reconciled"}:             readsCurrent,
	{"Progressing", "False", "ExternalMembersPresent"}: readsCurrent,
	{"Progressing", "False", "Paused"}:                 readsWaits,
	{"Progressing", "True", "SpecAccepted"}:            readsGoesOn,
	{"Progressing", "True", "SpecChanged"}:             readsGoesOn,
	{"Progressing", "True", "RetryAfterDeadline"}:      readsGoesOn,
	{"Progressing", "True", "WaitingForSeed"}:          readsGoesOn,
	{"Progressing", "True", "WaitingForSnapshot"}:      readsGoesOn,
	{"Progressing", "True", "Forming"}:                 readsGoesOn,
	{"Progressing", "True", "ScalingUp"}:               readsGoesOn,
	{"Progressing", "True", "ScalingDown"}:             readsGoesOn,
	{"Progressing", "False", "ScaleDownBlocked"}:       readsGoesOn,
	{"Progressing", "True", "ReplacingMember"}:         readsGoesOn,
	{"Progressing", "False", "ReplaceBlocked"}:         readsGoesOn,
	{"Progressing", "True", "RepairingMember"}:         readsGoesOn,
	{"Progressing", "True", "RollingUpdate"}:           readsGoesOn,
	{"Progressing", "True", "Upgrading"}:               readsGoesOn,
	{"Progressing", "True", "UpdatingAgents"}:          readsGoesOn,
	{"Progressing", "True", "Recovering"}:              readsGoesOn,
	{"Progressing", "True", "Pausing"}:                 readsGoesOn,
	{"Progressing", "True", "Resuming"}:                readsGoesOn,
	{"Progressing", "True", "RemovingExternalMembers"}: readsGoesOn,
	{"Progressing", "True", "LeavingJoinedCluster"}:    readsGoesOn,
	{"Progressing", "False", "BootstrapFailed"}:        readsFailed,
	{"Progressing", "False", "DeadlineExceeded"}:       readsFailed,
	{"Progressing", "False", "HandsOff"}:               readsFailed,
	{"Progressing", "False", "RollingUpdateBlocked"}:   readsFailed,
	{"Progressing", "False", "UpgradeBlocked"}:         readsFailed,
	{"Progressing", "False", "AgentUpdateBlocked"}:     readsFailed,
	{"Progressing", "False", "PauseBlocked"}:           readsFailed,
	{"Progressing", "False", "ClusterRecordInvalid"}:   readsFailed,
	{"Progressing", "False", "RecoveryProposed"}:       readsFailed,
	{"Progressing", "False", "RecoveryRefused"}:        readsFailed,
	{"Degraded", "False", "AsExpected"}:                readsCurrent,
	{"Degraded", "True", "RecordUnreadable"}:           readsFailed,
	{"Degraded", "True", "SnapshotUnusable"}:           readsFailed,
	{"Degraded", "True", "RecoveryProposed"}:           readsFailed,
	{"Degraded", "True", "RecoveryRefused"}:            readsFailed,
	{"Degraded", "True", "DataUndecided"}:              readsFailed,
	{"Degraded", "True", "ObjectNotOwned"}:             readsFailed,
	{"Degraded", "True", "APIRequestRejected"}:         readsFailed,
	{"Degraded", "True", "LeaseUnreadable"}:            readsFailed,
	{"Degraded", "True", "VolumeDeleted"}:              readsFailed,
	{"Degraded", "True", "QuorumLost"}:                 readsGoesOn,
	{"Degraded", "True", "AuthRequiredNotConfigured"}:  readsFailed,
	{"Degraded", "True", "OrphanedObjects"}:            readsFailed,
	{"Degraded", "True", "SlowDisk"}:                   readsGoesOn,
	{"Degraded", "True", "RecordLost"}:                 readsGoesOn,
	{"Degraded", "True", "DataLost"}:                   readsGoesOn,
	{"Degraded", "True", "DataDiffers"}:                readsGoesOn,
	{"Degraded", "True", "AlarmRaised"}:                readsGoesOn,
	{"Degraded", "True", "NodeLost"}:                   readsGoesOn,
	{"Degraded", "True", "StorageClassMissing"}:        readsGoesOn,
	{"Degraded", "True", "VolumePending"}:              readsGoesOn,
	{"Degraded", "True", "VolumeNotExpanded"}:          readsGoesOn,
	{"Degraded", "True", "PodUnschedulable"}:           readsGoesOn,
	{"Degraded", "True", "ImagePullFailed"}:            readsGoesOn,
	{"Degraded", "True", "ContainerCannotStart"}:       readsGoesOn,
	{"Degraded", "True", "MemberCannotStart"}:          readsGoesOn,
	{"Degraded", "True", "AgentNotRunning"}:            readsGoesOn,
	{"Degraded", "True", "MemberStuck"}:                readsGoesOn,
	{"Spread", "True", "MembersSpread"}:                readsCurrent,
	{"Spread", "False", "MembersColocated"}:            readsCurrent,
	{"Spread", "False", "QuorumOnOneNode"}:             readsCurrent,
	{"Spread", "Unknown", "MembersNotPlaced"}:          readsCurrent,
	{"Spread", "Unknown", "Paused"}:                    readsWaits,
	{"BackupReady", "True", "FullBackupSucceeded"}:     readsCurrent,
	{"BackupReady", "True", "DeltaBackupSucceeded"}:    readsCurrent,
	{"BackupReady", "Unknown", "Unknown"}:              readsGoesOn,
	{"BackupReady", "Unknown", "Paused"}:               readsWaits,
	{"BackupReady", "False", "FullBackupFailed"}:       readsGoesOn,
	{"BackupReady", "False", "DeltaBackupFailed"}:      readsGoesOn,
	{"BackupReady", "False", "BackupStoreNotAttached"}: readsGoesOn,
	{"BackupReady", "False", "BackupClaimMissing"}:     readsGoesOn,
	{"BackupReady", "False", "BackupClaimNotShared"}:   readsGoesOn,
	{"BackupReady", "False", "BackupSpecInvalid"}:      readsFailed,
	{"BackupReady", "False", "BackupSuperseded"}:       readsFailed,

	{"BackupVerified", "True", "VerificationSucceeded"}: readsCurrent,
	{"BackupVerified", "Unknown", "NotYetVerified"}:     readsCurrent,
	{"BackupVerified", "Unknown", "Paused"}:             readsWaits,
	{"BackupVerified", "False", "VerificationFailed"}:   readsFailed,

	{"CertificatesReady", "True", "CertificatesValid"}:        readsCurrent,
	{"CertificatesReady", "Unknown", "CertificatesPending"}:   readsGoesOn,
	{"CertificatesReady", "False", "CertManagerNotInstalled"}: readsGoesOn,
	{"CertificatesReady", "False", "CertificatesRejected"}:    readsFailed,
	{"CertificatesReady", "False", "AuthorityLost"}:           readsFailed,
	{"CertificatesReady", "False", "ObjectNotOwned"}:          readsFailed,

	{"AuthReady", "True", "AuthEnabled"}:       readsCurrent,
	{"AuthReady", "True", "AuthDisabled"}:      readsCurrent,
	{"AuthReady", "True", "AuthUnmanaged"}:     readsCurrent,
	{"AuthReady", "Unknown", "AuthPending"}:    readsGoesOn,
	{"AuthReady", "False", "AuthIncomplete"}:   readsGoesOn,
	{"AuthReady", "False", "AuthAccessDenied"}: readsFailed,
}

// toolSituations are the verdicts of all rows of all tables of conditions, and what is set without a table.
func toolSituations() []toolSituation {
	var all []toolSituation
	add := func(kind string, v conditionVerdict) {
		s := toolSituation{kind, string(v.status), v.reason}
		if v.reason != "" && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	for _, table := range conditionTables {
		addVerdicts(add, table.kind, table.rows)
	}
	addVerdicts(add, v1alpha1.ConditionProgressing, overdueRules)
	for _, reason := range []string{
		v1alpha1.ReasonSpecAccepted, v1alpha1.ReasonSpecChanged, v1alpha1.ReasonRetryAfterDeadline, v1alpha1.ReasonWaitingForSnapshot,
	} {
		add(v1alpha1.ConditionProgressing, conditionVerdict{metav1.ConditionTrue, reason})
	}
	for _, reason := range gravity {
		add(v1alpha1.ConditionDegraded, conditionVerdict{metav1.ConditionTrue, reason})
	}
	addVerdicts(add, v1alpha1.ConditionSpread, spreadRows)
	addVerdicts(add, v1alpha1.ConditionBackupReady, backupRows)
	addVerdicts(add, v1alpha1.ConditionBackupVerified, verifiedRows)
	addVerdicts(add, v1alpha1.ConditionCertificatesReady, certificatesReadyRows)
	addVerdicts(add, v1alpha1.ConditionAuthReady, authReadyRows)
	order := map[string]int{}
	for i, c := range conditions {
		order[c.kind] = i
	}
	slices.SortStableFunc(all, func(a, b toolSituation) int { return order[a.kind] - order[b.kind] })
	return all
}

func addVerdicts[F any](add func(string, conditionVerdict), kind string, table *rules.Table[F, conditionVerdict]) {
	for _, row := range table.Rows() {
		add(kind, row.Verdict)
	}
}

// cluster is an EtcdCluster in the situation. Its other conditions are as they should be, or those of a paused cluster.
func (s toolSituation) cluster(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	conditions := []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonQuorate},
		{Type: v1alpha1.ConditionAllMembersReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllReady},
		{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReconciled},
		{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAsExpected},
		{Type: v1alpha1.ConditionSpread, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMembersSpread},
		{Type: v1alpha1.ConditionBackupReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFullBackupSucceeded},
		{Type: v1alpha1.ConditionBackupVerified, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonVerificationSucceeded},
		{Type: v1alpha1.ConditionCertificatesReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCertificatesValid},
		{Type: v1alpha1.ConditionAuthReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAuthEnabled},
	}
	if s.reason == v1alpha1.ReasonPaused {
		for i := range 3 {
			conditions[i].Status, conditions[i].Reason = metav1.ConditionFalse, v1alpha1.ReasonPaused
		}
	}
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == s.kind })
	conditions[i].Status, conditions[i].Reason, conditions[i].Message = metav1.ConditionStatus(s.status), s.reason, "The message."
	cluster := &v1alpha1.EtcdCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", Generation: 2},
		Status:     v1alpha1.EtcdClusterStatus{ObservedGeneration: 2, Conditions: conditions},
	}
	setToolConditions(&cluster.Status.Conditions, 2, metav1.Now())
	return untyped(t, cluster)
}

func untyped(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

// toolCondition is which of the two conditions is True, with its reason, or "none".
func toolCondition(t *testing.T, u *unstructured.Unstructured) (kind, reason string) {
	t.Helper()
	cluster := &v1alpha1.EtcdCluster{}
	raw, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, cluster); err != nil {
		t.Fatal(err)
	}
	kind = toolNone
	for _, c := range cluster.Status.Conditions {
		if c.Type == v1alpha1.ConditionReconciling || c.Type == v1alpha1.ConditionStalled {
			if kind != toolNone || c.Status != metav1.ConditionTrue {
				t.Errorf("%s is %s next to %s", c.Type, c.Status, kind)
			}
			kind, reason = c.Type, c.Reason
		}
	}
	return kind, reason
}

func kstatusOf(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	state, _ := gitops.Kstatus(t, u)
	return state
}

func TestToolsReadEveryVerdict(t *testing.T) {
	got := map[toolSituation]toolReading{}
	var rows [][]string
	for _, s := range toolSituations() {
		u := s.cluster(t)
		kind, reason := toolCondition(t, u)
		if kind != toolNone && reason != s.reason {
			t.Errorf("%v: %s has reason %s", s, kind, reason)
		}
		got[s] = toolReading{kind, kstatusOf(t, u)}
		argo, _ := argoHealth(t, u)
		rows = append(rows, []string{"`" + s.kind + "`", s.status, "`" + s.reason + "`", got[s].condition, got[s].kstatus, argo})
	}
	if diff := gocmp.Diff(toolReadings, got, gocmp.AllowUnexported(toolReading{}, toolSituation{})); diff != "" {
		t.Errorf("what tools read (-want +got):\n%s", diff)
	}
	golden.Section(t, "../../docs/reference/conditions-and-reasons.md", "tools",
		golden.Table([]string{"Condition", "Status", "Because", "druid sets", "kstatus", "Argo CD"}, rows))
}

// TestToolsWaitForDruid: what druid has not seen yet is not current, whatever its conditions say.
func TestToolsWaitForDruid(t *testing.T) {
	well := toolSituation{v1alpha1.ConditionReady, "True", v1alpha1.ReasonQuorate}
	for name, test := range map[string]struct {
		change func(*unstructured.Unstructured)
		want   string
	}{
		"accepted": {func(*unstructured.Unstructured) {}, "Current"},
		"edited":   {func(u *unstructured.Unstructured) { u.SetGeneration(3) }, "InProgress"},
		"created, with the default of the CustomResourceDefinition": {func(u *unstructured.Unstructured) {
			u.SetGeneration(1)
			u.Object["status"] = map[string]any{"observedGeneration": int64(-1)}
		}, "InProgress"},
		"deleted": {func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(new(metav1.Now())) }, "Terminating"},
	} {
		t.Run(name, func(t *testing.T) {
			u := well.cluster(t)
			test.change(u)
			if got := kstatusOf(t, u); got != test.want {
				t.Errorf("kstatus is %s, want %s", got, test.want)
			}
		})
	}
}

// TestToolConditionsFollowTheOthers goes from a spec that the API server rejected to its correction, to a healthy cluster and back.
func TestToolConditionsFollowTheOthers(t *testing.T) {
	now := metav1.Now()
	s := after(v1alpha1.EtcdClusterStatus{})
	if c := cmp.Or(meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReconciling),
		meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled)); c != nil {
		t.Fatalf("a healthy cluster has condition %+v", c)
	}
	rejected := []Problem{{Reason: v1alpha1.ReasonAPIRequestRejected, Message: "exceeded quota"}}
	s = Status(Evaluate(Desired{Replicas: 3}, whole()), s, rejected, 1, now)
	stalled := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled)
	if stalled == nil || stalled.Reason != v1alpha1.ReasonAPIRequestRejected || stalled.Message != "Exceeded quota." || stalled.ObservedGeneration != 1 {
		t.Fatalf("a rejected object leads to %+v", stalled)
	}
	s, err := Adoption{Rule: "stalled", Begins: true}.Adopted(s, v1alpha1.EtcdClusterSpec{Replicas: 3}, 2, 0, now)
	if err != nil {
		t.Fatal(err)
	}
	goesOn := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReconciling)
	if goesOn == nil || goesOn.Reason != v1alpha1.ReasonSpecChanged || goesOn.ObservedGeneration != 2 ||
		meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled) != nil {
		t.Errorf("an accepted edit leads to %+v", s.Conditions)
	}
	s = Status(Evaluate(Desired{Replicas: 3}, whole()), s, nil, 2, now)
	again := Status(Evaluate(Desired{Replicas: 3}, whole()), s, nil, 2, metav1.NewTime(now.Add(1)))
	if diff := gocmp.Diff(s, again); diff != "" || len(s.Conditions) != 5 {
		t.Errorf("a healthy cluster has the conditions %s, and its status changes: %s", fmt.Sprint(s.Conditions), diff)
	}
}
