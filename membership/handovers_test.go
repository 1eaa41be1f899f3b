package membership

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestHandoversAreSafeForAllFacts(t *testing.T) {
	checkTable(t, handovers, "handovers", "A leader with a slow disk: membership.handovers",
		"Asked by the leader's agent. It reads the Leases of the followers only if all facts before them allow a transfer.",
		func(f HandoverFacts, d HandoverDecision) string {
			may := f.Disk == DiskSlow && f.Lasting == rules.Yes && f.Moved == rules.No && f.Authoritative == rules.Yes && f.Leads == rules.Yes &&
				f.Stable == rules.Yes && f.Followers == FollowersFaster
			switch {
			case d.Verdict == HandoverMove && !may:
				return "moves leadership without need, again, next to another change, or to a member that is not known to be faster"
			case may && d.Verdict != HandoverMove:
				return "a slow leader stays although another member would lead better"
			case d.Why == "":
				return "does not say why"
			}
			return ""
		})
}

// The speed of the followers matters exactly if one of its values moves leadership.
func TestFollowersAreReadOnlyIfTheyDecide(t *testing.T) {
	decides := 0
	for f := range rules.Cases(HandoverFacts{}) {
		moves := false
		for other := range rules.Cases(HandoverFacts{
			Disk: f.Disk, Lasting: f.Lasting, Moved: f.Moved, Authoritative: f.Authoritative, Leads: f.Leads, Stable: f.Stable,
		}) {
			moves = moves || DecideHandover(other).Verdict == HandoverMove
		}
		if FollowersDecide(f) != moves {
			t.Errorf("%+v: got %t, want %t", f, !moves, moves)
		}
		if moves {
			decides++
		}
	}
	if want := 4; decides != want { // one for each state of the followers
		t.Errorf("the followers decide in %d cases, want %d", decides, want)
	}
}

func TestTheFastestFollowerThatCanLead(t *testing.T) {
	const ms = time.Millisecond
	of := func(id uint64, p99 time.Duration, change ...func(*Status)) Follower {
		f := Follower{Status{MemberID: id, Leader: 1, Role: RoleMember, RaftIndex: 10_000}, p99}
		for _, c := range change {
			c(&f.Status)
		}
		return f
	}
	behind := func(n uint64) func(*Status) { return func(s *Status) { s.RaftIndex -= n } }
	learner := func(s *Status) { s.Role = RoleLearner }
	leaderless := func(s *Status) { s.Leader = 0 }
	corrupt := func(s *Status) { s.Errors = []string{AlarmCorrupt} }
	for name, tc := range map[string]struct {
		followers []Follower
		want      uint64
		state     Followers
	}{
		"there is none":                {nil, 0, FollowersNone},
		"an eighth":                    {[]Follower{of(2, 64*ms)}, 2, FollowersFaster},
		"a quarter":                    {[]Follower{of(2, 128*ms)}, 0, FollowersSimilar},
		"the fastest":                  {[]Follower{of(2, 64*ms), of(3, 4*ms), of(4, 8*ms)}, 3, FollowersFaster},
		"of two, the longer log":       {[]Follower{of(2, 4*ms, behind(1)), of(3, 4*ms)}, 3, FollowersFaster},
		"of two with the same log":     {[]Follower{of(3, 4*ms), of(2, 4*ms)}, 2, FollowersFaster},
		"the fastest is not in step":   {[]Follower{of(2, 4*ms, behind(5001)), of(3, 16*ms)}, 3, FollowersFaster},
		"it is just in step":           {[]Follower{of(2, 4*ms, behind(5000))}, 2, FollowersFaster},
		"it did not answer":            {[]Follower{{P99: 4 * ms}}, 0, FollowersNone},
		"it is a learner":              {[]Follower{of(2, 4*ms, learner)}, 0, FollowersNone},
		"it knows no leader":           {[]Follower{of(2, 4*ms, leaderless)}, 0, FollowersNone},
		"its data differs":             {[]Follower{of(2, 4*ms, corrupt)}, 0, FollowersNone},
		"its speed is unknown":         {[]Follower{of(2, 0)}, 0, FollowersUnknown},
		"one is unknown, one similar":  {[]Follower{of(2, 0), of(3, 512*ms)}, 0, FollowersUnknown},
		"one is similar, one unknown":  {[]Follower{of(3, 512*ms), of(2, 0)}, 0, FollowersUnknown},
		"one is unknown, one is known": {[]Follower{of(2, 0), of(3, 4*ms)}, 3, FollowersFaster},
	} {
		t.Run(name, func(t *testing.T) {
			got, state := FastestFollower(10_000, 512*ms, tc.followers)
			if got.Status.MemberID != tc.want || state != tc.state {
				t.Errorf("got %d, %s, want %d, %s", got.Status.MemberID, state, tc.want, tc.state)
			}
		})
	}
}
