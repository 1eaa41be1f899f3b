package membership

import "github.com/etcd-druid/druid/internal/rules"

// PromotionFacts is all that DecidePromotion may look at when a member considers its own promotion.
type PromotionFacts struct {
	// Kind of the member's own entry.
	Kind Kind `fact:"own entry"`
	// Firm: the cluster record was read just now, says Formed, and lists the member.
	Firm   rules.Answer `fact:"firm record"`
	Voters Voters
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
	{Name: "record-not-firm", When: PromotionFacts{Kind: LearnerStarted, Firm: rules.No | rules.Unknown}, Verdict: WaitPromote,
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
