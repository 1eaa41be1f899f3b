package bootstrap

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

// TestAdoptionsAreSafeForAllFacts also freezes the table.
func TestAdoptionsAreSafeForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, adoptions, func(f AdoptionFacts, _ rules.Decision[adoptionVerdict]) string {
		return brokenByAdoption(f, decideAdoption(f))
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "joining", "A bootstrap by joining: bootstrap.adoptions",
		"Asked by the seed's agent where the table of the starts decides first-boot and spec.bootstrap.join names a running cluster.", adoptions, cases)
}

// brokenByAdoption names the promise that a decision breaks, or nothing.
func brokenByAdoption(f AdoptionFacts, a adoption) string {
	acts := a.Mode == ModeAdopt
	switch {
	case a.Mode == ModeNew || a.Mode == ModeRestore:
		return "a second cluster next to the one that is to be joined"
	case acts != (a.step != 0):
		return "acts without a step, or has a step and does not act"
	case acts && f.Source&(SourceSilent|SourceOther|SourceUnfit) != 0:
		return "changes a cluster that is not known, is another one, or cannot be joined"
	case a.step != stepClaim && acts && f.Claimed != Intended:
		return "changes the cluster before the record says which"
	case acts && f.Entry == VoterEntry:
		return "touches a voter"
	case a.step == stepDrop && f.Entry != OldLearner:
		return "removes what is no old learner of ours"
	case a.step == stepEnter && f.Entry&(OldLearner|VoterEntry) != 0:
		return "R4: starts a listed ID without its data"
	case a.step == stepEnter && f.Entry == NoEntry && (f.Source != SourceFit || f.Needs != Met):
		return "adds a member to a cluster that is not healthy, or that it cannot follow"
	}
	return ""
}
