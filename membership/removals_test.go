package membership

import (
	"fmt"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

// checkTable decides all combinations of facts, compares each decision with the invariants, and writes the table into
// docs/reference/decisions.md.
func checkTable[F, V any](t *testing.T, table *rules.Table[F, V], name, title, about string, wrong func(F, rules.Decision[V]) string) {
	t.Helper()
	rulestest.Section(t, "../docs/reference/decisions.md", name, title, about, table, rulestest.Check(t, table, wrong))
}

func TestRemovalsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, removals, "removals", "Superfluous members: membership.removals",
		"Asked by the leader's agent for each entry of the member list.", func(f RemovalFacts, d rules.Decision[RemovalVerdict]) string {
			if d.Verdict != RemoveMember {
				return ""
			}
			switch {
			case f.Self != rules.No:
				return "a member removes itself"
			case f.Authoritative != rules.Yes:
				return "removed without a record that says who is desired"
			case f.Quorum != rules.Yes:
				return "the voters that are left may hold no healthy quorum"
			case f.Elapsed != rules.Yes || f.Turn != rules.Yes:
				return "removed too early or too fast"
			case f.Desired == rules.No && f.Adopted != rules.No && f.Released != rules.Yes:
				return "removed from a group that was joined, without the user's word or before others take its place"
			case f.Desired == rules.Unknown, f.Desired == rules.Yes && (f.Kind != LearnerUnstarted || f.Coming != rules.No):
				return "a desired member is removed"
			}
			return ""
		})
}

func TestQuorumWithoutAMember(t *testing.T) {
	voter := func(id uint64) Member { return Member{ID: id, Name: fmt.Sprint(id)} }
	three := View{Members: []Member{voter(1), voter(2), voter(3), {ID: 9, Learner: true}}}
	tests := map[string]struct {
		view   View
		gone   uint64
		health map[uint64]rules.Answer
		want   rules.Answer
	}{
		"both others are healthy":                   {three, 3, map[uint64]rules.Answer{1: rules.Yes, 2: rules.Yes}, rules.Yes},
		"one of two is down":                        {three, 3, map[uint64]rules.Answer{1: rules.Yes, 2: rules.No, 3: rules.Yes}, rules.No},
		"one of two is unknown":                     {three, 3, map[uint64]rules.Answer{1: rules.Yes, 3: rules.Yes}, rules.Unknown},
		"a learner goes, one voter is down":         {three, 9, map[uint64]rules.Answer{1: rules.Yes, 2: rules.Yes, 3: rules.No}, rules.Yes},
		"a learner goes, two voters are down":       {three, 9, map[uint64]rules.Answer{1: rules.Yes, 2: rules.No, 3: rules.No}, rules.No},
		"the last voter goes":                       {View{Members: []Member{voter(1)}}, 1, map[uint64]rules.Answer{1: rules.Yes}, rules.No},
		"a learner's health does not make a quorum": {three, 3, map[uint64]rules.Answer{1: rules.Yes, 2: rules.No, 9: rules.Yes}, rules.No},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := QuorumWithout(tc.view, tc.gone, tc.health); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestDesiredByNameOrPeerURL(t *testing.T) {
	peerURL := func(name string) string { return "http://" + name + ":2380" }
	names := []string{"a", "b"}
	tests := map[string]struct {
		member Member
		want   rules.Answer
	}{
		"started under a desired name":          {Member{Name: "a", PeerURLs: []string{"http://elsewhere:1"}}, rules.Yes},
		"started under another name at our URL": {Member{Name: "x", PeerURLs: []string{"http://a:2380"}}, rules.No},
		"unstarted at a desired peer URL":       {Member{PeerURLs: []string{"http://b:2380"}}, rules.Yes},
		"unstarted elsewhere":                   {Member{PeerURLs: []string{"http://x:2380"}}, rules.No},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Desired(tc.member, names, peerURL); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestPromotionsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, promotions, "promotions", "Promotion of a learner: membership.promotions",
		"Asked by a learner's own agent.", func(f PromotionFacts, d rules.Decision[PromotionVerdict]) string {
			switch {
			case d.Verdict == PromoteMember && f.Authoritative != rules.Yes:
				return "a member that is perhaps not desired gets a vote"
			case d.Verdict == PromoteMember && f.Reported != rules.Yes:
				return "a member gets a vote whose Lease can say that its disk is empty"
			case d.Verdict == PromoteMember && f.Kind != LearnerStarted:
				return "promotes what is no started learner"
			case d.Verdict == PromoteMember && f.Voters == OneVoter && f.Joined != rules.Yes && f.Room != rules.No:
				return "opens a window with two voters"
			case d.Verdict == Done && f.Kind&(LearnerStarted|LearnerUnstarted) != 0:
				return "a learner is done"
			}
			return ""
		})
}

// brokenDeparture names the invariant that a decision violates, or returns the empty string.
func brokenDeparture(f DepartureFacts, d DrainDecision) string {
	listed := f.Entry&isEntry != 0
	sound := f.Ruler == RulerExternal && (f.Quorum == rules.Yes || !listed)
	acts := d.Verdict != DrainKeep && d.Verdict != DrainWait
	switch {
	case acts && f.Authoritative != rules.Yes:
		return "acts without an authoritative record"
	case acts && f.Mark&(Requested|isClaimed) == 0:
		return "acts without an order"
	case acts && f.Entry == EntryUnknown:
		return "acts on what is unknown"
	case acts && f.Ruler != RulerExternal: // druid would not believe it, and ask again and again
		return "acts although no external member leads"
	case acts && listed && f.Quorum != rules.Yes:
		return "those that stay may hold no healthy quorum"
	case d.Verdict == Revert || d.Verdict == MoveAway:
		return "does what is the leader's"
	case d.Verdict == DrainRemove && (f.Mark != ClaimedByUs || !listed):
		return "removes without its own claim, or what is not listed"
	case d.Verdict == Acknowledge && (f.Mark != ClaimedByUs || f.Entry != NotListed):
		return "acknowledges what is listed, or what it did not claim"
	// The table must act whenever it is allowed to.
	case f.Authoritative == rules.Yes && f.Mark&(Requested|isClaimed) != 0 && (f.Entry == NotListed || listed) && sound && !acts:
		return "a member that may go does not"
	}
	return ""
}

func TestDeparturesAreSafeForAllFacts(t *testing.T) {
	checkTable(t, departures, "departures", "Removal of a member from a joined cluster: membership.departures",
		"Asked by the agent of the member that the record's slot names, where the EtcdCluster is deleted and others remain.", brokenDeparture)
}
