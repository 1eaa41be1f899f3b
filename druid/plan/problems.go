package plan

import (
	"fmt"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// problems are those that were observed and those that only the whole picture shows.
func problems(d Desired, o Observed) []Problem {
	all := append([]Problem(nil), o.Problems...)
	switch o.RecordState {
	case RecordForeign:
		all = append(all, Problem{Reason: v1alpha1.ReasonObjectNotOwned, Message: o.RecordProblem})
	case RecordUnreadable:
		all = append(all, Problem{Reason: v1alpha1.ReasonRecordUnreadable, Message: o.RecordProblem +
			": nothing is done by it. Correct it, or delete that Lease: druid makes it again from what it knows"})
	case RecordFormed:
		if recordLost(d, o) {
			all = append(all, Problem{Reason: v1alpha1.ReasonRecordLost, Message: "the cluster record vanished before the " +
				"cluster was known to have formed, so no member may form it now: one may have. A member that did says so in its " +
				"Lease within a minute, and the cluster goes on; if this condition stays, none did, no client was ever served, " +
				"and the cure is to delete this EtcdCluster and to create it again"})
		}
	default:
	}
	if o.Origin.Stuck {
		all = append(all, Problem{Reason: v1alpha1.ReasonSnapshotUnusable, Message: o.Origin.Words})
	}
	all = append(all, foreignLeases(d, o)...)
	for _, object := range o.Objects {
		if object.State == ObjectForeign {
			all = append(all, foreign("", object.Kind+" "+object.Name))
		}
	}
	if o.Budget == ObjectForeign {
		all = append(all, foreign("", "PodDisruptionBudget"))
	}
	listed := o.listed()
	for _, m := range listed {
		all = append(all, memberProblems(m, memberFactsOf(m, d, o, listed))...)
	}
	if p, found := lossProblem(o, listed); found {
		all = append(all, p)
	}
	all = append(all, healingProblems(o, listed)...)
	return append(all, alarmProblems(listed)...)
}

// alarmProblems is what the leader's agent says of an alarm. What a member says that leads no more, or is not heard of, may be over.
func alarmProblems(listed []Member) (all []Problem) {
	for _, m := range listed {
		if m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Says.Role == leases.RoleLeader && m.Says.Alarm != "" {
			all = append(all, Problem{Reason: v1alpha1.ReasonAlarmRaised, Message: "an alarm of etcd stands, with which it refuses writes; " +
				"the leader's agent says " + m.Says.Alarm})
		}
	}
	return all
}

// recordLost: a record that says Formed, and nobody knows of which group.
func recordLost(d Desired, o Observed) bool {
	return o.Record.ClusterID == 0 && evidenceOf(d, o)&(evidenceLease|evidenceStatus) == 0
}

func memberProblems(m Member, f memberFacts) []Problem {
	var all []Problem
	if leaseRows.Decide(f).Verdict == conflict {
		all = append(all, foreign(m.Name, "Lease "+m.Name))
	}
	switch claimRows.Decide(f).Verdict {
	case conflict:
		all = append(all, foreign(m.Name, "PersistentVolumeClaim "+m.Name))
	case held:
		all = append(all, Problem{Reason: v1alpha1.ReasonVolumeDeleted, Member: m.Name, Message: "its PersistentVolumeClaim " + m.Name +
			" was deleted while the cluster was paused, and held the only copy of its data; none is made in its place, because it " +
			"would be empty. Restore a backup into a new EtcdCluster by spec.bootstrap.restore"})
	default:
	}
	switch podRows.Decide(f).Verdict {
	case conflict:
		all = append(all, foreign(m.Name, "Pod "+m.Name))
	case held:
		all = append(all, Problem{Reason: v1alpha1.ReasonVolumeDeleted, Member: m.Name, Message: "its PersistentVolumeClaim " +
			"was deleted, and the other members are no quorum without it; it is replaced when they are. To give up its data " +
			"now, delete its Pod"})
	default:
	}
	if m.Lease == LeaseOurs && !m.Readable {
		all = append(all, Problem{Reason: v1alpha1.ReasonLeaseUnreadable, Member: m.Name, Message: fmt.Sprintf(
			"its Lease %s cannot be understood; delete that Lease: druid makes it again and the agent fills it in", m.Name)})
	}
	if m.Lease == LeaseOurs && m.Readable && m.Says.Retire.State == leases.RetireUnreadable {
		all = append(all, Problem{Reason: v1alpha1.ReasonLeaseUnreadable, Member: m.Name, Message: fmt.Sprintf(
			"the mark %s on its Lease %s cannot be understood, so it neither leaves nor stays; remove that annotation", leases.AnnotationRetire, m.Name)})
	}
	return all
}

func foreign(member, object string) Problem {
	return Problem{Reason: v1alpha1.ReasonObjectNotOwned, Member: member, Message: object +
		" exists and does not belong to this EtcdCluster; delete or rename it"}
}

// foreignLeases are those of the members together that belong to somebody else.
func foreignLeases(d Desired, o Observed) (all []Problem) {
	if o.LeaderLease == LeaseForeign {
		all = append(all, foreign("", "Lease of the leader"))
	}
	if d.Backup && o.Full.Lease == LeaseForeign {
		all = append(all, foreign("", "Lease that tells of full backups"))
	}
	if d.Backup && o.Delta.Lease == LeaseForeign {
		all = append(all, foreign("", "Lease that tells of deltas"))
	}
	return all
}
