package membership

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

// Space is what the file of one member's database holds, in bytes: all of it, and what is in use.
type Space struct {
	Size, InUse int64
}

// Free is what a defragmentation would give back, in bytes.
func (s Space) Free() int64 { return max(s.Size-s.InUse, 0) }

// Thresholds at which a database is called fragmented: both must be reached.
type Thresholds struct {
	// FreePercent of the file, and FreeBytes, that are not in use.
	FreePercent, FreeBytes int64
}

// Fragmented says whether the thresholds are reached. A size that is not known is no reason to defragment.
func (t Thresholds) Fragmented(s Space) bool {
	return s.Size > 0 && s.Free() > 0 && s.Free() >= t.FreeBytes && s.Free()*100 >= s.Size*t.FreePercent
}

const (
	// defragAgain is how long a member's database is left alone after each defragmentation: one that is fragmented again
	// by then is being written to its size again and again, and would only stall its member for nothing.
	defragAgain = time.Hour
	// maxDefragAgain bounds the pause that doubles with each failure.
	maxDefragAgain = 24 * time.Hour
	// materially is the part of the file, in per cent, by which a database must have changed before one that a
	// defragmentation did not help is worth another.
	materially = 10
)

// DefragAttempt is what this agent remembers of the last defragmentation of a member.
type DefragAttempt struct {
	// Failures in a row; the last attempt succeeded when there is none.
	Failures int
	// Helped: afterwards the database was below the thresholds. After is what it held then.
	Helped bool
	After  Space
}

// Again says whether a member whose database holds s may be defragmented again, so long after this attempt.
func (a DefragAttempt) Again(s Space, ago time.Duration) bool {
	pause := min(defragAgain<<min(max(a.Failures-1, 0), 8), maxDefragAgain)
	if ago < pause {
		return false
	}
	return a.Failures > 0 || a.Helped || differs(a.After.Size, s.Size) || differs(a.After.InUse, s.InUse)
}

func differs(before, now int64) bool { return max(before-now, now-before)*100 > before*materially }

// MostFragmented is the member whose turn it is: of the voters that are due the follower that comes first by name, the leader when no
// follower is due. The sizes of all voters must be known, so that the leader's turn really comes last.
func MostFragmented(v View, leader uint64, spaces map[uint64]Space, due func(Member, Space) bool) (Member, Fragments) {
	voters := v.Voters()
	slices.SortFunc(voters, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	var last Member
	found := NoOneFragmented
	for _, m := range voters {
		space, known := spaces[m.ID]
		switch {
		case !known || space.Size <= 0:
			return Member{}, FragmentsUnknown
		case !due(m, space) || found == FollowerFragmented:
		case m.ID == leader:
			last, found = m, LeaderFragmented
		default:
			last, found = m, FollowerFragmented
		}
	}
	return last, found
}

// Settled says whether the list holds exactly the desired members, each of them a started voter: no one joins, and no one is a stray.
func Settled(v View, names []string) rules.Answer {
	if len(v.Members) != len(names) {
		return rules.No
	}
	for _, m := range v.Members {
		if m.Learner || !m.Started() || !slices.Contains(names, m.Name) {
			return rules.No
		}
	}
	return rules.Yes
}

// AllHealthy says whether every voter is.
func AllHealthy(v View, health map[uint64]rules.Answer) rules.Answer {
	return OthersHealthy(v, 0, health, func(Member) rules.Answer { return rules.Yes })
}
