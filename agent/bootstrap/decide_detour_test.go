package bootstrap

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/test/golden"
)

// TestDetoursAreSafeForAllFacts also freezes the table.
func TestDetoursAreSafeForAllFacts(t *testing.T) {
	fired, f := map[string]int{}, DetourFacts{}
	for f.Harm = range each(Harm(anyHarm)) {
		for f.Rest = range each(Rest(anyRest)) {
			d := decideDetour(f)
			fired[d.Rule]++
			if promise := brokenByDetour(f, d); promise != "" {
				t.Errorf("%+v: %s: %s", f, d.Rule, promise)
			}
		}
	}
	var rows [][]string
	for _, r := range detours {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		rows = append(rows, []string{
			r.name, adoptionCell(r.when.Harm, harmWords), adoptionCell(r.when.Rest, restWords), "**" + string(r.course) + "**", r.why, fmt.Sprint(fired[r.name]),
		})
	}
	golden.Section(t, "../../docs/decisions.md", "detours", "## A birth from backups that are damaged: bootstrap.detours\n\n"+
		"Asked by the seed's agent for the plan that leads to what spec.bootstrap.restore asks for. What is damaged, attempts of the same process found out.\n\n"+
		golden.Table([]string{"rule", "an object of the plan is damaged", "the others lead", "plan", "why", "cases"}, rows))
}

// brokenByDetour names the promise that a decision breaks, or nothing.
func brokenByDetour(f DetourFacts, d detour) string {
	switch {
	case d.Rule == "uncovered":
		return "no rule covers it"
	case d.Course == CourseDetour && f.Rest != RestEqual && f.Rest != RestVain:
		return "restores less than was asked for"
	case d.Course != CourseDirect && f.Harm == Unharmed:
		return "does without what is not known to be damaged"
	case d.Course == CourseDirect && f.Harm == HarmNew:
		return "reads again what was found damaged just now"
	case f.Harm == HarmOld && d.Course != CourseDirect && f.Rest != RestEqual:
		return "never finds out that damage was mended"
	case d.Course == CourseNone && f.Rest == RestEqual:
		return "waits for a person, and all is there"
	case d.Course == CourseDirect && f.Harm != Unharmed && f.Rest == RestEqual:
		return "tries what is damaged, and all is elsewhere"
	}
	return ""
}

var (
	harmWords = []string{"no", "found just now", "found minutes ago"}
	restWords = []string{"to the same state", "to the same, tried in vain", "to less, or another state", "nowhere"}
)

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
		"to the same by another full":        {func(p *chain.Plan) { p.Full.Key = "g"; p.Deltas = []chain.Delta{{Key: "d"}} }, nil, RestEqual},
		"further, to be cut back":            {func(p *chain.Plan) { p.Reach = 71 }, nil, RestEqual},
		"the same moment of another zone":    {func(p *chain.Plan) { p.Until = until.In(time.FixedZone("", 3600)) }, nil, RestEqual},
		"one revision less":                  {func(p *chain.Plan) { p.Reach = 69 }, nil, RestLess},
		"to as much of another lineage":      {func(p *chain.Plan) { p.Full.Lineage = "00000001-a" }, nil, RestLess},
		"to be cut at another fork":          {func(p *chain.Plan) { p.Revision = 80 }, nil, RestLess},
		"to be cut nowhere":                  {func(p *chain.Plan) { p.Revision = 0 }, nil, RestLess},
		"to another moment":                  {func(p *chain.Plan) { p.Until = until.Add(-time.Second) }, nil, RestLess},
		"nowhere, whatever the plan is told": {func(*chain.Plan) {}, errors.New("gap"), RestNone},
		"by what was tried":                  {func(p *chain.Plan) { p.Full.Key = "vain" }, nil, RestVain},
		"by what was tried, and less":        {func(p *chain.Plan) { p.Full.Key, p.Reach = "vain", 69 }, nil, RestLess},
	} {
		vain := plan(func(p *chain.Plan) { p.Full.Key, p.Notes = "vain", []string{"which says more"} })
		if got := restOf(plan(func(*chain.Plan) {}), plan(tc.change), vain, tc.err); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
