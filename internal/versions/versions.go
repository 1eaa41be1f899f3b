package versions

import (
	"fmt"
	"strconv"
	"strings"
)

// Version of etcd 3.
type Version struct{ Minor, Patch int }

// Parse parses major.minor.patch of etcd 3, without a leading v. ok is false for everything else.
func Parse(s string) (v Version, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 || parts[0] != "3" {
		return Version{}, false
	}
	minor, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil {
		return Version{}, false
	}
	patch, err := strconv.ParseUint(parts[2], 10, 16)
	return Version{int(minor), int(patch)}, err == nil
}

// String returns major.minor.patch.
func (v Version) String() string { return fmt.Sprintf("3.%d.%d", v.Minor, v.Patch) }

// Line returns major.minor, as in the downgrade API and the storage versions of etcd.
func (v Version) Line() string { return fmt.Sprintf("3.%d", v.Minor) }

// Verdict on a release or on a step.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "Allowed"
	// Warned: the change is made, and the user gets a warning.
	Warned  Verdict = "Warned"
	Refused Verdict = "Refused"
)

// Judgement is a verdict, the rule that gave it, the reason, and the source of the reason.
type Judgement struct {
	Verdict           Verdict
	Rule, Why, Source string
}

// Oldest and Newest minor that is supported.
const (
	Oldest = 5
	Newest = 7
)

// releaseRule applies to the releases of one minor below a patch.
type releaseRule struct {
	name         string
	minor, below int
	verdict      Verdict
	why, source  string
}

// releaseRules judge a single release; the first row that matches wins. #n is etcd-io/etcd.
var releaseRules = []releaseRule{
	{"floor-3.5", 5, 31, Refused, "older releases of 3.5 corrupt data during defragmentation (before 3.5.23), or return stale reads after a change " +
		"of leader (3.5.28). They add a member next to one that is down (3.5.30), or promote a learner by MemberUpdate (3.5.31)",
		"CHANGELOG-3.5; #20653 #20387 #21694"},
	{"floor-3.6", 6, 12, Refused, "older releases of 3.6 replay promotions (before 3.6.4), corrupt data during defragmentation (3.6.5), or return " +
		"stale reads after a change of leader (3.6.9). They add a member next to one that is down (3.6.11), or promote a learner by MemberUpdate (3.6.12)",
		"CHANGELOG-3.6; #20650 #20653 #20387 #21694"},
	{"watch-leak-3.5", 5, 33, Warned, "watches leak memory; fixed in 3.5.33", "CHANGELOG-3.5"},
	{"watch-leak-3.6", 6, 14, Warned, "watches leak memory; fixed in 3.6.14", "CHANGELOG-3.6"},
	{"watch-leak-3.7", 7, 1, Warned, "watches leak memory; fixed in 3.7.1", "CHANGELOG-3.7"},
}

// stepRule applies to steps of a number of minors, up or down.
type stepRule struct {
	name string
	// least and most are the limits of how many minors the step goes up; negative numbers mean down.
	least, most int
	// from is the minor from which the step goes. below is the patch that the release must be older than; 0 for any.
	from, below int
	verdict     Verdict
	why, source string
}

const farthest = Newest - Oldest

// stepRules judge a step between two releases that are allowed or warned about; the first row that matches wins.
var stepRules = []stepRule{
	{"skips-minors", 2, farthest, 0, 0, Refused, "etcd supports upgrades by one minor at a time",
		"etcd.io/docs/v3.7/upgrades: running versions must not differ by more than one minor"},
	{"goes-back-minors", -farthest, -2, 0, 0, Refused, "etcd supports downgrades by one minor at a time, after all members run the previous one",
		"etcd.io/docs/v3.7/downgrades; server/etcdserver/api/membership/downgrade.go AllowedDowngradeVersion"},
	{"floor-of-3.6", 1, 1, 5, 26, Refused, "after an upgrade to 3.6 from a release before 3.5.26, removed members reappear and learners are " +
		"counted wrongly: upgrade to a later 3.5 first",
		"etcd.io/docs/v3.6/upgrades/upgrade_3_6; #19557 #20967 #20995"},
	{"floor-of-3.7", 1, 1, 6, 11, Refused, "3.7 has no v2 store, and only 3.6.11 and later leave nothing in it: upgrade to a later 3.6 first",
		"etcd.io/docs/v3.7/upgrades/upgrade_3_7"},
	{"next-minor", 1, 1, 0, 0, Allowed, "one member at a time, the leader last", "etcd.io/docs/v3.7/upgrades"},
	{"minor-before", -1, -1, 0, 0, Allowed, "allowed after etcd has enabled the downgrade and its storage has the format of the previous minor",
		"etcd.io/docs/v3.7/downgrades"},
	{"within-minor", 0, 0, 0, 0, Allowed, "all patches of a minor have the same storage and log format", "etcd.io/docs/v3.7/op-guide/versioning"},
}

// JudgeRelease judges whether a release may run at all.
func JudgeRelease(v Version) Judgement {
	if v.Minor < Oldest || v.Minor > Newest {
		return Judgement{Refused, "unsupported-minor", fmt.Sprintf("druid supports etcd 3.%d to 3.%d", Oldest, Newest), "the releases that druid is tested with"}
	}
	for _, r := range releaseRules {
		if v.Minor == r.minor && v.Patch < r.below {
			return Judgement{r.verdict, r.name, r.why, r.source}
		}
	}
	return Judgement{Allowed, "release", "no known problem", "changelogs of 3.5, 3.6 and 3.7"}
}

// JudgeStep judges whether a member that runs one release may run another one next. It does not judge the releases
// themselves; JudgeRelease does.
func JudgeStep(from, to Version) Judgement {
	minors := to.Minor - from.Minor
	for _, r := range stepRules {
		if minors >= r.least && minors <= r.most && (r.from == 0 || r.from == from.Minor && from.Patch < r.below) {
			return Judgement{r.verdict, r.name, r.why, r.source}
		}
	}
	return Judgement{Refused, "unsupported-step", fmt.Sprintf("druid supports etcd 3.%d to 3.%d", Oldest, Newest), "the releases that druid is tested with"}
}

// Learners35 is the number of learners that a raft group can have if etcd 3.5 formed it. 3.5 has no flag for another one.
const Learners35 = 1

// MaxSnapshotCount is the largest spec.etcd.snapshotCount with which a raft group that 3.5 may have written to can
// change from 3.6 to 3.7: the leader's agent appends as many entries to the log, and 100000 take a minute of small
// writes.
const MaxSnapshotCount = 100_000

// JudgeGroup judges whether the members of a raft group can change from one release to another. maxLearners is the
// limit with which the group was formed, snapshotCount is spec.etcd.snapshotCount, 0 for the default of etcd. JudgeStep
// judges the releases.
func JudgeGroup(from, to Version, maxLearners int, snapshotCount int64) Judgement {
	switch {
	case to.Minor < from.Minor && to.Minor == 5 && maxLearners != Learners35:
		return Judgement{Refused, "learners", fmt.Sprintf(
			"the raft group was formed with max-learners %d, which 3.5 has no flag for. Members with another limit would "+
				"have another member list than the others. Stay on 3.6, or restore a backup into a new EtcdCluster", maxLearners),
			"server/etcdserver/api/membership: max-learners"}
	case from.Minor == 6 && to.Minor == 7 && maxLearners <= Learners35 && snapshotCount > MaxSnapshotCount:
		return Judgement{Refused, "long-log", fmt.Sprintf(
			"3.7 does not start on a log with entries of 3.5, and spec.etcd.snapshotCount is too large for the members to drop them: set it to %d or less",
			MaxSnapshotCount), "server/etcdserver/apply: requests of the v2 API"}
	default:
		return Judgement{Allowed, "group", "the raft group can take the step", "the releases that druid is tested with"}
	}
}
