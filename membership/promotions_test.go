package membership

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestPromotionsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, promotions, "promotions", "A learner that wants to vote: membership.promotions",
		"Asked by a learner's own agent.", func(f PromotionFacts, d rules.Decision[PromotionVerdict]) string {
			switch {
			case d.Verdict == PromoteMember && f.Firm != rules.Yes:
				return "a member that is perhaps not desired gets a vote"
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
