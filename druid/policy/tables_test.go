package policy

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// bits yields the values of which an enum's cell consists.
func bits[T ~uint8](all T) []T {
	var values []T
	for bit := T(1); bit != 0 && bit <= all; bit <<= 1 {
		if all&bit != 0 {
			values = append(values, bit)
		}
	}
	return values
}

// fired checks that every row of a table won at least once, and that no facts were left uncovered.
func fired(t *testing.T, count map[string]int, rows ...string) {
	t.Helper()
	for _, row := range rows {
		if count[row] == 0 {
			t.Errorf("row %q can never fire", row)
		}
	}
	if n := count["uncovered"]; n > 0 {
		t.Errorf("%d combinations of facts are covered by no row", n)
	}
}

func TestRecordIsFormedOnceAndNeverTakenBack(t *testing.T) {
	checkTable(t, records, "record", "The cluster record: druid/policy.records", func(f recordFacts, d rules.Decision[order]) string {
		order := d.Verdict
		switch {
		case order == orderBootstrap && (f.record != RecordAbsent || f.evidence != evidenceNone):
			return "a second cluster could be formed"
		case order != orderNothing && f.record&(RecordForeign|RecordUnreadable) != 0, order != orderNothing && f.record == RecordRecovering && f.behind == rules.No:
			return "a record that is not druid's to write is written"
		case order == orderRecreate && f.record != RecordAbsent:
			return "a record that exists is made again"
		case order == orderMoveSeed && (f.record != RecordForming || f.evidence == evidenceStatus):
			return "a seed is named for a cluster that formed"
		case order == orderRelist && (f.record != RecordFormed || f.lost != rules.Yes), order == orderGrow && f.record == RecordFormed && f.lost == rules.Yes:
			return "names are brought back that were not lost, or drawn in place of those"
		case f.behind == rules.Yes && f.evidence == evidenceStatus && f.record&(RecordFormed|RecordRecovering) != 0 && order != orderRestore:
			return "a record that was rolled back goes on naming the former raft group"
		case order == orderGrow && f.names != namesFew:
			return "names are drawn that were not requested"
		case f.record == RecordForming && f.evidence == evidenceStatus && order != orderRestore:
			return "a formed cluster's record goes on saying Forming"
		}
		return ""
	})
}

func TestMemberTablesAreSafeForAllFacts(t *testing.T) {
	checkTable(t, leaseRows, "lease", "A member's Lease: druid/policy.leaseRows",
		func(f memberFacts, _ rules.Decision[verdict]) string { return wrongOfMember(f) })
	checkTable(t, claimRows, "claim", "A member's PersistentVolumeClaim: druid/policy.claimRows",
		func(f memberFacts, _ rules.Decision[verdict]) string { return wrongOfMember(f) })
	checkTable(t, podRows, "pod", "A member's Pod: druid/policy.podRows", func(f memberFacts, _ rules.Decision[verdict]) string { return wrongOfMember(f) })
}

// wrongOfMember looks at the three together.
func wrongOfMember(f memberFacts) string {
	lease, claim, pod := leaseRows.Decide(f).Verdict, claimRows.Decide(f).Verdict, podRows.Decide(f).Verdict
	volumeGone := f.claim&(ClaimAbsent|ClaimTerminating) != 0
	switch {
	case (lease == create) != (f.lease == LeaseAbsent), (claim == create) && f.claim != ClaimAbsent, (pod == create) && f.pod != PodAbsent:
		return "something that exists is created"
	case lease == remove || claim == remove:
		return "druid deletes a Lease or a claim"
	case pod == remove && f.pod == PodLive && (f.spare == rules.No || !volumeGone):
		return "deletes a running Pod that is needed"
	case pod == remove && f.claim == ClaimTerminating && f.spare == rules.No:
		return "deletes the Pod that keeps a volume which is needed"
	case pod == remove && f.pod&(PodForeign|PodAbsent|PodTerminating|PodUnscheduled) != 0:
		return "deletes what is not ours, not there, or on its way"
	case claim == create && f.pod&(PodUnstarted|PodLive|PodEnded|PodTerminating|PodForeign) != 0:
		return "makes a claim while a Pod may hold the former volume"
	case pod == create && f.claim == ClaimTerminating:
		return "makes a Pod that keeps a deleted claim from going"
	case f.paused == rules.Yes && (claim == create || pod == create || pod == remove && f.pod == PodAbsent):
		return "a member of a paused cluster is made"
	case pod == create && claim != create && f.claim&(ClaimPresent|ClaimUnwanted) == 0:
		return "makes a Pod without a volume"
	case f.answered == rules.Yes && (pod == create || pod == mark):
		return "the Lease names another Pod than the one whose acknowledgement druid examines"
	case f.answered == rules.No && f.pod == PodAbsent && f.lease != LeaseForeign && f.paused == rules.No &&
		f.claim&(ClaimPresent|ClaimAbsent|ClaimUnwanted) != 0 && pod != create:
		return "a lost Pod is not created again"
	case f.lease == LeaseForeign && (claim == create || pod == create):
		return "a member is made next to a Lease that is not its own"
	case pod == mark && (f.lease != LeaseOurs || f.claim&(ClaimPresent|ClaimTerminating|ClaimUnwanted) == 0):
		return "a Lease is marked that is not ours, or with no volume"
	}
	return ""
}

// TestUnknownLabelsKeepService: labels never empty the Service for what is unknown.
func TestUnknownLabelsKeepService(t *testing.T) {
	checkTable(t, servingRows, "serving", "Which Pods clients are sent to: druid/policy.servingRows",
		func(f labelFacts, _ rules.Decision[labelVerdict]) string { return wrongOfLabels(f) })
	checkTable(t, voterRows, "voter", "Which Pods the PodDisruptionBudget counts: druid/policy.voterRows",
		func(f labelFacts, _ rules.Decision[labelVerdict]) string { return wrongOfLabels(f) })
}

func TestOnlyALeaderThatServesIsInItsService(t *testing.T) {
	checkTable(t, leaderRows, "leader-label", "Which Pod is in the Service of the leader: druid/policy.leaderRows",
		func(f leaderFacts, d rules.Decision[labelVerdict]) string {
			switch v := d.Verdict; {
			case v != labelClear && f.wanted == rules.No:
				return "labels a Pod for a Service that is not requested"
			case v != labelClear && f.serves == rules.No:
				return "sends clients to a Pod to which the client Service sends none"
			case v == labelSet && f.leads != leadershipOwn, v == labelKeep && f.leads == leadershipOther:
				return "calls a member the leader that is not"
			case v == labelClear && f.wanted == rules.Yes && f.serves == rules.Yes && f.leads != leadershipOther:
				return "takes the leader out of its Service, or empties it for what is unknown"
			}
			return ""
		})
}

func wrongOfLabels(f labelFacts) string {
	s, v := servingRows.Decide(f).Verdict, voterRows.Decide(f).Verdict
	switch {
	case s != labelClear && f.cutOff == rules.Yes:
		return "sends clients to a cluster from which they are cut off"
	case s != labelClear && f.recovering == rules.Yes:
		return "sends clients to a raft group that is about to be replaced"
	case s == labelClear && f.cutOff == rules.No && f.recovering == rules.No && f.leaving == rules.No && f.obscure == rules.Yes:
		return "takes a Pod out of a Service of which half is unknown"
	case s == labelClear && f.cutOff == rules.No && f.recovering == rules.No && f.leaving == rules.No && f.liveness == leases.Stale &&
		f.etcdReady == rules.Yes && f.nodeLost == rules.No && f.differs == rules.No:
		return "takes away a serving etcd because its agent is dead"
	case s == labelSet && f.marked == rules.Yes:
		return "sends clients to a Pod while the record has the plan for which they were cut off"
	case s == labelSet && (f.says != reportsVoter || f.liveness != leases.Live || f.formed != rules.Yes || f.etcdReady != rules.Yes || f.leaving != rules.No):
		return "sends clients to what is not known to serve"
	case s == labelSet && f.differs == rules.Yes:
		return "sends clients to data that a majority does not have"
	case s != labelClear && f.leaving == rules.Yes:
		return "sends clients to a Pod that goes"
	case v == labelSet && (f.says != reportsVoter || f.liveness != leases.Live || f.out == rules.Yes):
		return "counts what is not known to vote"
	case v == labelClear && f.out == rules.No && (f.says != reportsOther || f.liveness != leases.Live):
		return "stops to count what is not known not to vote"
	}
	return ""
}

// conditionTables are the tables of the conditions that share their facts.
var conditionTables = []struct {
	kind string
	rows *rules.Table[conditionFacts, conditionVerdict]
}{
	{v1alpha1.ConditionReady, readyRows}, {v1alpha1.ConditionAllMembersReady, allReadyRows}, {v1alpha1.ConditionProgressing, progressingRows},
	{v1alpha1.ConditionDegraded, degradedRows},
}

func TestConditionsAreTotal(t *testing.T) {
	for _, table := range conditionTables {
		kind := table.kind
		checkTable(t, table.rows, "condition-"+kind, "Condition "+kind, func(f conditionFacts, d rules.Decision[conditionVerdict]) string {
			status, reason := d.Verdict.parts()
			switch {
			case kind == v1alpha1.ConditionReady && status == metav1.ConditionTrue && f.resting == restingPaused:
				return "calls a cluster ready that is paused"
			case kind == v1alpha1.ConditionReady && reason == v1alpha1.ReasonQuorumLost && f.resting&(restingPaused|restingResumes) != 0:
				return "says that a quorum was lost that is not requested, or that is forming"
			case kind == v1alpha1.ConditionProgressing &&
				(reason == v1alpha1.ReasonPaused) != (f.resting == restingPaused && f.record&(RecordForeign|RecordUnreadable) == 0 && f.progress != progressLeaving):
				return "hides or invents a pause"
			case kind == v1alpha1.ConditionProgressing && (reason == v1alpha1.ReasonLeavingJoinedCluster) != (f.progress == progressLeaving):
				return "hides or invents that all members leave"
			case kind == v1alpha1.ConditionProgressing && f.awaits != awaitsNothing && reason == v1alpha1.ReasonRepairingMember:
				return "says that a member is repaired, and the repair waits for you"
			case kind == v1alpha1.ConditionProgressing && (reason == v1alpha1.ReasonRecoveryProposed && f.awaits != awaitsApproval ||
				reason == v1alpha1.ReasonRecoveryRefused && f.awaits != awaitsRepair):
				return "invents that a recovery waits for you"
			case kind == v1alpha1.ConditionReady && status == metav1.ConditionTrue && f.cutOff == rules.Yes:
				return "calls a cluster ready from which clients are cut off"
			case kind == v1alpha1.ConditionReady && reason == v1alpha1.ReasonClientsCutOff && (f.cutOff == rules.No || f.quorumState != quorumStateQuorum):
				return "says that clients are cut off, and they are not, or hides that no quorum serves"
			case kind == v1alpha1.ConditionReady && status == metav1.ConditionTrue && f.quorumState != quorumStateQuorum:
				return "calls a cluster ready of which no quorum is known to serve"
			case kind == v1alpha1.ConditionReady && status == metav1.ConditionFalse && f.quorumState == quorumStateUnclear && f.formed == rules.Yes &&
				f.resting != restingPaused:
				return "calls a cluster down of which too little is known"
			case kind == v1alpha1.ConditionAllMembersReady && status == metav1.ConditionTrue && f.readiness != readinessAll:
				return "calls all members ready"
			case kind == v1alpha1.ConditionProgressing && reason == v1alpha1.ReasonReconciled && f.rolling != rollingNone:
				return "calls a cluster up to date of which a Pod is outdated"
			case kind == v1alpha1.ConditionDegraded && (status == metav1.ConditionTrue) != (f.problem == rules.Yes):
				return "hides or invents a problem (" + string(reason) + ")"
			}
			return ""
		})
	}
}

// TestUnknownMemberNotCondemned: a member status never condemns what is unknown.
func TestUnknownMemberNotCondemned(t *testing.T) {
	checkTable(t, memberRows, "member-status", "The status of a member: druid/policy.memberRows", func(f statusFacts, d rules.Decision[memberVerdict]) string {
		switch state := d.Verdict.state; {
		case (state == v1alpha1.MemberPaused) != (f.paused == rules.Yes):
			return "calls a member paused that is not, or the reverse"
		case state == v1alpha1.MemberNotReady && f.health != healthDown && f.learner == rules.No && f.liveness&(leases.Unknown|leases.Never) != 0:
			return "calls a member not ready that was never watched"
		case state == v1alpha1.MemberReady && (f.health == healthDown || f.learner == rules.Yes):
			return "calls a member ready that is not"
		case state == v1alpha1.MemberReady && f.liveness&(leases.Stale|leases.Never) != 0:
			return "calls a member ready that does not renew"
		}
		return ""
	})
}

func TestGravityNamesEveryReason(t *testing.T) {
	for _, reason := range []string{
		v1alpha1.ReasonRecordUnreadable, v1alpha1.ReasonRecordLost, v1alpha1.ReasonSnapshotUnusable, v1alpha1.ReasonRecoveryProposed,
		v1alpha1.ReasonRecoveryRefused, v1alpha1.ReasonDataLost, v1alpha1.ReasonAlarmRaised, v1alpha1.ReasonObjectNotOwned, v1alpha1.ReasonAPIRequestRejected,
		v1alpha1.ReasonLeaseUnreadable, v1alpha1.ReasonVolumeDeleted, v1alpha1.ReasonStorageClassMissing,
		v1alpha1.ReasonVolumePending, v1alpha1.ReasonPodUnschedulable, v1alpha1.ReasonImagePullFailed,
		v1alpha1.ReasonContainerCannotStart, v1alpha1.ReasonQuorumLost, v1alpha1.ReasonMemberCannotStart, v1alpha1.ReasonNodeLost,
		v1alpha1.ReasonAgentNotRunning, v1alpha1.ReasonMemberStuck,
		v1alpha1.ReasonOrphanedObjects, v1alpha1.ReasonVolumeNotExpanded, v1alpha1.ReasonSlowDisk,
	} {
		graver := Problem{Reason: reason, Message: "graver"}
		if got, _ := describe([]Problem{{Reason: "unlisted"}, graver}); got != "unlisted" {
			t.Errorf("%s: a reason that the order does not know must stand out, got %s", reason, got)
		}
	}
	reason, message := describe([]Problem{
		{Reason: v1alpha1.ReasonMemberCannotStart, Member: "b", Message: "waits"},
		{Reason: v1alpha1.ReasonObjectNotOwned, Member: "a", Message: "taken"},
		{Reason: v1alpha1.ReasonMemberCannotStart, Member: "c", Message: "waits"},
		{Reason: v1alpha1.ReasonMemberCannotStart, Member: "d", Message: "waits"},
		{Reason: v1alpha1.ReasonMemberCannotStart, Member: "d", Message: "waits"},
	})
	if want := "member a: taken; member b: waits; member c: waits; and 1 more"; reason != v1alpha1.ReasonObjectNotOwned || message != want {
		t.Errorf("got %s %q, want %q", reason, message, want)
	}
}

func ExampleDesired() {
	steps := Steps(Evaluate(Desired{Replicas: 3}, Observed{RecordState: RecordAbsent}))
	fmt.Println(steps[0].Kind, steps[0].Rule, steps[0].Draw)
	// Output: CreateRecord record-newly-formed 3
}
