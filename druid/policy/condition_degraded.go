package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// degradedRows decide condition Degraded. If it is True, its reason is that of the most severe problem.
var degradedRows = rules.New(notDecided, []rules.Row[conditionFacts, conditionVerdict]{
	{Name: "problem", When: conditionFacts{problem: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionTrue, ""},
		Why: "the most severe problem determines the reason"},
	{Name: "no-problem", When: conditionFacts{problem: rules.No}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonAsExpected}},
})

func degraded(p messageContext) (metav1.Condition, bool) {
	c := p.decided(v1alpha1.ConditionDegraded, degradedRows)
	if c.Status == metav1.ConditionTrue {
		c.Reason, c.Message = describe(p.found)
	}
	return c, true
}

// degradedEvents reports the gravest problem, and that it is over.
func degradedEvents(was, is metav1.Condition, inform announcer) {
	switch {
	case was.Reason == is.Reason:
	case is.Status == metav1.ConditionTrue:
		inform(true, is.Reason, "", "%s", is.Message)
	case was.Status == metav1.ConditionTrue:
		inform(false, v1alpha1.EventProblemResolved, "", "%s is over", was.Reason)
	}
}

// gravity orders the reasons of Degraded: first what stops the cluster, last what one member can recover from by
// itself. A lost quorum comes after the problems that can be its cause, because those say what to do.
var gravity = []string{
	v1alpha1.ReasonRecordUnreadable, v1alpha1.ReasonRecordLost, v1alpha1.ReasonSnapshotUnusable, v1alpha1.ReasonRecoveryProposed,
	v1alpha1.ReasonRecoveryRefused, v1alpha1.ReasonDataLost, v1alpha1.ReasonDataUndecided, v1alpha1.ReasonDataDiffers, v1alpha1.ReasonAlarmRaised,
	v1alpha1.ReasonObjectNotOwned, v1alpha1.ReasonVolumeDeleted,
	v1alpha1.ReasonNodeLost, v1alpha1.ReasonAPIRequestRejected, v1alpha1.ReasonLeaseUnreadable, v1alpha1.ReasonStorageClassMissing,
	v1alpha1.ReasonVolumePending, v1alpha1.ReasonPodUnschedulable, v1alpha1.ReasonImagePullFailed,
	v1alpha1.ReasonContainerCannotStart, v1alpha1.ReasonAuthRequiredNotConfigured, v1alpha1.ReasonQuorumLost, v1alpha1.ReasonMemberCannotStart,
	v1alpha1.ReasonAgentNotRunning, v1alpha1.ReasonMemberStuck, v1alpha1.ReasonVolumeNotExpanded, v1alpha1.ReasonOrphanedObjects, v1alpha1.ReasonSlowDisk,
}

// maxProblems is how many problems a message names. It only counts the others.
const maxProblems = 3

// describe sorts the problems by gravity and member. It returns the reason and the message of the condition.
func describe(problems []Problem) (reason, message string) {
	sorted := slices.Clone(problems)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		if d := slices.Index(gravity, a.Reason) - slices.Index(gravity, b.Reason); d != 0 {
			return d
		}
		return strings.Compare(a.Member+a.Message, b.Member+b.Message)
	})
	sorted = slices.Compact(sorted)
	var words []string
	for i, p := range sorted {
		if i == maxProblems {
			words = append(words, fmt.Sprintf("and %d more", len(sorted)-i))
			break
		}
		if p.Member == "" {
			words = append(words, p.Message)
			continue
		}
		words = append(words, fmt.Sprintf("member %s: %s", p.Member, p.Message))
	}
	return sorted[0].Reason, strings.Join(words, "; ")
}

// problemsOf returns the observed problems and those that follow from the cluster.
func problemsOf(e Evaluation) []Problem {
	o := e.Observed
	all := append([]Problem(nil), o.Problems...)
	switch o.RecordState {
	case RecordForeign:
		all = append(all, Problem{Reason: v1alpha1.ReasonObjectNotOwned, Message: o.RecordProblem})
	case RecordUnreadable:
		all = append(all, Problem{Reason: v1alpha1.ReasonRecordUnreadable, Message: o.RecordProblem +
			". druid does not use it. Correct it, or delete that Lease: druid creates it again"})
	case RecordFormed:
		if recordLost(e) {
			all = append(all, Problem{Reason: v1alpha1.ReasonRecordLost, Message: "the cluster record was deleted before " +
				"bootstrap was known to be complete. Bootstrap is blocked, because a member might have formed the cluster. That member reports it in its " +
				"Lease within a minute, and the cluster continues. If this condition stays, no client was ever served: " +
				"delete this EtcdCluster and create it again"})
		}
	default:
	}
	if o.Origin.Stuck {
		all = append(all, Problem{Reason: v1alpha1.ReasonSnapshotUnusable, Message: o.Origin.Words})
	}
	all = append(all, foreignLeases(e)...)
	for _, object := range o.Objects {
		if object.State == ObjectForeign {
			all = append(all, foreign("", object.Kind+" "+object.Name))
		}
	}
	if o.Budget == ObjectForeign {
		all = append(all, foreign("", "PodDisruptionBudget"))
	}
	for _, m := range e.listed {
		all = append(all, memberProblems(m, memberFactsOf(m, e), e.undecided())...)
	}
	if p, found := noQuorumProblem(e); found {
		all = append(slices.DeleteFunc(all, func(one Problem) bool { return followsFromNoQuorum(one, e) }), p)
	}
	all = append(all, repairingProblems(o, e.listed)...)
	all = append(all, differenceProblems(e)...)
	all = append(all, diskProblems(e.listed)...)
	return append(all, alarmProblems(e.listed)...)
}

// differenceProblems reports members whose data differs.
func differenceProblems(e Evaluation) (all []Problem) {
	if u := e.Record.Undecided; e.undecided() {
		all = append(all, Problem{Reason: v1alpha1.ReasonDataUndecided, Message: fmt.Sprintf("the data of the members differs at revisions %d and %d, and "+
			"no majority of all voters has the same data (%s). Until you decide, druid and the agents replace no Pod for a change of the spec, remove "+
			"and defragment no member, and "+
			"delete no backup. See docs/how-to/rescue/data-differs.md", u.Confirmed, u.Revision, u.Hashes)})
	}
	for _, m := range e.listed {
		if d := m.Reports.Differs; m.dataDiffers() {
			all = append(all, Problem{Reason: v1alpha1.ReasonDataDiffers, Member: m.Name, Message: fmt.Sprintf("its data differs from that of a majority of all "+
				"voters at revisions %d and %d (hash %s, and not %s). It receives no clients, and its agent replaces it. "+
				"The agent moves its data to quarantine",
				d.Confirmed, d.Revision, d.Hash, d.Majority)})
		}
	}
	return all
}

// alarmProblems reports an alarm that the leader's agent published. What another member reports, or one that is not
// renewing its Lease, can be out of date.
func alarmProblems(listed []Member) (all []Problem) {
	for _, m := range listed {
		if m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Reports.Role == leases.RoleLeader && m.Reports.Alarm != "" {
			all = append(all, Problem{Reason: v1alpha1.ReasonAlarmRaised, Message: "an alarm of etcd is raised, and etcd refuses writes. " +
				"The leader's agent reports: " + m.Reports.Alarm})
		}
	}
	return all
}

// recordLost reports whether a record says Formed and the cluster ID is unknown.
func recordLost(e Evaluation) bool {
	return e.Record.ClusterID == 0 && e.evidence&(evidenceLease|evidenceStatus) == 0
}

// memberProblems are those of the objects of a member. undecided says that the data of the members differs without a majority.
func memberProblems(m Member, f memberFacts, undecided bool) []Problem {
	var all []Problem
	if leaseRows.Decide(f).Verdict == conflict {
		all = append(all, foreign(m.Name, "Lease "+m.Name))
	}
	switch claimRows.Decide(f).Verdict {
	case conflict:
		all = append(all, foreign(m.Name, "PersistentVolumeClaim "+m.Name))
	case held:
		all = append(all, Problem{Reason: v1alpha1.ReasonVolumeDeleted, Member: m.Name, Message: "its PersistentVolumeClaim " + m.Name +
			" was deleted while the cluster was paused, and held the only copy of the data. druid creates no other, because it " +
			"would be empty. Restore a backup into a new EtcdCluster with spec.bootstrap.restore"})
	default:
	}
	switch verdict := podRows.Decide(f).Verdict; {
	case verdict == conflict:
		all = append(all, foreign(m.Name, "Pod "+m.Name))
	case verdict == held && undecided:
		all = append(all, Problem{Reason: v1alpha1.ReasonVolumeDeleted, Member: m.Name, Message: "its PersistentVolumeClaim " +
			"was deleted, and no majority of the members has the same data. druid does not delete its Pod, because its copy can be the one that " +
			"decides. Save it, and then delete the Pod"})
	case verdict == held:
		all = append(all, Problem{Reason: v1alpha1.ReasonVolumeDeleted, Member: m.Name, Message: "its PersistentVolumeClaim " +
			"was deleted, and the other members are not a quorum without it. It is replaced when they are. To abandon its data " +
			"now, delete its Pod"})
	}
	if m.Lease == LeaseOurs && !m.Readable {
		all = append(all, Problem{Reason: v1alpha1.ReasonLeaseUnreadable, Member: m.Name, Message: fmt.Sprintf(
			"its Lease %s cannot be parsed. Delete that Lease: druid creates it again and the agent fills it in", m.Name)})
	}
	if m.Lease == LeaseOurs && m.Readable && m.Reports.Removal.State == leases.RemovalUnreadable {
		all = append(all, Problem{Reason: v1alpha1.ReasonLeaseUnreadable, Member: m.Name, Message: fmt.Sprintf(
			"the annotation %s on its Lease %s cannot be parsed, so druid does not remove the member. Remove that annotation",
			leases.AnnotationRemoval, m.Name)})
	}
	return all
}

func foreign(member, object string) Problem {
	return Problem{Reason: v1alpha1.ReasonObjectNotOwned, Member: member, Message: object +
		" exists and has another owner. If nothing uses it, delete it. Otherwise give this EtcdCluster another name"}
}

// foreignLeases are the Leases of the cluster that have another owner.
func foreignLeases(e Evaluation) (all []Problem) {
	if e.LeaderLease == LeaseForeign {
		all = append(all, foreign("", "Lease of the leader"))
	}
	if e.Backup && e.Full.Lease == LeaseForeign {
		all = append(all, foreign("", "Lease of full backups"))
	}
	if e.Backup && e.Delta.Lease == LeaseForeign {
		all = append(all, foreign("", "Lease of delta backups"))
	}
	return all
}
