package bootstrap

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/golden"
)

// TestAdoptionsAreSafeForAllFacts also freezes the table.
func TestAdoptionsAreSafeForAllFacts(t *testing.T) {
	fired, f := map[string]int{}, AdoptionFacts{}
	for f.Source = range each(Source(anySource)) {
		for f.Claimed = range each(Claimed(anyClaimed)) {
			for f.Entry = range each(Entry(anyEntry)) {
				for f.Needs = range each(Needs(anyNeeds)) {
					a := decideAdoption(f)
					fired[a.Rule]++
					if promise := brokenByAdoption(f, a); promise != "" {
						t.Errorf("%+v: %s: %s", f, a.Rule, promise)
					}
				}
			}
		}
	}
	var rows [][]string
	for _, r := range adoptions {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		rows = append(rows, []string{
			r.name, adoptionCell(r.when.Source, sourceWords), adoptionCell(r.when.Claimed, claimedWords), adoptionCell(r.when.Entry, entryWords),
			adoptionCell(r.when.Needs, needsWords), "**" + string(r.mode) + "**" + stepWords[r.step], r.why, fmt.Sprint(fired[r.name]),
		})
	}
	golden.Section(t, "../../docs/decisions.md", "adoption", "## A birth by joining: bootstrap.adoptions\n\n"+
		"Asked by the seed's agent where the table of the starts decides first-boot and spec.bootstrap.join names a running cluster.\n\n"+
		golden.Table([]string{"rule", "that cluster", "claimed in the record", "lists us as", "needs", "decision", "why it is safe, or what is awaited", "cases"}, rows))
}

// brokenByAdoption names the promise that a decision breaks, or nothing.
func brokenByAdoption(f AdoptionFacts, a adoption) string {
	acts := a.Mode == ModeAdopt
	switch {
	case a.Rule == "uncovered":
		return "no rule covers it"
	case a.Mode == ModeNew || a.Mode == ModeRestore:
		return "a second cluster beside the one that is to be joined"
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

var (
	sourceWords  = []string{"silent", "another", "unfit", "ailing", "fit"}
	claimedWords = []string{"no", "yes"}
	entryWords   = []string{"nobody", "a learner added in this start", "a learner of an earlier start", "a voter"}
	stepWords    = map[adoptionStep]string{stepClaim: ": claim", stepDrop: ": remove that learner", stepEnter: ": be added, start"}
)

func adoptionCell[T ~uint8](cell T, words []string) string {
	var held []string
	for b := range each(cell) {
		held = append(held, words[bits.TrailingZeros8(uint8(b))])
	}
	return strings.Join(held, ", ")
}
