package druid

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// TestHandsThatKeepAnApplyFromBeingTakenAreUndone edits by hand what the API server does not allow next to druid's own fields, and so
// refuses each apply of them: druid repairs the same object, and goes on with what comes after it.
func TestHandsThatKeepAnApplyFromBeingTakenAreUndone(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	s.eventually("rest", func() error { return s.rests() })
	stop()

	budget, service := &policyv1.PodDisruptionBudget{}, &corev1.Service{}
	budgetName, serviceName := manifests.DisruptionBudgetName("demo"), manifests.ClientServiceName("demo")
	s.edit(budgetName, budget, func() {
		budget.Spec.MinAvailable, budget.Spec.MaxUnavailable = nil, new(intstr.FromInt32(3))
	})
	s.edit(serviceName, service, func() {
		service.Spec.Ports[0].Port = 2380
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "more", Port: 80})
	})
	// What the stages after them are to repair.
	pod := &corev1.Pod{}
	s.edit(names[0], pod, func() { delete(pod.Labels, manifests.LabelVoter) })
	address := service.Spec.ClusterIP
	wasBudget, wasService := budget.UID, service.UID
	s.refused(budgetName, "PodDisruptionBudget", "policy/v1", `{"minAvailable":2}`)
	s.refused(serviceName, "Service", "v1", `{"ports":[{"name":"client","port":2379,"protocol":"TCP"}]}`)

	s.startDruid()
	s.beat = func() { s.renew(names) } // it knows no one before it saw a renewal
	s.eventually("repair the budget", func() error {
		if err := s.fetch(budgetName, budget); err != nil {
			return err
		}
		if spec := budget.Spec; spec.MaxUnavailable != nil || spec.MinAvailable == nil || spec.MinAvailable.IntVal != 2 || budget.UID != wasBudget {
			return fmt.Errorf("it is %s, was %s: %+v", budget.UID, wasBudget, spec)
		}
		return nil
	})
	s.eventually("repair the Service", func() error {
		if err := s.fetch(serviceName, service); err != nil {
			return err
		}
		has := func(name string, number int32) bool {
			return slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name && p.Port == number })
		}
		if spec := service.Spec; len(spec.Ports) != 2 || !has("client", config.ClientPort) || !has("more", 80) {
			return fmt.Errorf("its ports are %+v", spec.Ports)
		}
		if service.UID != wasService || service.Spec.ClusterIP != address {
			return fmt.Errorf("it is %s at %s, was %s at %s", service.UID, service.Spec.ClusterIP, wasService, address)
		}
		return nil
	})
	s.eventually("go on with the labels", func() error {
		if err := s.fetch(names[0], pod); err != nil {
			return err
		}
		if pod.Labels[manifests.LabelVoter] != manifests.LabelTrue {
			return errors.New("the Pod is not counted")
		}
		return nil
	})
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	s.beat = nil
	s.eventually("rest again", func() error { return s.rests() })
}

// refused makes sure that the API server does not take an apply of the spec, as druid makes it.
func (s *stage) refused(name, kind, version, spec string) {
	s.Helper()
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
	object.Name, object.Namespace = name, s.namespace
	patch := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q},"spec":%s}`, version, kind, name, s.namespace, spec)
	err := s.Patch(s.Context(), object, client.RawPatch("application/apply-patch+yaml", []byte(patch)),
		client.FieldOwner(fieldOwner), client.ForceOwnership, client.DryRunAll)
	if !apierrors.IsInvalid(err) {
		s.Fatalf("an apply of %s %s: %v, want it to be refused as invalid", kind, name, err)
	}
}
