package plan

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

func TestRecordIsBornOnceAndNeverTakenBack(t *testing.T) {
	count := map[string]int{}
	for _, record := range bits(anyRecord) {
		for _, known := range bits(anyAnswer) {
			for _, evidence := range bits(anyEvidence) {
				for _, names := range bits(anyNames) {
					for i := range 4 {
						f := recordFacts{record, known, evidence, names, rules.YesNoOf(i%2 == 1), rules.YesNoOf(i/2 == 1)}
						order, rule := judgeRecord(f)
						count[rule]++
						checkRecordOrder(t, f, order, rule)
					}
				}
			}
		}
	}
	var rows []string
	for _, r := range records {
		rows = append(rows, r.name)
	}
	fired(t, count, rows...)
	renderRecords(t, count)
}

func checkRecordOrder(t *testing.T, f recordFacts, order order, rule string) {
	t.Helper()
	switch {
	case order == orderBirth && (f.record != RecordAbsent || f.evidence != evidenceNone):
		t.Errorf("%s: a second cluster could be born: %+v", rule, f)
	case order != orderNothing && f.record&(RecordForeign|RecordUnreadable|RecordRecovering) != 0:
		t.Errorf("%s: a record that is not druid's to write is written: %+v", rule, f)
	case order == orderRecreate && f.record != RecordAbsent:
		t.Errorf("%s: a record that exists is made again: %+v", rule, f)
	case order == orderMoveSeed && (f.record != RecordForming || f.evidence == evidenceStatus):
		t.Errorf("%s: a seed is named for a cluster that formed: %+v", rule, f)
	case order == orderRelist && (f.record != RecordFormed || f.lost != rules.Yes), order == orderGrow && f.record == RecordFormed && f.lost == rules.Yes:
		t.Errorf("%s: names are brought back that were not lost, or drawn in place of those: %+v", rule, f)
	case order == orderGrow && f.names != namesFew:
		t.Errorf("%s: names are drawn that nobody asked for: %+v", rule, f)
	case f.record == RecordForming && f.evidence == evidenceStatus && order != orderRestore:
		t.Errorf("%s: a formed cluster's record goes on saying Forming: %+v", rule, f)
	}
}

func TestMemberTablesAreSafeForAllFacts(t *testing.T) {
	count := map[string]int{}
	for _, lease := range bits(anyLease) {
		for _, claim := range bits(anyClaim) {
			for _, pod := range bits(anyPod) {
				for _, spare := range bits(anyAnswer) {
					for _, marked := range bits(anyAnswer) {
						for _, paused := range bits(anyAnswer) {
							checkMember(t, memberFacts{lease, claim, pod, spare, marked, paused}, count)
						}
					}
				}
			}
		}
	}
	var rows []string
	for _, r := range leaseRows {
		rows = append(rows, r.name)
	}
	for _, r := range claimRows {
		rows = append(rows, r.name)
	}
	for _, r := range podRows {
		rows = append(rows, r.name)
	}
	fired(t, count, rows...)
	renderMembers(t, count)
}

func checkMember(t *testing.T, f memberFacts, count map[string]int) {
	t.Helper()
	lease, leaseRule := judgeLease(f)
	claim, claimRule := judgeClaim(f)
	pod, podRule := judgePod(f)
	for _, rule := range []string{leaseRule, claimRule, podRule} {
		count[rule]++
	}
	volumeGone := f.claim&(ClaimAbsent|ClaimTerminating) != 0
	switch {
	case (lease == create) != (f.lease == LeaseAbsent), (claim == create) && f.claim != ClaimAbsent, (pod == create) && f.pod != PodAbsent:
		t.Errorf("%+v: something that exists is created", f)
	case lease == remove || claim == remove:
		t.Errorf("%+v: druid deletes a Lease or a claim", f)
	case pod == remove && f.pod == PodLive && (f.spare == rules.No || !volumeGone):
		t.Errorf("%+v: %s deletes a running Pod that is needed", f, podRule)
	case pod == remove && f.pod&(PodForeign|PodAbsent|PodTerminating|PodUnscheduled) != 0:
		t.Errorf("%+v: %s deletes what is not ours, not there, or on its way", f, podRule)
	case claim == create && f.pod&(PodUnstarted|PodLive|PodEnded|PodTerminating|PodForeign) != 0:
		t.Errorf("%+v: %s makes a claim while a Pod may hold the former volume", f, claimRule)
	case pod == create && f.claim == ClaimTerminating:
		t.Errorf("%+v: %s makes a Pod that keeps a deleted claim from going", f, podRule)
	case f.paused == rules.Yes && (claim == create || pod == create || pod == remove && f.pod == PodAbsent):
		t.Errorf("%+v: a member of a paused cluster is made", f)
	case pod == create && claim != create && f.claim&(ClaimPresent|ClaimUnwanted) == 0:
		t.Errorf("%+v: %s makes a Pod without a volume", f, podRule)
	case f.lease == LeaseForeign && (claim == create || pod == create):
		t.Errorf("%+v: a member is made beside a Lease that is not its own", f)
	case pod == mark && (f.lease != LeaseOurs || f.claim&(ClaimPresent|ClaimTerminating|ClaimUnwanted) == 0):
		t.Errorf("%+v: a Lease is marked that is not ours, or with no volume", f)
	}
}

func TestLabelsNeverEmptyTheServiceForWhatIsUnknown(t *testing.T) {
	serving, voter := map[string]int{}, map[string]int{}
	for _, leaving := range bits(anyAnswer) {
		for _, says := range bits(anySays) {
			for _, liveness := range bits(anyLiveness) {
				for _, formed := range bits(anyAnswer) {
					for _, ready := range bits(anyAnswer) {
						for _, lost := range bits(anyAnswer) {
							for _, obscure := range bits(anyAnswer) {
								for _, out := range bits(anyAnswer) {
									f := labelFacts{leaving, out, says, liveness, formed, ready, lost, obscure}
									checkLabels(t, f, serving, voter)
								}
							}
						}
					}
				}
			}
		}
	}
	var rows []string
	for _, r := range servingRows {
		rows = append(rows, r.name)
	}
	fired(t, serving, rows...)
	rows = nil
	for _, r := range voterRows {
		rows = append(rows, r.name)
	}
	fired(t, voter, rows...)
	renderLabels(t, serving, voter)
}

func checkLabels(t *testing.T, f labelFacts, serving, voter map[string]int) {
	t.Helper()
	s, rule := judgeServing(f)
	serving[rule]++
	v, voterRule := judgeVoter(f)
	voter[voterRule]++
	switch {
	case s == labelClear && f.leaving == rules.No && f.obscure == rules.Yes:
		t.Errorf("%+v: %s takes a Pod out of a Service of which half is unknown", f, rule)
	case s == labelClear && f.leaving == rules.No && f.liveness == leases.Stale && f.etcdReady == rules.Yes && f.nodeLost == rules.No:
		t.Errorf("%+v: %s takes away a serving etcd because its agent is dead", f, rule)
	case s == labelSet && (f.says != saysVoter || f.liveness != leases.Live || f.formed != rules.Yes || f.etcdReady != rules.Yes || f.leaving != rules.No):
		t.Errorf("%+v: %s sends clients to what is not known to serve", f, rule)
	case s != labelClear && f.leaving == rules.Yes:
		t.Errorf("%+v: %s sends clients to a Pod that goes", f, rule)
	case v == labelSet && (f.says != saysVoter || f.liveness != leases.Live || f.out == rules.Yes):
		t.Errorf("%+v: %s counts what is not known to vote", f, voterRule)
	case v == labelClear && f.out == rules.No && (f.says != saysOther || f.liveness != leases.Live):
		t.Errorf("%+v: %s stops to count what is not known not to vote", f, voterRule)
	}
}

func TestBudgetAllowsNoMoreThanTheClusterCanSpare(t *testing.T) {
	for voters := range 10 {
		for ready := range voters + 1 {
			for i := range 12 {
				f := budgetFacts{voters: voters, ready: ready, moving: i%2 == 1, unsaved: i/2%2 == 1, strays: i / 4}
				moving := f.moving || f.unsaved || f.strays > 0
				// The strays may be ready, and stay so while members are evicted.
				spare := f.strays + ready - minAvailable(f)
				switch {
				case ready-spare < quorum(voters):
					t.Errorf("%+v: evictions leave %d, fewer than a quorum", f, ready-spare)
				case (moving || ready < voters) && spare > 0:
					t.Errorf("%+v: %d evictions are allowed although the cluster is not whole", f, spare)
				case !moving && ready == voters && voters > 0 && spare != voters-quorum(voters):
					t.Errorf("%+v: %d evictions are allowed, want all that a whole cluster can spare", f, spare)
				}
			}
		}
	}
}

func TestConditionsAreTotal(t *testing.T) {
	count := map[string]int{}
	eachConditionFacts(func(f conditionFacts) {
		for _, kind := range conditionTypes {
			status, reason, rule := judgeCondition(kind, f)
			count[rule]++
			switch {
			case kind == v1alpha1.ConditionReady && status == metav1.ConditionTrue && f.resting == restingPaused:
				t.Errorf("%+v: %s calls a cluster ready that is paused", f, rule)
			case kind == v1alpha1.ConditionReady && reason == v1alpha1.ReasonQuorumLost && f.resting&(restingPaused|restingResumes) != 0:
				t.Errorf("%+v: %s says that a quorum was lost that nobody asks for, or that comes", f, rule)
			case kind == v1alpha1.ConditionProgressing && (reason == v1alpha1.ReasonPaused) != (f.resting == restingPaused && f.record&(RecordForeign|RecordUnreadable) == 0 && f.progress != progressLeaving):
				t.Errorf("%+v: %s hides or invents a pause", f, rule)
			case kind == v1alpha1.ConditionProgressing && (reason == v1alpha1.ReasonLeaving) != (f.progress == progressLeaving):
				t.Errorf("%+v: %s hides or invents that all members leave", f, rule)
			case kind == v1alpha1.ConditionReady && status == metav1.ConditionTrue && f.outlook != outlookQuorum:
				t.Errorf("%+v: %s calls a cluster ready of which no quorum is known to serve", f, rule)
			case kind == v1alpha1.ConditionReady && status == metav1.ConditionFalse && f.outlook == outlookUnclear && f.formed == rules.Yes && f.resting != restingPaused:
				t.Errorf("%+v: %s calls a cluster down of which too little is known", f, rule)
			case kind == v1alpha1.ConditionAllMembersReady && status == metav1.ConditionTrue && f.readiness != readinessAll:
				t.Errorf("%+v: %s calls all members ready", f, rule)
			case kind == v1alpha1.ConditionProgressing && reason == v1alpha1.ReasonReconciled && f.rolling != rollingNone:
				t.Errorf("%+v: %s calls a cluster up to date of which a Pod is outdated", f, rule)
			case kind == v1alpha1.ConditionDegraded && (status == metav1.ConditionTrue) != (f.problem == rules.Yes):
				t.Errorf("%+v: %s hides or invents a problem (%s)", f, rule, reason)
			}
		}
	})
	var rows []string
	for _, r := range conditionRows {
		rows = append(rows, r.name)
	}
	fired(t, count, rows...)
	renderConditions(t, count)
}

func eachConditionFacts(check func(conditionFacts)) {
	for _, record := range bits(anyRecord) {
		for _, formed := range bits(anyAnswer) {
			for _, outlook := range bits(anyOutlook) {
				for _, progress := range bits(anyProgress) {
					for _, readiness := range bits(anyReadiness) {
						for _, shrinking := range bits(anyShrinking) {
							for _, rolling := range bits(anyRolling) {
								for _, resting := range bits(anyResting) {
									for _, problem := range bits(anyAnswer) {
										check(conditionFacts{record, formed, outlook, progress, readiness, shrinking, rolling, resting, problem})
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestMemberStatusNeverCondemnsWhatIsUnknown(t *testing.T) {
	count := map[string]int{}
	for _, health := range bits(anyHealth) {
		for _, learner := range bits(anyAnswer) {
			for _, liveness := range bits(anyLiveness) {
				for _, expired := range bits(anyAnswer) {
					for _, before := range bits(anyAnswer) {
						paused, _, pausedRule := judgeMember(statusFacts{rules.Yes, health, learner, liveness, expired, before})
						count[pausedRule]++
						f := statusFacts{rules.No, health, learner, liveness, expired, before}
						state, _, rule := judgeMember(f)
						count[rule]++
						switch {
						case paused != v1alpha1.MemberPaused || state == v1alpha1.MemberPaused:
							t.Errorf("%+v: %s calls it %s, and %s where it is paused", f, rule, state, paused)
						case state == v1alpha1.MemberNotReady && health != healthDown && learner == rules.No && liveness&(leases.Unknown|leases.Never) != 0:
							t.Errorf("%+v: %s calls a member not ready that was never watched", f, rule)
						case state == v1alpha1.MemberReady && (health == healthDown || learner == rules.Yes):
							t.Errorf("%+v: %s calls a member ready that is not", f, rule)
						case state == v1alpha1.MemberReady && liveness&(leases.Stale|leases.Never) != 0:
							t.Errorf("%+v: %s calls a member ready that does not renew", f, rule)
						}
					}
				}
			}
		}
	}
	var rows []string
	for _, r := range memberRows {
		rows = append(rows, r.name)
	}
	fired(t, count, rows...)
	renderMemberStatus(t, count)
}

func TestGravityNamesEveryReason(t *testing.T) {
	for _, reason := range []string{
		v1alpha1.ReasonRecordUnreadable, v1alpha1.ReasonRecordLost, v1alpha1.ReasonSnapshotUnusable, v1alpha1.ReasonDataLost, v1alpha1.ReasonAlarmRaised, v1alpha1.ReasonForeignObject, v1alpha1.ReasonRefusedByAPI,
		v1alpha1.ReasonLeaseUnreadable, v1alpha1.ReasonVolumeDeleted, v1alpha1.ReasonStorageClassMissing,
		v1alpha1.ReasonVolumePending, v1alpha1.ReasonPodUnschedulable, v1alpha1.ReasonImagePullFailed,
		v1alpha1.ReasonContainerCannotStart, v1alpha1.ReasonMemberCannotStart, v1alpha1.ReasonNodeLost, v1alpha1.ReasonAgentNotRunning, v1alpha1.ReasonMemberStuck,
		v1alpha1.ReasonOrphan, v1alpha1.ReasonVolumeNotExpanded,
	} {
		graver := Problem{Reason: reason, Message: "graver"}
		if got, _ := describe([]Problem{{Reason: "unlisted"}, graver}); got != "unlisted" {
			t.Errorf("%s: a reason that the order does not know must stand out, got %s", reason, got)
		}
	}
	reason, message := describe([]Problem{
		{Reason: v1alpha1.ReasonMemberCannotStart, Member: "b", Message: "waits"},
		{Reason: v1alpha1.ReasonForeignObject, Member: "a", Message: "taken"},
		{Reason: v1alpha1.ReasonMemberCannotStart, Member: "c", Message: "waits"},
		{Reason: v1alpha1.ReasonMemberCannotStart, Member: "d", Message: "waits"},
		{Reason: v1alpha1.ReasonMemberCannotStart, Member: "d", Message: "waits"},
	})
	if want := "member a: taken; member b: waits; member c: waits; and 1 more"; reason != v1alpha1.ReasonForeignObject || message != want {
		t.Errorf("got %s %q, want %q", reason, message, want)
	}
}

func ExampleDesired() {
	steps := Steps(Desired{Replicas: 3}, Observed{RecordState: RecordAbsent})
	fmt.Println(steps[0].Kind, steps[0].Rule, steps[0].Draw)
	// Output: CreateRecord record-born 3
}
