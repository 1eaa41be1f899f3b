package membership

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// One-bit enums of the drain.
type (
	// Mark is how far the way out of the member that the record's slot names has come.
	Mark uint8
	// Entry is what a quorum's list says of that member.
	Entry uint8
)

// The marks. NotAsked is no mark as well as one that the slot does not name: both order nothing.
const (
	NotAsked Mark = 1 << iota
	Requested
	ClaimedByUs
	ClaimedByAnother // of another Pod, or of another member ID than the one that is listed
	RemovalAcknowledged
	MarkUnreadable
	MarkUnknown
)

// The entries. EntryUnknown: several entries are the member.
const (
	NotListed Entry = 1 << iota
	LearnerEntry
	VoterEntry
	EntryUnknown
)

const (
	anyMark   = NotAsked | Requested | ClaimedByUs | ClaimedByAnother | RemovalAcknowledged | MarkUnreadable | MarkUnknown
	anyEntry  = NotListed | LearnerEntry | VoterEntry | EntryUnknown
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

// EntryOf the member called name at peerURL. claimed is the ID whose removal was claimed before, 0 for none: it is the
// member whatever it is called now.
func EntryOf(v View, name, peerURL string, claimed uint64) (Member, Entry) {
	var found []Member
	for _, m := range v.Members {
		if m.Is(name, peerURL) || claimed != 0 && m.ID == claimed {
			found = append(found, m)
		}
	}
	switch {
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

// OthersHealthy says whether every voter that is desired, but for the member with id, is healthy. A stray voter is no one's to
// wait for; it counts in QuorumWithout.
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

// OthersJoin says whether a desired learner, but for the member with id, is on its way to a vote.
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

// DrainFacts is all that DecideDrain may look at, for the member that the record's slot names.
type DrainFacts struct {
	// Firm: the cluster record was read just now, says Formed, and lists the member that decides, whose own Lease is its own.
	Authoritative rules.Answer `fact:"firm record"`
	Mark          Mark
	// Leads: our member leads, in the raft term in which the list was read.
	Leads rules.Answer `fact:"we lead"`
	Entry Entry
	// Self: the member that is to go is the one that decides.
	Self rules.Answer
	// Quorum: the voters that are left hold a healthy quorum (QuorumWithout).
	Quorum rules.Answer `fact:"quorum without it"`
	// Others: every other desired voter is healthy (OthersHealthy), or all of them are to leave.
	Others rules.Answer `fact:"others healthy"`
	// Joining: another member joins or replaces itself.
	Joining rules.Answer `fact:"others join"`
	// Waited: the claim was hindered for as long as this leader lets it.
	Waited rules.Answer `fact:"hindered for long"`
}

// DrainVerdict is what the leader's agent does next.
type DrainVerdict string

// The verdicts, each at most one call that cannot be undone.
const (
	DrainKeep   DrainVerdict = "Keep"        // nothing is left to do here
	DrainWait   DrainVerdict = "Wait"        // look again
	Claim       DrainVerdict = "Claim"       // mark the Lease removing: the intent
	HandBack    DrainVerdict = "HandBack"    // mark it requested again
	MoveAway    DrainVerdict = "MoveLeader"  // hand leadership to another voter
	DrainRemove DrainVerdict = "Remove"      // remove exactly the ID that was claimed
	Acknowledge DrainVerdict = "Acknowledge" // mark the Lease done
)

// DrainDecision names the rule too.
type DrainDecision = rules.Decision[DrainVerdict]

// drains is the whole policy on a member's way out. First match wins; what no rule covers waits.
var drains = rules.New(DrainWait, []rules.Row[DrainFacts, DrainVerdict]{
	{Name: "record-not-firm", When: DrainFacts{Authoritative: notYes}, Verdict: DrainWait,
		Why: "only a Formed record that was read just now and lists the decider says who is to go"},
	{Name: "mark-unread", When: DrainFacts{Mark: MarkUnreadable | MarkUnknown}, Verdict: DrainWait,
		Why: "a mark that cannot be read orders nothing and takes nothing back"},
	{Name: "not-asked", When: DrainFacts{Mark: NotAsked}, Verdict: DrainWait,
		Why: "the slot alone orders nothing: druid is about to mark the Lease, or to free the slot"},
	{Name: "removal-acknowledged", When: DrainFacts{Mark: RemovalAcknowledged}, Verdict: DrainKeep,
		Why: "the member is out, the rest is druid's"},
	{Name: "leadership-moved", When: DrainFacts{Leads: notYes}, Verdict: DrainWait,
		Why: "another agent may lead now"},
	{Name: "entry-unknown", When: DrainFacts{Entry: EntryUnknown}, Verdict: DrainWait,
		Why: "several entries are the member; a person has to remove the wrong one"},
	{Name: "self-unknown", When: DrainFacts{Self: rules.Unknown}, Verdict: DrainWait,
		Why: "no one removes itself"},
	{Name: "self-not-voter", When: DrainFacts{Self: rules.Yes, Entry: NotListed | LearnerEntry}, Verdict: DrainWait,
		Why: "who leads is a voter: the list is read again"},
	{Name: "quorum-back", When: DrainFacts{Mark: isClaimed, Entry: isEntry, Quorum: notYes, Waited: rules.Yes}, Verdict: HandBack,
		Why: "what hinders it may need the order to be taken back first"},
	{Name: "quorum", When: DrainFacts{Entry: isEntry, Quorum: notYes}, Verdict: DrainWait,
		Why: "never below a healthy quorum"},
	{Name: "others-back", When: DrainFacts{Mark: isClaimed, Entry: VoterEntry, Others: notYes, Waited: rules.Yes}, Verdict: HandBack,
		Why: "the other may have to replace itself, which waits for the slot"},
	{Name: "others-not-healthy", When: DrainFacts{Entry: VoterEntry, Others: notYes}, Verdict: DrainWait,
		Why: "another member is not healthy"},
	{Name: "joining-back", When: DrainFacts{Mark: isClaimed, Entry: VoterEntry, Joining: rules.Yes | rules.Unknown, Waited: rules.Yes}, Verdict: HandBack,
		Why: "the joiner may have to replace itself, which waits for the slot"},
	{Name: "others-join", When: DrainFacts{Entry: VoterEntry, Joining: rules.Yes | rules.Unknown}, Verdict: DrainWait,
		Why: "another member is joining"},
	{Name: "move-leader", When: DrainFacts{Self: rules.Yes}, Verdict: MoveAway,
		Why: "no one removes itself: the next leader's agent goes on"},
	{Name: "claim", When: DrainFacts{Mark: Requested | ClaimedByAnother}, Verdict: Claim,
		Why: "from here on no one takes it back; what a predecessor claimed is claimed again"},
	{Name: "remove", When: DrainFacts{Entry: isEntry}, Verdict: DrainRemove,
		Why: "exactly the ID that was claimed"},
	{Name: "acknowledge", Verdict: Acknowledge,
		Why: "a linearizable list that was read under our claim does not have it"},
})

// DecideDrain says what the leader's agent does next about the member that is on its way out.
func DecideDrain(f DrainFacts) DrainDecision { return drains.Decide(f) }

// DrainsWithout is the table without some of its rows. The model test shows by it which harm each row prevents.
func DrainsWithout(names ...string) *rules.Table[DrainFacts, DrainVerdict] {
	return drains.Without(names...)
}

// DrainRules are the names of the table's rows, in their order.
func DrainRules() []string { return drains.Names() }
