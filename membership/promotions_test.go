package membership

import (
	"fmt"
	"iter"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/golden"
)

func eachPromotion() iter.Seq[PromotionFacts] {
	return func(yield func(PromotionFacts) bool) {
		var f PromotionFacts
		for f.Kind = range golden.Bits(anyKind) {
			for f.Firm = range golden.Bits(anyAnswer) {
				for f.Voters = range golden.Bits(anyVoters) {
					for f.Joined = range golden.Bits(anyAnswer) {
						for f.Room = range golden.Bits(anyAnswer) {
							if !yield(f) {
								return
							}
						}
					}
				}
			}
		}
	}
}

func TestPromotionsAreSafeForAllFacts(t *testing.T) {
	fired := map[string]int{}
	for f := range eachPromotion() {
		d := DecidePromotion(f)
		fired[d.Rule]++
		switch {
		case d.Rule == "uncovered":
			t.Errorf("%+v: no rule covers it", f)
		case d.Verdict == PromoteMember && f.Firm != rules.Yes:
			t.Errorf("%+v: a member that is perhaps not desired gets a vote: %+v", f, d)
		case d.Verdict == PromoteMember && f.Kind != LearnerStarted:
			t.Errorf("%+v: promotes what is no started learner: %+v", f, d)
		case d.Verdict == PromoteMember && f.Voters == OneVoter && f.Joined != rules.Yes && f.Room != rules.No:
			t.Errorf("%+v: opens a window with two voters: %+v", f, d)
		case d.Verdict == Done && f.Kind&(LearnerStarted|LearnerUnstarted) != 0:
			t.Errorf("%+v: a learner is done: %+v", f, d)
		}
	}
	var rows [][]string
	for _, r := range promotions {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		rows = append(rows, []string{
			r.name, golden.Cell(r.kind, anyKind), golden.Cell(r.firm, anyAnswer), golden.Cell(r.voters, anyVoters), golden.Cell(r.joined, anyAnswer),
			golden.Cell(r.room, anyAnswer), "**" + string(r.verdict) + "**", r.why, fmt.Sprint(fired[r.name]),
		})
	}
	golden.Section(t, decisions, "promotions", "## A learner that wants to vote: membership.promotions\n\n"+
		"Asked by a learner's own agent.\n\n"+golden.Table([]string{
		"rule", "own entry", "firm record", "voters", "all desired started", "room for a learner", "verdict", "why", "cases",
	}, rows))
}
