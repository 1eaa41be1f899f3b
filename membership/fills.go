package membership

import (
	"cmp"
	"slices"
	"time"
)

// Fill says how the databases of all members stand to the margin below their quotas.
type Fill uint8

// How they stand. What one member needs first counts: Crowded before Resting before FollowerLoose before LeaderLoose.
const (
	// AllBelow: every file is below the margin.
	AllBelow Fill = 1 << iota
	// FollowerLoose: a follower's file is above it, what is in use is not. LeaderLoose: the leader's alone.
	FollowerLoose
	LeaderLoose
	// Crowded: what is in use reaches the margin in some member's file, so no defragmentation brings it below.
	Crowded
	// Resting: a member's file is above it, and its defragmentation failed or ended a moment ago.
	Resting
	FillUnknown
)

var fillNames = map[Fill]string{
	AllBelow: "all below", FollowerLoose: "a follower is loose", LeaderLoose: "the leader alone is loose",
	Crowded: "one is crowded", Resting: "one is to rest", FillUnknown: "unknown",
}

func (f Fill) String() string { return fillNames[f] }

// disarmBelow is the part of the quota, in per cent, below which every file must be before the alarm is taken back: writes that begin again
// shall not raise it within moments.
const disarmBelow = 90

// Filled is one member's database and its quota.
type Filled struct {
	Space
	// Quota in bytes; below zero for none.
	Quota int64
}

func (f Filled) below(bytes int64) bool { return f.Quota < 0 || bytes < f.Quota/100*disarmBelow }

// FillOf all members, and the member to defragment next, where one is loose: the follower that comes first by name. The sizes of all
// members must be known, those of learners too: a member of any kind raises the alarm. due says whether a loose one may be
// defragmented (again).
func FillOf(v View, leader uint64, filled map[uint64]Filled, due func(Member, Space) bool) (Member, Fill) {
	members := slices.Clone(v.Members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	var next Member
	worst := AllBelow
	rank := map[Fill]int{AllBelow: 0, LeaderLoose: 1, FollowerLoose: 2, Resting: 3, Crowded: 4}
	for _, m := range members {
		f, known := filled[m.ID]
		if !known || f.Size <= 0 || f.Quota == 0 {
			return Member{}, FillUnknown
		}
		fill := FollowerLoose
		switch {
		case f.below(f.Size):
			fill = AllBelow
		case !f.below(f.InUse):
			fill = Crowded
		case !due(m, f.Space):
			fill = Resting
		case m.ID == leader:
			fill = LeaderLoose
		}
		if rank[fill] > rank[worst] {
			next, worst = m, fill
		}
	}
	return next, worst
}

const (
	// CureAgain is how long a member is left alone after a defragmentation that failed while writes are refused; the pause doubles with
	// each failure.
	CureAgain = 2 * time.Minute
	// maxCureAgain bounds it.
	maxCureAgain = time.Hour
)

// Spent says whether the database is as the last defragmentation left it: then its file has no slack, whatever etcd counts.
func (a DefragAttempt) Spent(s Space) bool {
	return a.Failures == 0 && a.After.Size > 0 && !differs(a.After.Size, s.Size) && !differs(a.After.InUse, s.InUse)
}

// AgainFull says whether a member that is to come below its margin may be defragmented again, so long after this attempt: when it
// failed, or when the file is not as it was left. The pause is CureAgain, and doubles with each failure.
func (a DefragAttempt) AgainFull(s Space, ago, pause time.Duration) bool {
	if a.Failures > 0 {
		return ago >= min(pause<<min(a.Failures-1, 8), maxCureAgain)
	}
	return ago >= pause && (differs(a.After.Size, s.Size) || differs(a.After.InUse, s.InUse))
}
