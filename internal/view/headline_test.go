package view

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

// Links returns the pages that steps can name, and the rows of all rules.
func Links() []string {
	all := []string{RuleDocs(""), RuleDocs("a-rule-of-another-version")}
	for name := range known {
		all = append(all, RuleDocs(name))
	}
	for _, r := range remedies {
		if r.page != "" {
			all = append(all, docs+r.page)
		}
	}
	return all
}

// TestEachRuleHasItsOwnRow: no rule of a start has the name of another rule, so that a name leads to one row.
func TestEachRuleHasItsOwnRow(t *testing.T) {
	starts := strings.Count(startRules, "\n")
	if starts < 50 || len(known) != starts+len(headlines.Rows()) {
		t.Errorf("%d rules of starts and %d of states have %d names", starts, len(headlines.Rows()), len(known))
	}
	for name, r := range known {
		if link := RuleDocs(name); !strings.HasSuffix(link, "#"+r.section+"-"+name) || r.why == "" {
			t.Errorf("rule %s: the link is %s, the reason %q", name, link, r.why)
		}
	}
}

func TestHeadlinesHideNothing(t *testing.T) {
	cases := rulestest.Check(t, headlines, func(f headlineFacts, d rules.Decision[Headline]) string {
		state, health := d.Verdict.State, d.Verdict.Health
		unknown := f.degraded == rules.Unknown || f.members == rules.Unknown || f.backups == rules.Unknown || f.secure == rules.Unknown || f.change == changeUnknown
		asRequired := f.serving&(servingYes|servingCutOff|servingPaused) != 0
		switch {
		case !slices.Contains(States, state):
			return "a state that has no place in the order"
		case health == Well && (f.degraded == rules.Yes || !asRequired):
			return "calls a cluster well that does not do what its spec requires"
		case health == Well && f.serving != servingPaused &&
			(f.backups == rules.No || f.secure == rules.No || f.members == rules.No || f.change&(changeStopped|changeHandsOff) != 0):
			return "hides a problem"
		case health == Well && f.serving != servingPaused && unknown:
			return "calls a cluster well of which too little is known"
		case health == Well && f.serving != servingPaused && f.renewals&(renewalsSilent|renewalsQuorum) != 0:
			return "believes a status that the Leases contradict"
		case health == NotWell && f.serving&(servingUnclear|servingUnseen) != 0:
			return "calls a cluster not well of which nothing is known"
		case (state == StateQuorumLost) != (f.serving == servingLost):
			return "hides or invents a lost quorum"
		case state == StateServing && f.serving != servingYes:
			return "calls a cluster serving that does not serve"
		}
		return ""
	})
	const about = "Asked by `kubectl druid get` and `kubectl druid status` on the computer of a user. The tables of druid decide the conditions that it reads."
	rulestest.Section(t, "../../docs/reference/decisions.md", "headlines", "The state of a cluster in the plugin: internal/view.headlines", about,
		headlines, cases)
}
