package membership

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// One-bit enums of the drain.
type (
	// Mark is the progress of the removal of the member in the record's slot.
	Mark uint8
	// Entry is that member's entry in a quorum's member list.
	Entry uint8
)

// The marks. NotAsked is no removal request, or one that the slot does not name. Both request nothing.
const (
	NotAsked Mark = 1 << iota
	Requested
	ClaimedByUs
	ClaimedByAnother // of another Pod, or of another member ID than the one that is listed
	RemovalAcknowledged
	MarkUnreadable
	MarkUnknown
)

// The entries. EntryUnknown: several entries match the member, or only the ID of its claim matches, of an entry with another name.
const (
	NotListed Entry = 1 << iota
	LearnerEntry
	VoterEntry
	EntryUnknown
)

const (
	isClaimed = ClaimedByUs | ClaimedByAnother
	isEntry   = LearnerEntry | VoterEntry
	notYes    = rules.No | rules.Unknown
)

var (
	markNames = map[Mark]string{
		NotAsked: "none", Requested: "requested", ClaimedByUs: "removing by us", ClaimedByAnother: "removing by another",
		RemovalAcknowledged: "done", MarkUnreadable: "unreadable", MarkUnknown: "unknown",
	}
	entryNames = map[Entry]string{NotListed: "not listed", LearnerEntry: "learner", VoterEntry: "voter", EntryUnknown: "unknown"}
)

func (m Mark) String() string  { return markNames[m] }
func (e Entry) String() string { return entryNames[e] }

// EntryOf returns the entry of the member called name at peerURL. claimed is the ID whose removal was claimed before,
// 0 for none. The claim stands on the member's Lease, so it can be forged: an entry with that ID is never removed if it has
// neither that name nor, if it never started, that peer URL. Alone, it is EntryUnknown.
func EntryOf(v View, name, peerURL string, claimed uint64) (Member, Entry) {
	var found []Member
	other := false
	for _, m := range v.Members {
		switch {
		case m.Is(name, peerURL):
			found = append(found, m)
		case claimed != 0 && m.ID == claimed:
			other = true
		}
	}
	switch {
	case len(found) == 0 && other:
		return Member{}, EntryUnknown
	case len(found) == 0:
		return Member{}, NotListed
	case len(found) > 1:
		return Member{}, EntryUnknown
	case found[0].Learner:
		return found[0], LearnerEntry
	default:
		return found[0], VoterEntry
	}
}

// OthersHealthy says whether every desired voter except the member with id is healthy. Voters that are not desired do
// not count here; they count in QuorumWithout.
func OthersHealthy(v View, id uint64, health map[uint64]rules.Answer, desired func(Member) rules.Answer) rules.Answer {
	all := rules.Answer(rules.Yes)
	for _, m := range v.Voters() {
		if m.ID == id || desired(m) != rules.Yes {
			continue
		}
		switch health[m.ID] {
		case rules.Yes:
		case rules.No:
			return rules.No
		default:
			all = rules.Unknown
		}
	}
	return all
}

// OthersAgree says whether every desired voter except the member with id has the same data, as far as the contents say. The removal of a
// member with good data can leave a majority with other data, or none.
func OthersAgree(v View, id uint64, contents []Content, desired func(Member) rules.Answer) rules.Answer {
	others := 0
	var theirs []Content
	for _, m := range v.Voters() {
		if m.ID == id || desired(m) != rules.Yes {
			continue
		}
		others++
		for _, c := range contents {
			if c.MemberID == m.ID {
				theirs = append(theirs, c)
			}
		}
	}
	switch found := Judge(others, theirs); {
	case others == 0, found.Verdict == VerdictSame:
		return rules.Yes
	case found.Verdict == VerdictUnknown:
		return rules.Unknown
	default:
		return rules.No
	}
}

// OthersJoin says whether a desired learner other than the member with id is being promoted.
func OthersJoin(v View, id uint64, desired func(Member) rules.Answer) rules.Answer {
	join := rules.Answer(rules.No)
	for _, m := range v.Learners() {
		if m.ID == id {
			continue
		}
		switch desired(m) {
		case rules.Yes:
			return rules.Yes
		case rules.No:
		default:
			join = rules.Unknown
		}
	}
	return join
}

// DrainFacts is the complete input of DecideDrain, for the member in the record's slot.
type DrainFacts struct {
	// Authoritative: the cluster record was read just now, has the phase Formed, and lists the deciding member, whose Lease
	// names this Pod.
	Authoritative rules.Answer `fact:"record authoritative"`
	Mark          Mark
	// Leads: the agent's own member leads, in the raft term in which the list was read.
	Leads rules.Answer `fact:"we lead"`
	Entry Entry
	// Self: the deciding member is the one to remove.
	Self rules.Answer
	// Quorum: the remaining voters have a healthy quorum (QuorumWithout).
	Quorum rules.Answer `fact:"quorum without it"`
	// Others: every other desired voter is healthy (OthersHealthy), and all of them have the same data (OthersAgree), or all members are
	// leaving.
	Others rules.Answer `fact:"others healthy and equal"`
	// Joining: another member joins or replaces itself.
	Joining rules.Answer `fact:"others join"`
	// Waited: the claim has been blocked for the time that this leader allows.
	Waited rules.Answer `fact:"blocked for long"`
}

// DrainVerdict is the next step of the leader's agent.
type DrainVerdict string

// The verdicts. Each makes at most one call that cannot be undone.
const (
	DrainKeep   DrainVerdict = "Keep"        // nothing is left to do here
	DrainWait   DrainVerdict = "Wait"        // look again
	Claim       DrainVerdict = "Claim"       // mark the Lease removing: the intent
	Revert      DrainVerdict = "Revert"      // mark it requested again
	MoveAway    DrainVerdict = "MoveLeader"  // hand leadership to another voter
	DrainRemove DrainVerdict = "Remove"      // remove exactly the ID that was claimed
	Acknowledge DrainVerdict = "Acknowledge" // mark the Lease done
)

// DrainDecision includes the name of the rule.
type DrainDecision = rules.Decision[DrainVerdict]

// drains is the complete policy on the removal of a member. The first match wins. The default is to wait.
var drains = rules.New(DrainWait, []rules.Row[DrainFacts, DrainVerdict]{
	{Name: "record-not-authoritative", When: DrainFacts{Authoritative: notYes}, Verdict: DrainWait,
		Why: "a removal needs a cluster record that was read just now, has the phase Formed and lists the deciding member"},
	{Name: "request-unread", When: DrainFacts{Mark: MarkUnreadable | MarkUnknown}, Verdict: DrainWait,
		Why: "a removal request that cannot be read requests nothing and cancels nothing"},
	{Name: "not-requested", When: DrainFacts{Mark: NotAsked}, Verdict: DrainWait,
		Why: "the slot alone requests nothing; druid is about to write the removal request or to free the slot"},
	{Name: "removal-acknowledged", When: DrainFacts{Mark: RemovalAcknowledged}, Verdict: DrainKeep,
		Why: "the member is removed, and druid does the rest"},
	{Name: "leadership-moved", When: DrainFacts{Leads: notYes}, Verdict: DrainWait,
		Why: "another agent might lead now"},
	{Name: "entry-unknown", When: DrainFacts{Entry: EntryUnknown}, Verdict: DrainWait,
		Why: "several entries match the member, or its removal request has the ID of another member; correct this manually"},
	{Name: "self-unknown", When: DrainFacts{Self: rules.Unknown}, Verdict: DrainWait,
		Why: "a member does not remove itself"},
	{Name: "self-not-voter", When: DrainFacts{Self: rules.Yes, Entry: NotListed | LearnerEntry}, Verdict: DrainWait,
		Why: "a leader is always a voter, so the list is read again"},
	{Name: "revert-no-quorum", When: DrainFacts{Mark: isClaimed, Entry: isEntry, Quorum: notYes, Waited: rules.Yes}, Verdict: Revert,
		Why: "the claim is blocked for too long; the cause might require that the request is canceled first"},
	{Name: "quorum", When: DrainFacts{Entry: isEntry, Quorum: notYes}, Verdict: DrainWait,
		Why: "the remaining voters must have a healthy quorum"},
	{Name: "revert-others-not-healthy", When: DrainFacts{Mark: isClaimed, Entry: VoterEntry, Others: notYes, Waited: rules.Yes}, Verdict: Revert,
		Why: "the other member might have to replace itself, which needs the slot"},
	{Name: "others-not-healthy", When: DrainFacts{Entry: VoterEntry, Others: notYes}, Verdict: DrainWait,
		Why: "another member is not healthy, or the data of the others differs or was not compared since the request"},
	{Name: "revert-others-join", When: DrainFacts{Mark: isClaimed, Entry: VoterEntry, Joining: rules.Yes | rules.Unknown, Waited: rules.Yes}, Verdict: Revert,
		Why: "the joining member might have to replace itself, which needs the slot"},
	{Name: "others-join", When: DrainFacts{Entry: VoterEntry, Joining: rules.Yes | rules.Unknown}, Verdict: DrainWait,
		Why: "another member is joining"},
	{Name: "move-leader", When: DrainFacts{Self: rules.Yes}, Verdict: MoveAway,
		Why: "a member does not remove itself; leadership moves, and the next leader's agent continues"},
	{Name: "claim", When: DrainFacts{Mark: Requested | ClaimedByAnother}, Verdict: Claim,
		Why: "after the claim the request cannot be canceled; a predecessor's claim is renewed"},
	{Name: "remove", When: DrainFacts{Entry: isEntry}, Verdict: DrainRemove,
		Why: "the claimed ID is removed, and no other"},
	{Name: "acknowledge", Verdict: Acknowledge,
		Why: "a linearizable member list, read after the claim, does not have the member"},
})

// DecideDrain returns the next step of the leader's agent for the member that is being removed.
func DecideDrain(f DrainFacts) DrainDecision { return drains.Decide(f) }

// DrainsWithout returns the table without some of its rows. The model test uses it to show which harm each row
// prevents.
func DrainsWithout(names ...string) *rules.Table[DrainFacts, DrainVerdict] {
	return drains.Without(names...)
}
