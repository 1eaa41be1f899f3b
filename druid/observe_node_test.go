package druid

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/druid/plan"
)

func TestOnlyAHostPinsAVolume(t *testing.T) {
	term := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	tests := map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  pin
	}{
		"no affinity":         {nil, pin{}},
		"a host":              {[]corev1.NodeSelectorTerm{term(corev1.LabelHostname, "a")}, pin{host: "a"}},
		"one of two hosts":    {[]corev1.NodeSelectorTerm{term(corev1.LabelHostname, "a", "b")}, pin{}},
		"a host or another":   {[]corev1.NodeSelectorTerm{term(corev1.LabelHostname, "a"), term(corev1.LabelHostname, "b")}, pin{}},
		"a zone":              {[]corev1.NodeSelectorTerm{term(corev1.LabelTopologyZone, "z")}, pin{}},
		"a zone, or a host":   {[]corev1.NodeSelectorTerm{term(corev1.LabelTopologyZone, "z"), term(corev1.LabelHostname, "a")}, pin{}},
		"a host, or a zone":   {[]corev1.NodeSelectorTerm{term(corev1.LabelHostname, "a"), term(corev1.LabelTopologyZone, "z")}, pin{}},
		"a label of a driver": {[]corev1.NodeSelectorTerm{term("topology.example.com/node", "a")}, pin{}},
		"a node's name": {[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"},
		}}}}, pin{"a", true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{}
			if test.terms != nil {
				volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}
			}
			if got := pinOf(volume); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestTaintCountsOnlyOnANodeThatIsNotReady(t *testing.T) {
	for _, test := range []struct {
		ready  corev1.ConditionStatus
		taints []corev1.Taint
		want   plan.NodeState
	}{
		{corev1.ConditionTrue, nil, plan.NodeReady},
		{corev1.ConditionTrue, []corev1.Taint{outOfService}, plan.NodeReady},
		{corev1.ConditionUnknown, nil, plan.NodeAway},
		{corev1.ConditionFalse, []corev1.Taint{{Key: "other"}}, plan.NodeAway},
		{corev1.ConditionUnknown, []corev1.Taint{outOfService}, plan.NodeOutOfService},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: test.taints}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: test.ready}},
		}}
		if got := nodeState(node); got != test.want {
			t.Errorf("%+v: got %d", test, got)
		}
	}
}
