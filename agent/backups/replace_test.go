package backups

import (
	"fmt"
	"testing"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/golden"
)

func TestABrokenFullIsReplacedAtARestForAllFacts(t *testing.T) {
	fired := map[string]int{}
	var f ReplaceFacts
	for f.Broken = range golden.Bits(anyAnswer) {
		for f.Repeated = range golden.Bits(anyAnswer) {
			for f.Few = range golden.Bits(anyAnswer) {
				for f.Rested = range golden.Bits(anyAnswer) {
					got, rule := DecideReplacement(f)
					fired[rule]++
					switch {
					case rule == "uncovered":
						t.Errorf("%+v is not covered", f)
					case (got == NoReplacement) != (f.Broken == rules.No):
						t.Errorf("%+v: %s by %s", f, got, rule)
					case got == ReplaceNow && f.Repeated == rules.Yes && f.Rested == rules.No:
						t.Errorf("%+v: a full without a pause by %s", f, rule)
					case got == HandOn && (f.Repeated == rules.No || f.Few == rules.No):
						t.Errorf("%+v: leadership moves by %s", f, rule)
					}
				}
			}
		}
	}
	var rows [][]string
	for _, r := range replaceRules {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		rows = append(rows, []string{
			r.name, golden.Cell(r.broken, anyAnswer), golden.Cell(r.repeated, anyAnswer), golden.Cell(r.few, anyAnswer),
			golden.Cell(r.rested, anyAnswer), "**" + string(r.replacement) + "**", r.why, fmt.Sprint(fired[r.name]),
		})
	}
	golden.Section(t, "../../docs/decisions.md", "replace", "## What follows a full that was found to be broken: agent/backups.replaceRules\n\n"+
		"It is `found broken` of the table of what is backed up. The pause is 10 minutes after the second full of a leader, and doubles up to 6 hours.\n\n"+
		golden.Table([]string{"rule", "newest full is broken", "this leader replaced one", "two at most, not handed on", "pause is over", "verdict", "why", "cases"}, rows))
}

func TestFullsAreCountedSinceTheLastThatWasProven(t *testing.T) {
	h := chain.History{Fulls: []chain.Full{{Key: "a"}, {Key: "b"}, {Key: "c"}}}
	for proven, want := range map[string]int{"": 3, "a": 2, "c": 0, "gone": 3} {
		if got := unprovenIn(h, proven); got != want {
			t.Errorf("%d fulls since %q, want %d", got, proven, want)
		}
	}
}
