package bootstrap

import (
	"errors"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

// TestDetoursAreSafeForAllFacts also freezes the table.
func TestDetoursAreSafeForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, detours, brokenByDetour)
	rulestest.Section(t, "../../docs/reference/decisions.md", "detours", "A bootstrap from backups that are damaged: bootstrap.detours",
		"Asked by the seed's agent for the plan that leads to what spec.bootstrap.restore asks for. What is damaged, attempts of the same process found out.", detours, cases)
}

// brokenByDetour names the promise that a decision breaks, or nothing.
func brokenByDetour(f DetourFacts, d rules.Decision[Course]) string {
	switch {
	case d.Verdict == CourseDetour && f.Rest != RestEqual && f.Rest != RestVain:
		return "restores less than was asked for"
	case d.Verdict != CourseDirect && f.Harm == Unharmed:
		return "does without what is not known to be damaged"
	case d.Verdict == CourseDirect && f.Harm == HarmNew:
		return "reads again what was found damaged just now"
	case f.Harm == HarmOld && d.Verdict != CourseDirect && f.Rest != RestEqual:
		return "never finds out that damage was repaired"
	case d.Verdict == CourseNone && f.Rest == RestEqual:
		return "waits for a person, and all is there"
	case d.Verdict == CourseDirect && f.Harm != Unharmed && f.Rest == RestEqual:
		return "tries what is damaged, and all is elsewhere"
	}
	return ""
}

func TestWhereTheRestOfTheBackupsLeads(t *testing.T) {
	until := time.Unix(1000, 0)
	plan := func(change func(*chain.Plan)) chain.Plan {
		p := chain.Plan{Full: chain.Full{Lineage: "00000002-a", Key: "f"}, Revision: 90, Until: until, Reach: 70}
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		change func(*chain.Plan)
		err    error
		want   Rest
	}{
		"to the same by another full":            {func(p *chain.Plan) { p.Full.Key = "g"; p.Deltas = []chain.Delta{{Key: "d"}} }, nil, RestEqual},
		"further, to be cut back":                {func(p *chain.Plan) { p.Reach = 71 }, nil, RestEqual},
		"the same moment of another zone":        {func(p *chain.Plan) { p.Until = until.In(time.FixedZone("", 3600)) }, nil, RestEqual},
		"one revision less":                      {func(p *chain.Plan) { p.Reach = 69 }, nil, RestLess},
		"to as much of another lineage":          {func(p *chain.Plan) { p.Full.Lineage = "00000001-a" }, nil, RestLess},
		"to be cut at another fork":              {func(p *chain.Plan) { p.Revision = 80 }, nil, RestLess},
		"to be cut nowhere":                      {func(p *chain.Plan) { p.Revision = 0 }, nil, RestLess},
		"to another moment":                      {func(p *chain.Plan) { p.Until = until.Add(-time.Second) }, nil, RestLess},
		"nowhere, whatever the plan is reported": {func(*chain.Plan) {}, errors.New("gap"), RestNone},
		"by what was tried":                      {func(p *chain.Plan) { p.Full.Key = "vain" }, nil, RestVain},
		"by what was tried, and less":            {func(p *chain.Plan) { p.Full.Key, p.Reach = "vain", 69 }, nil, RestLess},
	} {
		vain := plan(func(p *chain.Plan) { p.Full.Key, p.Notes = "vain", []string{"which says more"} })
		if got := restOf(plan(func(*chain.Plan) {}), plan(tc.change), vain, tc.err); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
