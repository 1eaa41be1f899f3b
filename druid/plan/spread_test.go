package plan

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/golden"
)

func TestSpreadIsCalledGoodOnlyWhereNoNodeHoldsTwoVoters(t *testing.T) {
	count := map[string]int{}
	for _, p := range bits(anyPlacement) {
		for _, stake := range bits(anyAnswer) {
			status, reason, rule := judgeSpread(p, stake, rules.Yes)
			if count[rule]++; status != metav1.ConditionUnknown || reason != v1alpha1.ReasonPaused {
				t.Errorf("%d %d, paused: %s is %s", p, stake, rule, status)
			}
			status, reason, rule = judgeSpread(p, stake, rules.No)
			count[rule]++
			switch {
			case rule == "uncovered":
				t.Errorf("%d %d: no row covers it", p, stake)
			case (status == metav1.ConditionTrue) != (p == placementApart):
				t.Errorf("%d %d: %s is %s", p, stake, rule, status)
			case (status == metav1.ConditionFalse) != (p == placementTogether):
				t.Errorf("%d %d: %s is %s", p, stake, rule, status)
			case (reason == v1alpha1.ReasonQuorumOnOneNode) != (p == placementTogether && stake == rules.Yes):
				t.Errorf("%d %d: %s is for %s", p, stake, rule, reason)
			}
		}
	}
	var names []string
	var rows [][]string
	for _, r := range spreadRows {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, cell(r.placement, anyPlacement, []string{"apart", "together", "unclear"}), cell(r.stake, anyAnswer, []string{"no", "yes"}), answer(r.paused),
			string(r.status), r.reason, fmt.Sprint(count[r.name]),
		})
	}
	fired(t, count, names...)
	golden.Section(t, "../../docs/decisions.md", "spread", "## Condition Spread: plan.spreadRows\n\n"+
		"`placement`: how the voters stand on the nodes; `stake`: the loss of one node would cost the quorum.\n\n"+
		golden.Table([]string{"rule", "placement", "stake", "paused", "status", "reason", "cases"}, rows))
}

func TestSpreadNamesWhoSharesANode(t *testing.T) {
	on := func(nodes ...string) func(*Observed) {
		return func(o *Observed) {
			for i, node := range nodes {
				o.Members[i].On = node
			}
		}
	}
	learner := func(o *Observed) { o.Members[1].Says.Role, o.Members[1].Voter = "Learner", false }
	for name, test := range map[string]struct {
		change []func(*Observed)
		status metav1.ConditionStatus
		reason string
		words  string
	}{
		"each on its own":       {[]func(*Observed){on("n1", "n2", "n3")}, metav1.ConditionTrue, v1alpha1.ReasonMembersApart, "a node of its own"},
		"two together":          {[]func(*Observed){on("n1", "n1", "n3")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode, "voters c-a and c-b are on node n1: the loss of that node would cost the quorum"},
		"all together":          {[]func(*Observed){on("n1", "n1", "n1")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode, "voters c-a and c-b and c-c are on node n1"},
		"one has no node":       {[]func(*Observed){on("n1", "n2", "")}, metav1.ConditionUnknown, v1alpha1.ReasonMembersNotPlaced, "c-c"},
		"two, and one has none": {[]func(*Observed){on("n1", "n1", "")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode, "and delete its Pod when AllMembersReady is True"},
		"a learner beside one":  {[]func(*Observed){on("n1", "n1", "n3"), learner}, metav1.ConditionTrue, v1alpha1.ReasonMembersApart, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := meta.FindStatusCondition(after(v1alpha1.EtcdClusterStatus{}, test.change...).Conditions, v1alpha1.ConditionSpread)
			if c == nil || c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.words) {
				t.Errorf("got %+v, want %s %s with %q", c, test.status, test.reason, test.words)
			}
		})
	}
	five := spreadOf([]Member{{Name: "a", Voter: true, On: "n1"}, {Name: "b", Voter: true, On: "n1"}, {Name: "c", Voter: true, On: "n2"}, {Name: "d", Voter: true, On: "n3"}, {Name: "e", Voter: true, On: "n4"}})
	if p, stake := five.placement(), five.stake(); p != placementTogether || stake != rules.No {
		t.Errorf("two of five on a node are %d with the quorum at stake %d, want together and not at stake", p, stake)
	}
}
