package membership

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestUpgradesAreSafeForAllFacts(t *testing.T) {
	checkTable(t, upgrades, "upgrades", "Members whose version is changed: membership.upgrades",
		"Asked by the leader's agent while druid's order stands on the record.", func(f UpgradeFacts, d rules.Decision[UpgradeVerdict]) string {
			acts := d.Verdict == UpgradeAnnounce || d.Verdict == UpgradeCancel
			switch {
			case d.Verdict != UpgradeWait && f.Authoritative != rules.Yes:
				return "answers what may be another group's order"
			case (acts || d.Verdict == UpgradeCompare) && f.Whole != rules.Yes:
				return "goes on without a member"
			case acts && f.Reached != rules.No:
				return "changes what a member that runs the earlier minor may rest on"
			case d.Verdict == UpgradeAnnounce && f.Course != CourseBack:
				return "announces what is not requested"
			case d.Verdict == UpgradeCompare && f.Course == CourseBack && f.Storage != rules.Yes:
				return "lets an etcd go back to a format that it cannot read"
			case d.Verdict == UpgradeCompare && f.Course == CourseOn && f.Log != LogReadable:
				return "lets an etcd go on to a log that it cannot read"
			}
			return ""
		})
}

// brokenDrain names the invariant that a decision violates, or returns the empty string.
func brokenDrain(f DrainFacts, d DrainDecision) string {
	listed := f.Entry&isEntry != 0
	sound := f.Quorum == rules.Yes && (f.Entry == LearnerEntry || f.Others == rules.Yes && f.Joining == rules.No)
	acts := d.Verdict != DrainKeep && d.Verdict != DrainWait
	switch {
	case acts && (f.Authoritative != rules.Yes || f.Leads != rules.Yes):
		return "acts without an authoritative record or without leadership"
	case acts && f.Mark&(NotAsked|RemovalAcknowledged|MarkUnreadable|MarkUnknown) != 0:
		return "acts without an order"
	case acts && f.Entry == EntryUnknown, acts && f.Self == rules.Unknown:
		return "acts on what is unknown"
	case f.Self != rules.No && (d.Verdict == Claim || d.Verdict == DrainRemove || d.Verdict == Acknowledge):
		return "a member claims, removes or acknowledges itself"
	case d.Verdict == DrainRemove && f.Mark != ClaimedByUs:
		return "removes without its own claim"
	case d.Verdict == DrainRemove && f.Quorum != rules.Yes:
		return "the voters that are left may hold no healthy quorum"
	case listed && !sound && (d.Verdict == DrainRemove || d.Verdict == Claim || d.Verdict == MoveAway):
		return "goes on although another member ails or joins"
	case d.Verdict == DrainRemove && !listed:
		return "removes what is not listed"
	case d.Verdict == Acknowledge && (f.Entry != NotListed || f.Mark != ClaimedByUs):
		return "acknowledges what is listed, or what it did not claim"
	case d.Verdict == Revert && (f.Mark&isClaimed == 0 || !listed || sound || f.Waited != rules.Yes):
		return "gives up a claim that nothing hinders"
	case d.Verdict == MoveAway && f.Self != rules.Yes:
		return "moves leadership away from a member that stays"
	// The table must act whenever it is allowed to.
	case f.Authoritative == rules.Yes && f.Leads == rules.Yes && f.Self == rules.No && f.Mark&(Requested|isClaimed) != 0 &&
		(f.Entry == NotListed || listed && sound) && !acts:
		return "a member that may go does not"
	}
	return ""
}

func TestDrainsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, drains, "drains", "Removal of a member: membership.drains",
		"Asked by the leader's agent for the member that the record's slot names.", brokenDrain)
}

func TestEntryIsTheOneMemberOfThatName(t *testing.T) {
	const url = "http://c:2380"
	started, unstarted := Member{ID: 3, Name: "c", PeerURLs: []string{url}}, Member{ID: 3, PeerURLs: []string{url}, Learner: true}
	for name, tc := range map[string]struct {
		members []Member
		claimed uint64
		want    Entry
	}{
		"no member of that name":                 {[]Member{{ID: 1, Name: "a"}}, 0, NotListed},
		"a voter":                                {[]Member{{ID: 1, Name: "a"}, started}, 0, VoterEntry},
		"a learner that never started":           {[]Member{unstarted}, 0, LearnerEntry},
		"a second one under its name":            {[]Member{started, {ID: 4, Name: "c", PeerURLs: []string{"http://x:1"}}}, 0, EntryUnknown},
		"the claimed ID, which never started":    {[]Member{unstarted}, 3, LearnerEntry},
		"that of another one that never started": {[]Member{{ID: 4, PeerURLs: []string{"http://x:1"}, Learner: true}}, 4, EntryUnknown},
		"the same, next to one of its name":      {[]Member{started, {ID: 4, PeerURLs: []string{"http://x:1"}, Learner: true}}, 4, VoterEntry},
		"the claimed ID under another name":      {[]Member{{ID: 3, Name: "x"}}, 3, EntryUnknown},
		"the claimed ID next to one of its name": {[]Member{{ID: 4, Name: "x"}, started}, 4, VoterEntry},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := EntryOf(View{Members: tc.members}, "c", url, tc.claimed); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestOthersAreTheDesiredMembersThatStay(t *testing.T) {
	desired := func(m Member) rules.Answer { return rules.AnswerOf(m.Name != "stray") }
	view := View{Members: []Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}, {ID: 8, Name: "stray"}}}
	for name, tc := range map[string]struct {
		health map[uint64]rules.Answer
		want   rules.Answer
	}{
		"all are healthy":                     {map[uint64]rules.Answer{1: rules.Yes, 2: rules.Yes, 3: rules.Yes, 8: rules.Yes}, rules.Yes},
		"it may be down itself":               {map[uint64]rules.Answer{1: rules.Yes, 2: rules.Yes, 3: rules.No, 8: rules.Yes}, rules.Yes},
		"a superfluous member delays nothing": {map[uint64]rules.Answer{1: rules.Yes, 2: rules.Yes, 3: rules.Yes, 8: rules.No}, rules.Yes},
		"one is down":                         {map[uint64]rules.Answer{1: rules.Yes, 2: rules.No, 3: rules.Yes}, rules.No},
		"one does not answer":                 {map[uint64]rules.Answer{1: rules.Yes, 3: rules.Yes}, rules.Unknown},
		"one is down, one does not answer":    {map[uint64]rules.Answer{2: rules.No, 3: rules.Yes}, rules.No},
	} {
		t.Run(name, func(t *testing.T) {
			if got := OthersHealthy(view, 3, tc.health, desired); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	learner := func(name string) View {
		return View{Members: []Member{{ID: 1, Name: "a"}, {ID: 9, Name: name, Learner: true}}}
	}
	if got := OthersJoin(learner("d"), 1, desired); got != rules.Yes {
		t.Errorf("a desired learner: %s, want yes", got)
	}
	if got := OthersJoin(learner("d"), 9, desired); got != rules.No {
		t.Errorf("the learner that goes: %s, want no", got)
	}
	if got := OthersJoin(learner("stray"), 1, desired); got != rules.No {
		t.Errorf("a stray learner: %s, want no", got)
	}
}
