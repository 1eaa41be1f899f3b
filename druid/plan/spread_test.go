package plan

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

func TestSpreadIsCalledGoodOnlyWhereNoNodeHoldsTwoVoters(t *testing.T) {
	checkTable(t, spreadRows, "spread", "Condition Spread: druid/plan.spreadRows", func(f spreadFacts, d rules.Decision[conditionVerdict]) string {
		status, reason := d.Verdict.parts()
		switch {
		case f.paused == rules.Yes:
			if status != metav1.ConditionUnknown || reason != v1alpha1.ReasonPaused {
				return "speaks of a cluster that is paused"
			}
		case (status == metav1.ConditionTrue) != (f.placement == placementApart):
			return "wrong of voters that are apart"
		case (status == metav1.ConditionFalse) != (f.placement == placementTogether):
			return "wrong of voters that share a node"
		case (reason == v1alpha1.ReasonQuorumOnOneNode) != (f.placement == placementTogether && f.stake == rules.Yes):
			return "wrong of the quorum"
		}
		return ""
	})
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
		"each on its own":       {[]func(*Observed){on("n1", "n2", "n3")}, metav1.ConditionTrue, v1alpha1.ReasonMembersSpread, "a node of its own"},
		"two together":          {[]func(*Observed){on("n1", "n1", "n3")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode, "voters c-a and c-b are on node n1: the loss of that node would cost the quorum"},
		"all together":          {[]func(*Observed){on("n1", "n1", "n1")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode, "voters c-a and c-b and c-c are on node n1"},
		"one has no node":       {[]func(*Observed){on("n1", "n2", "")}, metav1.ConditionUnknown, v1alpha1.ReasonMembersNotPlaced, "c-c"},
		"two, and one has none": {[]func(*Observed){on("n1", "n1", "")}, metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode, "then delete its Pod while AllMembersReady is True"},
		"a learner next to one": {[]func(*Observed){on("n1", "n1", "n3"), learner}, metav1.ConditionTrue, v1alpha1.ReasonMembersSpread, ""},
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
