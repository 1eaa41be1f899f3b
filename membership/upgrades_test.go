package membership

import (
	"fmt"
	"iter"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/golden"
)

func eachUpgrade() iter.Seq[UpgradeFacts] {
	return func(yield func(UpgradeFacts) bool) {
		var f UpgradeFacts
		for f.Firm = range golden.Bits(anyAnswer) {
			for f.Whole = range golden.Bits(anyAnswer) {
				for f.Course = range golden.Bits(anyCourse) {
					for f.Announced = range golden.Bits(anyAnnounced) {
						for f.Reached = range golden.Bits(anyAnswer) {
							for f.Storage = range golden.Bits(anyAnswer) {
								for f.Log = range golden.Bits(anyLogState) {
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
	}
}

func TestUpgradesAreSafeForAllFacts(t *testing.T) {
	fired := map[string]int{}
	for f := range eachUpgrade() {
		d := DecideUpgrade(f)
		fired[d.Rule]++
		acts := d.Verdict == UpgradeAnnounce || d.Verdict == UpgradeCancel
		switch {
		case d.Rule == "uncovered":
			t.Errorf("%+v: no rule covers it", f)
		case d.Verdict != UpgradeWait && f.Firm != rules.Yes:
			t.Errorf("%+v: answers what may be another group's order: %+v", f, d)
		case (acts || d.Verdict == UpgradeCompare) && f.Whole != rules.Yes:
			t.Errorf("%+v: goes on without a member: %+v", f, d)
		case acts && f.Reached != rules.No:
			t.Errorf("%+v: changes what a member that runs the earlier minor may rest on: %+v", f, d)
		case d.Verdict == UpgradeAnnounce && f.Course != CourseBack:
			t.Errorf("%+v: announces what nobody asks for: %+v", f, d)
		case d.Verdict == UpgradeCompare && f.Course == CourseBack && f.Storage != rules.Yes:
			t.Errorf("%+v: lets an etcd go back to a format that it cannot read: %+v", f, d)
		case d.Verdict == UpgradeCompare && f.Course == CourseOn && f.Log != LogReadable:
			t.Errorf("%+v: lets an etcd go on to a log that it cannot read: %+v", f, d)
		}
	}
	var rows [][]string
	for _, r := range upgrades {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		rows = append(rows, []string{
			r.name, golden.Cell(r.firm, anyAnswer), golden.Cell(r.whole, anyAnswer), golden.Cell(r.course, anyCourse), golden.Cell(r.announced, anyAnnounced),
			golden.Cell(r.reached, anyAnswer), golden.Cell(r.storage, anyAnswer), golden.Cell(r.log, anyLogState), "**" + string(r.verdict) + "**", r.why, fmt.Sprint(fired[r.name]),
		})
	}
	golden.Section(t, decisions, "upgrades", "## Members whose version is changed: membership.upgrades\n\n"+
		"Asked by the leader's agent while druid's order stands on the record.\n\n"+golden.Table([]string{
		"rule", "firm record", "all members vote and answer", "course", "downgrade that etcd knows of", "a member runs the earlier minor",
		"storage has its format", "logs", "verdict", "why", "cases",
	}, rows))
}

func TestOnlyEqualRevisionsAndCompactionsAreCompared(t *testing.T) {
	at := func(revision, compacted int64, hash uint32) Content {
		return Content{Revision: revision, CompactRevision: compacted, Hash: hash}
	}
	for name, test := range map[string]struct {
		all  []Content
		want Sameness
	}{
		"nobody answered":                     {nil, Incomparable},
		"one member alone":                    {[]Content{at(9, 2, 7)}, Same},
		"all hold the same":                   {[]Content{at(9, 2, 7), at(9, 2, 7), at(9, 2, 7)}, Same},
		"one holds something else":            {[]Content{at(9, 2, 7), at(9, 2, 7), at(9, 2, 8)}, Different},
		"one compacted more":                  {[]Content{at(9, 2, 7), at(9, 3, 8), at(9, 2, 7)}, Incomparable},
		"one is behind":                       {[]Content{at(9, 2, 7), at(8, 2, 8)}, Incomparable},
		"one differs, and one compacted more": {[]Content{at(9, 2, 7), at(9, 3, 7), at(9, 2, 8)}, Different},
		"equal by chance at other revisions":  {[]Content{at(9, 2, 7), at(8, 2, 7)}, Incomparable},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Compare(test.all); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
