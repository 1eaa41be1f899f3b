package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// placement is the distribution of the voters over the nodes.
type placement uint8

const (
	placementApart    placement = 1 << iota // each has a node of its own
	placementTogether                       // some share a node
	placementUnclear                        // the node of a voter is unknown, and the others share none
)

func (p placement) String() string {
	return rules.Word(p, "apart", "together", "unclear")
}

// spreadFacts is the complete input of spreadRows.
type spreadFacts struct {
	placement placement
	stake     rules.YesNo // the loss of one node would cost the quorum
	paused    rules.YesNo
}

// spreadRows decide condition Spread.
var spreadRows = rules.New(conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonMembersNotPlaced}, []rules.Row[spreadFacts, conditionVerdict]{
	{Name: "paused", When: spreadFacts{paused: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonPaused}},
	{Name: "quorum-on-one-node", When: spreadFacts{placement: placementTogether, stake: rules.Yes, paused: rules.No},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonQuorumOnOneNode}},
	{Name: "co-located", When: spreadFacts{placement: placementTogether, stake: rules.No, paused: rules.No},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonMembersColocated}},
	{Name: "not-placed", When: spreadFacts{placement: placementUnclear, paused: rules.No},
		Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonMembersNotPlaced}},
	{Name: "spread",
		When: spreadFacts{placement: placementApart, paused: rules.No}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonMembersSpread}},
})

// spread is where the voters run: those that share a node, by node, and those without a node.
type spread struct {
	voters   int
	shared   map[string][]string
	homeless []string
}

func spreadOf(listed []Member) spread {
	s := spread{shared: map[string][]string{}}
	for _, m := range listed {
		switch {
		case !m.votes():
			continue
		case m.On == "":
			s.homeless = append(s.homeless, m.Name)
		default:
			s.shared[m.On] = append(s.shared[m.On], m.Name)
		}
		s.voters++
	}
	for node, members := range s.shared {
		if len(members) == 1 {
			delete(s.shared, node)
		}
	}
	return s
}

func (s spread) placement() placement {
	switch {
	case len(s.shared) > 0:
		return placementTogether
	case len(s.homeless) > 0 || s.voters == 0:
		return placementUnclear
	default:
		return placementApart
	}
}

// stake reports whether the loss of one node leaves too few voters for a quorum.
func (s spread) stake() rules.YesNo {
	for _, members := range s.shared {
		if s.voters-len(members) < quorum(s.voters) {
			return rules.Yes
		}
	}
	return rules.No
}

// spreadCondition is condition Spread. It considers nodes only: druid does not watch Nodes, so it does not know their
// zones.
func spreadCondition(p messageContext) (metav1.Condition, bool) {
	s := spreadOf(p.listed)
	d := spreadRows.Decide(spreadFacts{s.placement(), s.stake(), rules.YesNoOf(p.resting() == restingPaused)})
	return metav1.Condition{Status: d.Verdict.status, Reason: d.Verdict.reason, Message: s.sentence(d.Rule, spreadRemedy(p))}, true
}

// spreadEvents reports a change as turnEvents does. Members that never were on one node are nothing to report.
func spreadEvents(was, is metav1.Condition, inform announcer) {
	if is.Status == metav1.ConditionTrue && was.Status != metav1.ConditionFalse {
		return
	}
	turnEvents(was, is, inform)
}

// spreadRemedy says how the voters come to separate nodes. A requested replacement has one voter more for a while.
func spreadRemedy(p messageContext) string {
	if p.replaces() {
		return ". Member " + p.Replace + " leaves, because another member replaces it"
	}
	return ". Make sure that another node can run one of them (resources, taints, spec.affinity), and delete its Pod while condition AllMembersReady is True"
}

func (s spread) sentence(rule, remedy string) string {
	switch rule {
	case "quorum-on-one-node":
		return s.together() + ". The loss of that node would cost the quorum" + remedy
	case "co-located":
		return s.together() + ". The loss of that node would cost more than one member" + remedy
	case "paused":
		return "no member runs"
	case "spread":
		return "each voter is on a separate node"
	default:
		if len(s.homeless) == 0 {
			return "there are no voters yet"
		}
		return "these voters are not on a node yet: " + strings.Join(s.homeless, ", ")
	}
}

// together names the voters that share a node, starting with the node that has the most.
func (s spread) together() string {
	nodes := make([]string, 0, len(s.shared))
	for node := range s.shared {
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b string) int {
		if d := len(s.shared[b]) - len(s.shared[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var words []string
	for _, node := range nodes {
		words = append(words, fmt.Sprintf("voters %s are on node %s", strings.Join(s.shared[node], " and "), node))
	}
	return strings.Join(words, ", ")
}
