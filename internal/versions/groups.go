package versions

import "fmt"

// Learners35 is the number of learners that a raft group can have if etcd 3.5 formed it. 3.5 has no flag for another one.
const Learners35 = 1

// MaxSnapshotCount is the largest spec.etcd.snapshotCount with which a raft group that 3.5 may have written to can change from 3.6 to 3.7: the
// leader's agent appends as many entries to the log, and 100000 take a minute of small writes.
const MaxSnapshotCount = 100_000

// JudgeGroup judges whether the members of a raft group can change from one release to another. maxLearners is the limit with which the group
// was formed, snapshotCount is spec.etcd.snapshotCount, 0 for the default of etcd. JudgeStep judges the releases.
func JudgeGroup(from, to Version, maxLearners int, snapshotCount int64) Judgement {
	switch {
	case to.Minor < from.Minor && to.Minor == 5 && maxLearners != Learners35:
		return Judgement{Refused, "learners", fmt.Sprintf("the raft group was formed with max-learners %d, which 3.5 has no flag for. Members with another limit would "+
			"have another member list than the others. Stay on 3.6, or restore a backup into a new EtcdCluster", maxLearners), "server/etcdserver/api/membership: max-learners"}
	case from.Minor == 6 && to.Minor == 7 && maxLearners <= Learners35 && snapshotCount > MaxSnapshotCount:
		return Judgement{Refused, "long-log", fmt.Sprintf("3.7 does not start on a log with entries of 3.5, and spec.etcd.snapshotCount is too large for the members to drop them: set it to %d or less",
			MaxSnapshotCount), "server/etcdserver/apply: requests of the v2 API"}
	default:
		return Judgement{Allowed, "group", "the raft group can take the step", "the releases that druid is tested with"}
	}
}
