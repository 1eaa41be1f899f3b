package membership

import (
	"cmp"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

// DiskSpeed says how fast a member writes its log.
type DiskSpeed uint8

// The speeds. DiskSlow: one write in a hundred takes longer than the interval between two heartbeats of a leader.
const (
	DiskOK DiskSpeed = 1 << iota
	DiskSlow
	DiskUnknown
)

func (s DiskSpeed) String() string { return rules.Word(s, "ok", "slow", "unknown") }

// Followers says whether a follower is a much better leader than the leader.
type Followers uint8

// The states. FollowersFaster: a follower that can lead writes its log much faster. FollowersNone: no follower can
// lead. FollowersUnknown: no follower that can lead is known to be much faster, and the speed of one is unknown.
const (
	FollowersFaster Followers = 1 << iota
	FollowersSimilar
	FollowersNone
	FollowersUnknown
)

func (f Followers) String() string {
	return rules.Word(f, "one is much faster", "none is much faster", "none can lead", "unknown")
}

// HandoverFacts is the complete input of DecideHandover.
type HandoverFacts struct {
	// Disk of the leader now.
	Disk DiskSpeed `fact:"our disk"`
	// Lasting: it has been slow for long, and all of this time while this member led.
	Lasting rules.YesNo `fact:"slow for long"`
	// Moved: this agent moved leadership for a slow disk a short time ago.
	Moved rules.YesNo `fact:"moved lately"`
	// Authoritative, Leads and Stable are as in DefragFacts.
	Authoritative rules.Answer `fact:"record authoritative"`
	Leads         rules.Answer `fact:"we lead"`
	Stable        rules.Answer `fact:"stable"`
	// Followers that can lead (FastestFollower).
	Followers Followers `fact:"followers"`
}

// HandoverVerdict is what the leader's agent does about its slow disk.
type HandoverVerdict string

// The verdicts.
const (
	HandoverKeep HandoverVerdict = "Keep" // the leader stays
	HandoverWait HandoverVerdict = "Wait" // look again
	HandoverMove HandoverVerdict = "MoveLeader"
)

// HandoverDecision includes the name of the rule.
type HandoverDecision = rules.Decision[HandoverVerdict]

// handovers is the complete policy on a leader with a slow disk. The first match wins. The default is to wait.
var handovers = rules.New(HandoverWait, []rules.Row[HandoverFacts, HandoverVerdict]{
	{Name: "disk-ok", When: HandoverFacts{Disk: DiskOK}, Verdict: HandoverKeep,
		Why: "the leader writes its log fast enough"},
	{Name: "disk-unknown", When: HandoverFacts{Disk: DiskUnknown}, Verdict: HandoverWait,
		Why: "the leader has not written enough in the last minutes to know its disk, or its etcd did not serve its metrics"},
	{Name: "not-lasting", When: HandoverFacts{Lasting: rules.No}, Verdict: HandoverWait,
		Why: "the disk of the leader has not been slow for long; it might recover"},
	{Name: "moved-before", When: HandoverFacts{Moved: rules.Yes}, Verdict: HandoverWait,
		Why: "leadership was moved recently and has returned; it is not moved again"},
	{Name: "record-not-authoritative", When: HandoverFacts{Authoritative: notYes}, Verdict: HandoverWait,
		Why: "the members are certain only with a cluster record that was read just now, has the phase Formed and lists the deciding member"},
	{Name: "leadership-moved", When: HandoverFacts{Leads: notYes}, Verdict: HandoverWait,
		Why: "another member might lead now"},
	{Name: "not-stable", When: HandoverFacts{Stable: notYes}, Verdict: HandoverWait,
		Why: "a member is joining, being replaced, leaving, or superfluous, or no majority has the same data"},
	{Name: "followers-unknown", When: HandoverFacts{Followers: FollowersUnknown}, Verdict: HandoverWait,
		Why: "the agent of a follower has not reported just now how fast its disk was in the last minutes"},
	{Name: "no-follower", When: HandoverFacts{Followers: FollowersNone}, Verdict: HandoverWait,
		Why: "no other voter serves and is in step"},
	{Name: "followers-similar", When: HandoverFacts{Followers: FollowersSimilar}, Verdict: HandoverKeep,
		Why: "the disk of no follower is much faster"},
	{Name: "move-leader", Verdict: HandoverMove,
		Why: "clients and elections wait for the disk of the leader, and that of a follower is much faster"},
})

// DecideHandover returns what the leader's agent does about its slow disk.
func DecideHandover(f HandoverFacts) HandoverDecision { return handovers.Decide(f) }

// FollowersDecide says whether leadership moves if a follower is much faster. Otherwise the speed of the followers makes no difference.
func FollowersDecide(f HandoverFacts) bool {
	f.Followers = FollowersFaster
	return DecideHandover(f).Verdict == HandoverMove
}

const (
	// muchFaster is by how much a follower is faster than the leader. Each measured time is the upper bound of a bucket,
	// and each bound is twice the one before it. So a follower is in fact more than four times as fast.
	muchFaster = 8
	// inStep is how many entries of the raft log a follower can lack. etcd refuses writes while a member has more to apply (server/etcdserver,
	// maxGapBetweenApplyAndCommitIndex).
	inStep = 5000
)

// Follower is what is known of a voter that does not lead.
type Follower struct {
	Status Status
	// P99 is how long 99 % of the writes to its log took at most in the last minutes, 0 if that is unknown.
	P99 time.Duration
}

// FastestFollower returns the follower that would be the best leader: of those that serve and are in step, the one with the fastest disk,
// then with the longest log. raftIndex and p99 are those of the leader.
func FastestFollower(raftIndex uint64, p99 time.Duration, followers []Follower) (Follower, Followers) {
	var best Follower
	found := FollowersNone
	for _, f := range followers {
		switch {
		case f.Status.MemberID == 0 || !f.Status.Serves() || f.Status.Role != RoleMember || f.Status.RaftIndex+inStep < raftIndex:
			continue
		case f.P99 <= 0:
			found = max(found, FollowersUnknown)
			continue
		case found == FollowersNone:
			found = FollowersSimilar
		}
		if best.P99 == 0 || cmp.Or(cmp.Compare(f.P99, best.P99), cmp.Compare(best.Status.RaftIndex, f.Status.RaftIndex),
			cmp.Compare(f.Status.MemberID, best.Status.MemberID)) < 0 {
			best = f
		}
	}
	if best.P99 > 0 && best.P99*muchFaster <= p99 {
		return best, FollowersFaster
	}
	return Follower{}, found
}
