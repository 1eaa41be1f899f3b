package membership

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestUpgradesAreSafeForAllFacts(t *testing.T) {
	checkTable(t, upgrades, "upgrades", "Members whose version is changed: membership.upgrades",
		"Asked by the leader's agent while druid's order stands on the record.", func(f UpgradeFacts, d rules.Decision[UpgradeVerdict]) string {
			acts := d.Verdict == UpgradeAnnounce || d.Verdict == UpgradeCancel
			switch {
			case d.Verdict != UpgradeWait && f.Firm != rules.Yes:
				return "answers what may be another group's order"
			case (acts || d.Verdict == UpgradeCompare) && f.Whole != rules.Yes:
				return "goes on without a member"
			case acts && f.Reached != rules.No:
				return "changes what a member that runs the earlier minor may rest on"
			case d.Verdict == UpgradeAnnounce && f.Course != CourseBack:
				return "announces what no one asks for"
			case d.Verdict == UpgradeCompare && f.Course == CourseBack && f.Storage != rules.Yes:
				return "lets an etcd go back to a format that it cannot read"
			case d.Verdict == UpgradeCompare && f.Course == CourseOn && f.Log != LogReadable:
				return "lets an etcd go on to a log that it cannot read"
			}
			return ""
		})
}

func TestOnlyEqualRevisionsAndCompactionsAreCompared(t *testing.T) {
	at := func(revision, compacted int64, hash uint32) Content {
		return Content{Revision: revision, CompactRevision: compacted, Hash: hash}
	}
	for name, test := range map[string]struct {
		all  []Content
		want Sameness
	}{
		"no one answered":                     {nil, Incomparable},
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
