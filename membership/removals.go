package membership

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// RemovalFacts is all that DecideRemoval may look at, for one member of the list.
type RemovalFacts struct {
	// Self: the member is the one that decides.
	Self rules.Answer
	// Firm: the cluster record was read just now, says Formed, and lists the member that decides.
	Authoritative rules.Answer `fact:"firm record"`
	// Desired: the record lists the member by name or, unstarted, by peer URL.
	Desired rules.Answer
	Kind    Kind
	// Adopted: the raft group was there before the cluster, and was joined: who is not desired may be one of its own.
	Adopted rules.Answer `fact:"group was joined"`
	// Released: of such a group, the user let the others go, and every desired member is a healthy voter.
	Released rules.Answer `fact:"others may go"`
	// Coming: the Pod that would start the member exists or will.
	Coming rules.Answer `fact:"Pod coming"`
	// Elapsed: this leader saw the member superfluous for the whole grace period.
	Elapsed rules.Answer `fact:"grace elapsed"`
	// Turn: no other member was removed within the last grace period, and none is on its way out.
	Turn rules.Answer `fact:"its turn"`
	// Quorum: the voters that are left hold a healthy quorum (QuorumWithout).
	Quorum rules.Answer `fact:"quorum without it"`
}

// RemovalVerdict is what becomes of a member.
type RemovalVerdict string

// The verdicts. Wait means that the member is superfluous and that its time has not come.
const (
	Keep         RemovalVerdict = "Keep"
	WaitRemove   RemovalVerdict = "Wait"
	RemoveMember RemovalVerdict = "Remove"
)

// removals is the whole policy on superfluous members. First match wins; what no rule covers is kept.
var removals = rules.New(Keep, []rules.Row[RemovalFacts, RemovalVerdict]{
	{Name: "self", When: RemovalFacts{Self: rules.Yes | rules.Unknown}, Verdict: Keep,
		Why: "no one removes itself: a retired leader moves leadership first"},
	{Name: "record-not-firm", When: RemovalFacts{Authoritative: rules.No | rules.Unknown}, Verdict: Keep,
		Why: "only a Formed record that was read just now and lists the decider says who is desired"},
	{Name: "desired-unknown", When: RemovalFacts{Desired: rules.Unknown}, Verdict: Keep,
		Why: "what is not known removes no one"},
	{Name: "desired", When: RemovalFacts{Desired: rules.Yes, Kind: VoterUnstarted | VoterStarted | LearnerStarted}, Verdict: Keep,
		Why: "a desired member is never removed for being away"},
	{Name: "desired-coming", When: RemovalFacts{Desired: rules.Yes, Kind: LearnerUnstarted, Coming: rules.Yes | rules.Unknown}, Verdict: Keep,
		Why: "its Pod will start it or replace it"},
	{Name: "here-before", When: RemovalFacts{Desired: rules.No, Adopted: rules.Yes | rules.Unknown, Released: rules.No | rules.Unknown}, Verdict: Keep,
		Why: "the group was joined: anyone who was in it stays until the user lets it go and all that replace it are healthy voters"},
	{Name: "grace", When: RemovalFacts{Elapsed: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "a member that is just being added looks the same"},
	{Name: "one-at-a-time", When: RemovalFacts{Turn: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "a mistake costs one member per grace period; and never next to a drain"},
	{Name: "quorum", When: RemovalFacts{Quorum: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "never below a healthy quorum"},
	{Name: "orphan-learner", When: RemovalFacts{Desired: rules.Yes, Kind: LearnerUnstarted, Coming: rules.No}, Verdict: RemoveMember,
		Why: "a learner that never started and never will takes the place of others"},
	{Name: "stray-learner", When: RemovalFacts{Desired: rules.No, Kind: LearnerUnstarted | LearnerStarted}, Verdict: RemoveMember,
		Why: "added behind our back"},
	{Name: "stray-voter", When: RemovalFacts{Desired: rules.No, Kind: VoterUnstarted | VoterStarted}, Verdict: RemoveMember,
		Why: "added behind our back, or left over"},
})

// DecideRemoval says what becomes of one member of the list.
func DecideRemoval(f RemovalFacts) rules.Decision[RemovalVerdict] { return removals.Decide(f) }

// PromotionFacts is all that DecidePromotion may look at when a member considers its own promotion.
type PromotionFacts struct {
	// Kind of the member's own entry.
	Kind Kind `fact:"own entry"`
	// Firm: the cluster record was read just now, says Formed, and lists the member.
	Authoritative rules.Answer `fact:"firm record"`
	Voters        Voters
	// Joined: every desired member is listed and started.
	Joined rules.Answer `fact:"all desired started"`
	// Room: the raft group takes another learner next to those that it has.
	Room rules.Answer `fact:"room for a learner"`
}

// PromotionVerdict is what the member does.
type PromotionVerdict string

// The verdicts. Done means that the member votes.
const (
	PromoteMember PromotionVerdict = "Promote"
	WaitPromote   PromotionVerdict = "Wait"
	Done          PromotionVerdict = "Done"
)

// promotions is the whole policy on learners. First match wins; what no rule covers waits.
var promotions = rules.New(WaitPromote, []rules.Row[PromotionFacts, PromotionVerdict]{
	{Name: "voter", When: PromotionFacts{Kind: VoterUnstarted | VoterStarted}, Verdict: Done,
		Why: "it votes already"},
	{Name: "unstarted", When: PromotionFacts{Kind: LearnerUnstarted}, Verdict: WaitPromote,
		Why: "a learner that has not published itself has not caught up"},
	{Name: "record-not-firm", When: PromotionFacts{Kind: LearnerStarted, Authoritative: rules.No | rules.Unknown}, Verdict: WaitPromote,
		Why: "a member that is not desired, or may not be, gets no vote"},
	{Name: "quorum-grows", When: PromotionFacts{Kind: LearnerStarted, Voters: MoreVoters}, Verdict: PromoteMember,
		Why: "etcd itself checks that the learner caught up"},
	{Name: "together", When: PromotionFacts{Kind: LearnerStarted, Voters: OneVoter, Joined: rules.Yes}, Verdict: PromoteMember,
		Why: "all learners are there: they are promoted back to back"},
	{Name: "learner-limit", When: PromotionFacts{Kind: LearnerStarted, Voters: OneVoter, Joined: rules.No | rules.Unknown, Room: rules.No}, Verdict: PromoteMember,
		Why: "the others can join only when this one is no learner any more"},
	{Name: "await-joiners", When: PromotionFacts{Kind: LearnerStarted, Voters: OneVoter, Joined: rules.No | rules.Unknown, Room: rules.Yes | rules.Unknown}, Verdict: WaitPromote,
		Why: "two voters survive less than one does: all learners first"},
})

// DecidePromotion says whether a member asks for its own promotion.
func DecidePromotion(f PromotionFacts) rules.Decision[PromotionVerdict] { return promotions.Decide(f) }

// Ruler is who leads the raft group that a member of ours is to leave.
type Ruler uint8

// The rulers.
const (
	RulerExternal Ruler = 1 << iota // one that is not ours
	RulerOurs                       // another member of ours
	RulerSelf                       // the member that is to go
	RulerUnknown                    // no one, or no one who reported
)

var rulerNames = map[Ruler]string{RulerExternal: "an external member", RulerOurs: "another of ours", RulerSelf: "itself", RulerUnknown: "unknown"}

func (r Ruler) String() string { return rulerNames[r] }

// DepartureFacts is all that DecideDeparture may look at, for our own member, which the record's slot names.
type DepartureFacts struct {
	// Firm: the cluster record was read just now, says Formed and Leaving, and lists our member, whose Lease is this Pod's.
	Authoritative rules.Answer `fact:"firm record"`
	Mark          Mark
	Entry         Entry
	Ruler         Ruler `fact:"leader"`
	// Quorum: the voters that are left hold a healthy quorum (QuorumWithout).
	Quorum rules.Answer `fact:"quorum without it"`
}

// departures is the policy of a member that leaves a group which others go on with, by its own agent through one of them. The leader's
// agent removes members by the table drains; where none of ours leads, and at the last of ours none can, there is no such agent.
// First match wins; what no rule covers waits.
var departures = rules.New(DrainWait, []rules.Row[DepartureFacts, DrainVerdict]{
	{Name: "record-not-firm", When: DepartureFacts{Authoritative: notYes}, Verdict: DrainWait,
		Why: "only a Formed record that was read just now, says that all leave and lists the member sends it off"},
	{Name: "mark-unread", When: DepartureFacts{Mark: MarkUnreadable | MarkUnknown}, Verdict: DrainWait,
		Why: "a mark that cannot be read orders nothing"},
	{Name: "not-asked", When: DepartureFacts{Mark: NotAsked}, Verdict: DrainWait,
		Why: "the slot alone orders nothing: druid is about to mark the Lease"},
	{Name: "removal-acknowledged", When: DepartureFacts{Mark: RemovalAcknowledged}, Verdict: DrainKeep,
		Why: "the member is out, the rest is druid's"},
	{Name: "entry-unknown", When: DepartureFacts{Entry: EntryUnknown}, Verdict: DrainWait,
		Why: "several entries are the member; a person has to remove the wrong one"},
	{Name: "led-by-another", When: DepartureFacts{Entry: isEntry, Ruler: RulerOurs}, Verdict: DrainWait,
		Why: "the agent next to the leader removes it"},
	{Name: "leads", When: DepartureFacts{Entry: isEntry, Ruler: RulerSelf}, Verdict: DrainWait,
		Why: "leadership is handed on first"},
	{Name: "leader-unknown", When: DepartureFacts{Entry: isEntry, Ruler: RulerUnknown}, Verdict: DrainWait,
		Why: "without a leader no one is removed"},
	{Name: "quorum", When: DepartureFacts{Entry: isEntry, Quorum: notYes}, Verdict: DrainWait,
		Why: "those that stay must be a healthy quorum"},
	{Name: "claim", When: DepartureFacts{Mark: Requested | ClaimedByAnother}, Verdict: Claim,
		Why: "from here on it does not start again"},
	{Name: "remove", When: DepartureFacts{Entry: isEntry}, Verdict: DrainRemove,
		Why: "exactly the ID that was claimed, by the leader that stays"},
	{Name: "acknowledge", Verdict: Acknowledge,
		Why: "a linearizable list that was read under our claim does not have it"},
})

// DecideDeparture says what the agent of a member that leaves does next.
func DecideDeparture(f DepartureFacts) DrainDecision { return departures.Decide(f) }
