package versions

import (
	"fmt"
	"strconv"
	"strings"
)

// Version of etcd 3.
type Version struct{ Minor, Patch int }

// Parse reads major.minor.patch of etcd 3, without a leading v. ok is false for everything else.
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

// String is major.minor.patch.
func (v Version) String() string { return fmt.Sprintf("3.%d.%d", v.Minor, v.Patch) }

// Line is major.minor, as etcd's downgrade API and its storage versions have it.
func (v Version) Line() string { return fmt.Sprintf("3.%d", v.Minor) }

// Verdict on a release or on a step.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "Allowed"
	// Warned: it is done, and a person is reported what is known of it.
	Warned  Verdict = "Warned"
	Refused Verdict = "Refused"
)

// Judgement is a verdict, the rule that gave it, why, and where that is known from.
type Judgement struct {
	Verdict           Verdict
	Rule, Why, Source string
}

// Oldest and Newest minor that is supported.
const (
	Oldest = 5
	Newest = 7
)

// releaseRule is about the releases of one minor below a patch.
type releaseRule struct {
	name         string
	minor, below int
	verdict      Verdict
	why, source  string
}

// releaseRules judge a release by itself; the first row that matches wins. #n is etcd-io/etcd.
var releaseRules = []releaseRule{
	{"floor-3.5", 5, 31, Refused, "older releases of 3.5 corrupt data in a defragmentation (before 3.5.23), answer reads that are stale after a change of the leader (3.5.28), add a member next to one that is down (3.5.30), or promote a learner by MemberUpdate (3.5.31)",
		"CHANGELOG-3.5; #20653 #20387 #21694"},
	{"floor-3.6", 6, 12, Refused, "older releases of 3.6 replay promotions (before 3.6.4), corrupt data in a defragmentation (3.6.5), answer reads that are stale after a change of the leader (3.6.9), add a member next to one that is down (3.6.11), or promote a learner by MemberUpdate (3.6.12)",
		"CHANGELOG-3.6; #20650 #20653 #20387 #21694"},
	{"watch-leak-3.5", 5, 33, Warned, "it leaks memory by watches; 3.5.33 and later do not", "CHANGELOG-3.5"},
	{"watch-leak-3.6", 6, 14, Warned, "it leaks memory by watches; 3.6.14 and later do not", "CHANGELOG-3.6"},
	{"watch-leak-3.7", 7, 1, Warned, "it leaks memory by watches; 3.7.1 and later do not", "CHANGELOG-3.7"},
}

// stepRule is about a step of so many minors, up or down.
type stepRule struct {
	name string
	// least and most are the minors that the step goes up; below zero it goes down.
	least, most int
	// from is the minor that it goes from, and below the patch that the release is older than; 0 for any.
	from, below int
	verdict     Verdict
	why, source string
}

const farthest = Newest - Oldest

// stepRules judge a step between two releases that each are no worse than warned of; the first row that matches wins.
var stepRules = []stepRule{
	{"skips-minors", 2, farthest, 0, 0, Refused, "etcd is upgraded one minor at a time",
		"etcd.io/docs/v3.7/upgrades: running versions must not differ by more than one minor"},
	{"goes-back-minors", -farthest, -2, 0, 0, Refused, "etcd goes back by one minor at the most, and by the next one after all members run that",
		"etcd.io/docs/v3.7/downgrades; server/etcdserver/api/membership/downgrade.go AllowedDowngradeVersion"},
	{"floor-of-3.6", 1, 1, 5, 26, Refused, "members that were removed come back, and learners are counted wrong, when 3.6 follows a release before 3.5.26: go to a later 3.5 first",
		"etcd.io/docs/v3.6/upgrades/upgrade_3_6; #19557 #20967 #20995"},
	{"floor-of-3.7", 1, 1, 6, 11, Refused, "3.7 has no v2 store any more, and only 3.6.11 and later leave nothing in it: go to a later 3.6 first",
		"etcd.io/docs/v3.7/upgrades/upgrade_3_7"},
	{"next-minor", 1, 1, 0, 0, Allowed, "member by member, the leader last", "etcd.io/docs/v3.7/upgrades"},
	{"minor-before", -1, -1, 0, 0, Allowed, "after the downgrade was announced to etcd, and its storage has the format of the minor before", "etcd.io/docs/v3.7/downgrades"},
	{"within-minor", 0, 0, 0, 0, Allowed, "patches of a minor share the format of the storage and of the log", "etcd.io/docs/v3.7/op-guide/versioning"},
}

// JudgeRelease says whether a release may run at all.
func JudgeRelease(v Version) Judgement {
	if v.Minor < Oldest || v.Minor > Newest {
		return Judgement{Refused, "unsupported-minor", fmt.Sprintf("druid knows etcd 3.%d to 3.%d", Oldest, Newest), "what druid is tested with"}
	}
	for _, r := range releaseRules {
		if v.Minor == r.minor && v.Patch < r.below {
			return Judgement{r.verdict, r.name, r.why, r.source}
		}
	}
	return Judgement{Allowed, "release", "nothing is known against it", "changelogs of 3.5, 3.6 and 3.7"}
}

// JudgeStep says whether a member that runs one release may run another one next. What is wrong with a release by itself
// JudgeRelease reports.
func JudgeStep(from, to Version) Judgement {
	minors := to.Minor - from.Minor
	for _, r := range stepRules {
		if minors >= r.least && minors <= r.most && (r.from == 0 || r.from == from.Minor && from.Patch < r.below) {
			return Judgement{r.verdict, r.name, r.why, r.source}
		}
	}
	return Judgement{Refused, "unsupported-step", fmt.Sprintf("druid knows etcd 3.%d to 3.%d", Oldest, Newest), "what druid is tested with"}
}
