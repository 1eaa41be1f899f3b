package membership

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// RemovalFacts is the complete input of DecideRemoval, for one member of the list.
type RemovalFacts struct {
	// Self: the member is the deciding one.
	Self rules.Answer
	// Authoritative: the cluster record was read just now, has the phase Formed, and lists the deciding member.
	Authoritative rules.Answer `fact:"record authoritative"`
	// Desired: the record lists the member by name or, if it never started, by peer URL.
	Desired rules.Answer
	Kind    Kind
	// Adopted: the raft group existed before the EtcdCluster and was joined, so a member that is not desired can be an
	// external member.
	Adopted rules.Answer `fact:"group was joined"`
	// Released: the user allowed the removal of the external members of the joined group, and every desired member is
	// a healthy voter.
	Released rules.Answer `fact:"others may go"`
	// Coming: the Pod that would start the member exists or will exist.
	Coming rules.Answer `fact:"Pod coming"`
	// Elapsed: this leader saw the member as superfluous for the complete grace period.
	Elapsed rules.Answer `fact:"grace elapsed"`
	// Turn: no other member was removed within the last grace period, none is being removed, and the record does not say that
	// no majority has the same data.
	Turn rules.Answer `fact:"its turn"`
	// Quorum: the remaining voters have a healthy quorum (QuorumWithout).
	Quorum rules.Answer `fact:"quorum without it"`
}

// RemovalVerdict is what happens to a member.
type RemovalVerdict string

// The verdicts. Wait means that the member is superfluous but may not be removed yet.
const (
	Keep         RemovalVerdict = "Keep"
	WaitRemove   RemovalVerdict = "Wait"
	RemoveMember RemovalVerdict = "Remove"
)

// removals is the complete policy on superfluous members. The first match wins. The default is to keep the member.
var removals = rules.New(Keep, []rules.Row[RemovalFacts, RemovalVerdict]{
	{Name: "self", When: RemovalFacts{Self: rules.Yes | rules.Unknown}, Verdict: Keep,
		Why: "a member does not remove itself; a leader that is to be removed moves leadership first"},
	{Name: "record-not-authoritative", When: RemovalFacts{Authoritative: rules.No | rules.Unknown}, Verdict: Keep,
		Why: "a removal needs a cluster record that was read just now, has the phase Formed and lists the deciding member"},
	{Name: "desired-unknown", When: RemovalFacts{Desired: rules.Unknown}, Verdict: Keep,
		Why: "an unknown state removes no member"},
	{Name: "desired", When: RemovalFacts{Desired: rules.Yes, Kind: VoterUnstarted | VoterStarted | LearnerStarted}, Verdict: Keep,
		Why: "a desired member is never removed because it is unavailable"},
	{Name: "desired-starting", When: RemovalFacts{Desired: rules.Yes, Kind: LearnerUnstarted, Coming: rules.Yes | rules.Unknown}, Verdict: Keep,
		Why: "the Pod of the member will start or replace it"},
	{Name: "external-member", When: RemovalFacts{Desired: rules.No, Adopted: rules.Yes | rules.Unknown, Released: rules.No | rules.Unknown}, Verdict: Keep,
		Why: "the group was joined; external members stay until the user allows their removal and all desired members are healthy voters"},
	{Name: "grace", When: RemovalFacts{Elapsed: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "a member that is just being added looks the same, so the grace period must end first"},
	{Name: "one-at-a-time", When: RemovalFacts{Turn: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "at most one member is removed per grace period, and none during another removal"},
	{Name: "quorum", When: RemovalFacts{Quorum: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "the remaining voters must have a healthy quorum"},
	{Name: "unstarted-learner", When: RemovalFacts{Desired: rules.Yes, Kind: LearnerUnstarted, Coming: rules.No}, Verdict: RemoveMember,
		Why: "a learner that never started and never will uses the place of another learner"},
	{Name: "superfluous-learner", When: RemovalFacts{Desired: rules.No, Kind: LearnerUnstarted | LearnerStarted}, Verdict: RemoveMember,
		Why: "the member was not added by an agent"},
	{Name: "superfluous-voter", When: RemovalFacts{Desired: rules.No, Kind: VoterUnstarted | VoterStarted}, Verdict: RemoveMember,
		Why: "the member was not added by an agent, or is left over"},
})

// DecideRemoval says what happens to one member of the list.
func DecideRemoval(f RemovalFacts) rules.Decision[RemovalVerdict] { return removals.Decide(f) }

// PromotionFacts is the complete input of DecidePromotion, for a member that considers its own promotion.
type PromotionFacts struct {
	// Kind of the member's own entry.
	Kind Kind `fact:"own entry"`
	// Authoritative: the cluster record was read just now, says Formed, and lists the member.
	Authoritative rules.Answer `fact:"record authoritative"`
	// Reported: the Lease, read just now, says that the member runs in this raft group under its ID, and has no disk report. What the
	// disk held before etcd started is no evidence of a lost voter then.
	Reported rules.Answer `fact:"the Lease shows that it runs"`
	Voters   Voters
	// Joined: every desired member is listed and started.
	Joined rules.Answer `fact:"all desired started"`
	// Room: the raft group can take another learner in addition to the present ones.
	Room rules.Answer `fact:"room for a learner"`
}

// PromotionVerdict is the next step of the member.
type PromotionVerdict string

// The verdicts. Done means that the member is a voter.
const (
	PromoteMember PromotionVerdict = "Promote"
	WaitPromote   PromotionVerdict = "Wait"
	Done          PromotionVerdict = "Done"
)

// promotions is the complete policy on learners. The first match wins. The default is to wait.
var promotions = rules.New(WaitPromote, []rules.Row[PromotionFacts, PromotionVerdict]{
	{Name: "voter", When: PromotionFacts{Kind: VoterUnstarted | VoterStarted}, Verdict: Done,
		Why: "the member is a voter already"},
	{Name: "unstarted", When: PromotionFacts{Kind: LearnerUnstarted}, Verdict: WaitPromote,
		Why: "a learner that has not published its name has not caught up"},
	{Name: "record-not-authoritative", When: PromotionFacts{Kind: LearnerStarted, Authoritative: rules.No | rules.Unknown}, Verdict: WaitPromote,
		Why: "a member that is not certainly desired is not promoted"},
	{Name: "not-reported", When: PromotionFacts{Kind: LearnerStarted, Reported: rules.No | rules.Unknown}, Verdict: WaitPromote,
		Why: "the Lease might still say what the disk held before etcd started, and druid would count a voter as lost"},
	{Name: "quorum-grows", When: PromotionFacts{Kind: LearnerStarted, Voters: MoreVoters}, Verdict: PromoteMember,
		Why: "etcd itself checks that the learner has caught up"},
	{Name: "all-started", When: PromotionFacts{Kind: LearnerStarted, Voters: OneVoter, Joined: rules.Yes}, Verdict: PromoteMember,
		Why: "all learners have started, so they are promoted one directly after another"},
	{Name: "learner-limit", When: PromotionFacts{Kind: LearnerStarted, Voters: OneVoter, Joined: rules.No | rules.Unknown, Room: rules.No}, Verdict: PromoteMember,
		Why: "the other members can join only after the promotion of this one"},
	{Name: "await-joiners", When: PromotionFacts{Kind: LearnerStarted, Voters: OneVoter, Joined: rules.No | rules.Unknown, Room: rules.Yes | rules.Unknown},
		Verdict: WaitPromote,
		Why:     "two voters are a quorum only together, so all learners start before the first promotion"},
})

// DecidePromotion says whether a member requests its own promotion.
func DecidePromotion(f PromotionFacts) rules.Decision[PromotionVerdict] { return promotions.Decide(f) }

// Ruler is the leader of the raft group that a member of the EtcdCluster leaves.
type Ruler uint8

// The possible leaders.
const (
	RulerExternal Ruler = 1 << iota // one that is not ours
	RulerOurs                       // another member of ours
	RulerSelf                       // the member that is to go
	RulerUnknown                    // there is no leader, or it did not report
)

var rulerNames = map[Ruler]string{RulerExternal: "an external member", RulerOurs: "another member of the EtcdCluster", RulerSelf: "itself",
	RulerUnknown: "unknown"}

func (r Ruler) String() string { return rulerNames[r] }

// DepartureFacts is the complete input of DecideDeparture, for the agent's own member, which the record's slot names.
type DepartureFacts struct {
	// Authoritative: the cluster record was read just now, has the phase Formed, says that all members leave, and lists the
	// agent's own member, whose Lease names this Pod.
	Authoritative rules.Answer `fact:"record authoritative"`
	Mark          Mark
	Entry         Entry
	Ruler         Ruler `fact:"leader"`
	// Quorum: the remaining voters have a healthy quorum (QuorumWithout).
	Quorum rules.Answer `fact:"quorum without it"`
}

// departures is the policy for a member that leaves a joined raft group by its own agent, through one of the members
// that stay. Otherwise the leader's agent removes members by the table drains. If no member of the EtcdCluster leads
// or can lead, there is no such agent. The first match wins. The default is to wait.
var departures = rules.New(DrainWait, []rules.Row[DepartureFacts, DrainVerdict]{
	{Name: "record-not-authoritative", When: DepartureFacts{Authoritative: notYes}, Verdict: DrainWait,
		Why: "a member leaves only with a cluster record that was read just now and has the phase Formed; it says that all members leave, and lists the member"},
	{Name: "request-unread", When: DepartureFacts{Mark: MarkUnreadable | MarkUnknown}, Verdict: DrainWait,
		Why: "a removal request that cannot be read requests nothing"},
	{Name: "not-requested", When: DepartureFacts{Mark: NotAsked}, Verdict: DrainWait,
		Why: "the slot alone requests nothing; druid is about to write the removal request"},
	{Name: "removal-acknowledged", When: DepartureFacts{Mark: RemovalAcknowledged}, Verdict: DrainKeep,
		Why: "the member is removed, and druid does the rest"},
	{Name: "entry-unknown", When: DepartureFacts{Entry: EntryUnknown}, Verdict: DrainWait,
		Why: "several entries match the member, or its removal request has the ID of another member; correct this manually"},
	{Name: "led-by-another", When: DepartureFacts{Ruler: RulerOurs}, Verdict: DrainWait,
		Why: "the leader's agent removes it, and acknowledges that"},
	{Name: "leads", When: DepartureFacts{Ruler: RulerSelf}, Verdict: DrainWait,
		Why: "leadership moves first"},
	{Name: "leader-unknown", When: DepartureFacts{Ruler: RulerUnknown}, Verdict: DrainWait,
		Why: "without a leader no member can be removed, and the agent of the next leader might acknowledge"},
	{Name: "quorum", When: DepartureFacts{Entry: isEntry, Quorum: notYes}, Verdict: DrainWait,
		Why: "the members that stay must have a healthy quorum"},
	{Name: "claim", When: DepartureFacts{Mark: Requested | ClaimedByAnother}, Verdict: Claim,
		Why: "after the claim the member does not start again"},
	{Name: "remove", When: DepartureFacts{Entry: isEntry}, Verdict: DrainRemove,
		Why: "the claimed ID is removed through the leader that stays"},
	{Name: "acknowledge", Verdict: Acknowledge,
		Why: "a linearizable member list, read after the claim, does not have the member"},
})

// DecideDeparture returns the next step of the agent of a member that leaves.
func DecideDeparture(f DepartureFacts) DrainDecision { return departures.Decide(f) }
