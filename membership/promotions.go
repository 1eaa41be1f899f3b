package membership

import "github.com/etcd-druid/druid/internal/rules"

// PromotionFacts is all that DecidePromotion may look at when a member considers its own promotion.
type PromotionFacts struct {
	// Kind of the member's own entry.
	Kind Kind
	// Firm: the cluster record was read just now, says Formed, and lists the member.
	Firm   rules.Answer
	Voters Voters
	// Joined: every desired member is listed and started.
	Joined rules.Answer
	// Room: the raft group takes another learner beside those that it has.
	Room rules.Answer
}

// PromotionVerdict is what the member does.
type PromotionVerdict string

// The verdicts. Done means that the member votes.
const (
	PromoteMember PromotionVerdict = "Promote"
	WaitPromote   PromotionVerdict = "Wait"
	Done          PromotionVerdict = "Done"
)

// PromotionDecision names the rule too.
type PromotionDecision struct {
	Verdict PromotionVerdict
	Rule    string
}

type promotionRule struct {
	name         string
	kind         Kind
	firm         rules.Answer
	voters       Voters
	joined, room rules.Answer
	verdict      PromotionVerdict
	why          string
}

// promotions is the whole policy on learners. First match wins; what no rule covers waits.
var promotions = []promotionRule{
	{"voter", VoterUnstarted | VoterStarted, anyAnswer, anyVoters, anyAnswer, anyAnswer, Done, "it votes already"},
	{"unstarted", LearnerUnstarted, anyAnswer, anyVoters, anyAnswer, anyAnswer, WaitPromote,
		"a learner that has not published itself has not caught up"},
	{"record-not-firm", LearnerStarted, rules.No | rules.Unknown, anyVoters, anyAnswer, anyAnswer, WaitPromote,
		"a member that is not desired, or may not be, gets no vote"},
	{"quorum-grows", LearnerStarted, anyAnswer, MoreVoters, anyAnswer, anyAnswer, PromoteMember,
		"etcd itself checks that the learner caught up"},
	{"together", LearnerStarted, anyAnswer, OneVoter, rules.Yes, anyAnswer, PromoteMember,
		"all learners are there: they are promoted back to back"},
	{"learner-limit", LearnerStarted, anyAnswer, OneVoter, rules.No | rules.Unknown, rules.No, PromoteMember,
		"the others can join only when this one is no learner any more"},
	{"await-joiners", LearnerStarted, anyAnswer, OneVoter, rules.No | rules.Unknown, rules.Yes | rules.Unknown, WaitPromote,
		"two voters survive less than one does: all learners first"},
}

func (r promotionRule) matches(f PromotionFacts) bool {
	return r.kind&f.Kind != 0 && r.firm&f.Firm != 0 && r.voters&f.Voters != 0 && r.joined&f.Joined != 0 && r.room&f.Room != 0
}

// DecidePromotion says whether a member asks for its own promotion.
func DecidePromotion(f PromotionFacts) PromotionDecision {
	for _, r := range promotions {
		if r.matches(f) {
			return PromotionDecision{r.verdict, r.name}
		}
	}
	return PromotionDecision{WaitPromote, "uncovered"}
}
