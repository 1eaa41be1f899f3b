package druid

import (
	"errors"
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// A NetworkPolicy follows spec.networkPolicy: druid creates it, repairs it, changes it, and deletes it.
func TestANetworkPolicyFollowsTheSpec(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(1)
	name, live := manifests.NetworkPolicyName("demo"), &networkingv1.NetworkPolicy{}
	if err := s.gone(name, live); err != nil {
		t.Error(err)
	}
	has := func(what string, check func(networkingv1.NetworkPolicySpec) bool) {
		t.Helper()
		s.eventually(what, func() error {
			*live = networkingv1.NetworkPolicy{}
			if err := s.fetch(name, live); err != nil {
				return err
			}
			if !check(live.Spec) {
				return fmt.Errorf("it is %+v", live.Spec)
			}
			return nil
		})
	}
	asApplied := func(spec networkingv1.NetworkPolicySpec) bool {
		return len(spec.Ingress) == 4 && len(spec.Ingress[0].From) == 1 && len(spec.Ingress[0].From[0].PodSelector.MatchLabels) == 2 &&
			len(spec.PodSelector.MatchLabels) == 2 && len(spec.PolicyTypes) == 1
	}
	s.patchCluster(`{"spec":{"networkPolicy":{}}}`)
	has("create it", asApplied)
	for what, spoil := range map[string]func(){
		"a rule that permits everything": func() { live.Spec.Ingress = append(live.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{}) },
		"peers from everywhere":          func() { live.Spec.Ingress[0].From = nil },
		"more peers":                     func() { live.Spec.Ingress[0].From[0].PodSelector.MatchLabels = nil },
		"other Pods":                     func() { live.Spec.PodSelector.MatchLabels = map[string]string{"app": "other"} },
		"no rule":                        func() { live.Spec.Ingress = nil },
		"no connection from the members": func() { live.Spec.PolicyTypes = append(live.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) },
	} {
		s.edit(name, live, spoil)
		has("repair it after "+what, asApplied)
	}
	s.patchCluster(`{"spec":{"networkPolicy":{"clients":[{"podSelector":{}}]}}}`)
	has("restrict clients", func(spec networkingv1.NetworkPolicySpec) bool {
		return len(spec.Ingress) == 4 && len(spec.Ingress[1].From) == 3
	})
	s.eventually("rest", func() error { return s.rests() })
	s.patchCluster(`{"spec":{"networkPolicy":null}}`)
	s.eventually("delete it", func() error { return s.gone(name, live) })
	s.eventually("rest again", func() error { return s.rests() })
}

// A NetworkPolicy of the same name that the cluster does not own is neither changed nor deleted.
func TestANetworkPolicyOfAnotherOwnerStays(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	name := manifests.NetworkPolicyName("demo")
	other := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}}
	other.Labels = manifests.Labels("demo")
	if err := s.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	version := other.ResourceVersion
	s.whole(1)
	s.patchCluster(`{"spec":{"networkPolicy":{}}}`)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonObjectNotOwned)
	s.patchCluster(`{"spec":{"networkPolicy":null}}`)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	s.eventually("the policy is as it was", func() error {
		if err := s.fetch(name, other); err != nil {
			return err
		}
		if other.ResourceVersion != version {
			return errors.New("it was changed")
		}
		return nil
	})
}
