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
			". druid does not use it. Correct it, or delete that Lease: druid creates it again"})
	case RecordFormed:
		if recordLost(d, o) {
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

// alarmProblems is what the leader's agent says of an alarm. What a member says that leads no more, or is not reachable, may be over.
func alarmProblems(listed []Member) (all []Problem) {
	for _, m := range listed {
		if m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Says.Role == leases.RoleLeader && m.Says.Alarm != "" {
			all = append(all, Problem{Reason: v1alpha1.ReasonAlarmRaised, Message: "an alarm of etcd is raised, and etcd refuses writes; " +
				"the leader's agent says " + m.Says.Alarm})
		}
	}
	return all
}

// recordLost: a record that says Formed, and no one knows of which group.
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
			" was deleted while the cluster was paused, and held the only copy of the data. druid creates no other, because it " +
			"would be empty. Restore a backup into a new EtcdCluster with spec.bootstrap.restore"})
	default:
	}
	switch podRows.Decide(f).Verdict {
	case conflict:
		all = append(all, foreign(m.Name, "Pod "+m.Name))
	case held:
		all = append(all, Problem{Reason: v1alpha1.ReasonVolumeDeleted, Member: m.Name, Message: "its PersistentVolumeClaim " +
			"was deleted, and the other members are not a quorum without it. It is replaced when they are. To abandon its data " +
			"now, delete its Pod"})
	default:
	}
	if m.Lease == LeaseOurs && !m.Readable {
		all = append(all, Problem{Reason: v1alpha1.ReasonLeaseUnreadable, Member: m.Name, Message: fmt.Sprintf(
			"its Lease %s cannot be parsed. Delete that Lease: druid creates it again and the agent fills it in", m.Name)})
	}
	if m.Lease == LeaseOurs && m.Readable && m.Says.Retire.State == leases.RetireUnreadable {
		all = append(all, Problem{Reason: v1alpha1.ReasonLeaseUnreadable, Member: m.Name, Message: fmt.Sprintf(
			"the annotation %s on its Lease %s cannot be parsed, so the member neither leaves nor stays. Remove that annotation", leases.AnnotationRetire, m.Name)})
	}
	return all
}

func foreign(member, object string) Problem {
	return Problem{Reason: v1alpha1.ReasonObjectNotOwned, Member: member, Message: object +
		" exists and has another owner. Delete or rename it"}
}

// foreignLeases are those of the members together that belong to someone else.
func foreignLeases(d Desired, o Observed) (all []Problem) {
	if o.LeaderLease == LeaseForeign {
		all = append(all, foreign("", "Lease of the leader"))
	}
	if d.Backup && o.Full.Lease == LeaseForeign {
		all = append(all, foreign("", "Lease of full backups"))
	}
	if d.Backup && o.Delta.Lease == LeaseForeign {
		all = append(all, foreign("", "Lease of delta backups"))
	}
	return all
}
