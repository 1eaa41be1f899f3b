package druid

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/manifests"
)

func TestHandsOnSharedObjectsAreUndone(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(3)
	s.eventually("rest", func() error { return s.rests() })

	service, role := &corev1.Service{}, &rbacv1.Role{}
	configMap, budget := &corev1.ConfigMap{}, &policyv1.PodDisruptionBudget{}
	tests := map[string]struct {
		name   string
		object client.Object
		spoil  func()
		whole  func() bool
	}{
		"clients are sent to every member": {
			manifests.ClientServiceName("demo"), service,
			func() { delete(service.Spec.Selector, manifests.LabelServing) },
			func() bool { return service.Spec.Selector[manifests.LabelServing] == manifests.LabelTrue },
		},
		"agents may do more": {
			manifests.AgentName("demo"), role,
			func() { role.Rules[0].Verbs = append(role.Rules[0].Verbs, "delete") },
			func() bool { return len(role.Rules[0].Verbs) == 3 },
		},
		"the agents' configuration is nonsense": {
			manifests.AgentName("demo"), configMap,
			func() { configMap.Data[config.ConfigFile] = "nonsense" },
			func() bool { return configMap.Data[config.ConfigFile] != "nonsense" },
		},
		"all members may be evicted": {
			manifests.DisruptionBudgetName("demo"), budget,
			func() { budget.Spec.MinAvailable = new(intstr.FromInt32(0)) },
			func() bool { return budget.Spec.MinAvailable.IntVal == 2 },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s.edit(test.name, test.object, test.spoil)
			s.eventually("undo", func() error {
				if err := s.fetch(test.name, test.object); err != nil {
					return err
				}
				if !test.whole() {
					return fmt.Errorf("it still is as it was edited")
				}
				return nil
			})
		})
	}
	s.eventually("rest again", func() error { return s.rests() })
}
