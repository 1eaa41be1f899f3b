package druid

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// servesClients says whether the Pod is in the client Service.
func (s *stage) servesClients(name string) bool {
	s.Helper()
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil {
		s.Fatal(err)
	}
	return pod.Labels[manifests.LabelServing] == manifests.LabelTrue
}

// serve waits until all Pods are in the client Service, or none is, and still count as voters.
func (s *stage) serve(names []string, want bool) {
	s.Helper()
	s.eventually("set the labels", func() error {
		for _, name := range names {
			var pod corev1.Pod
			if err := s.fetch(name, &pod); err != nil {
				return err
			}
			if pod.Labels[manifests.LabelServing] == manifests.LabelTrue != want || pod.Labels[manifests.LabelVoter] != manifests.LabelTrue {
				return fmt.Errorf("Pod %s has %v, want serving %t and a voter", name, pod.Labels, want)
			}
		}
		return nil
	})
}

// TestCutOffChangesOnlyClients: clients are cut off and nothing else changes.
func TestCutOffChangesOnlyClients(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	s.serve(names, true)
	pods := s.uids(names, &corev1.Pod{})

	s.patchCluster(`{"spec":{"clientService":{"serving":false}}}`)
	s.serve(names, false)
	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClientsCutOff)
	s.condition("demo", v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	s.reported(v1alpha1.ReasonClientsCutOff, "")
	s.minAvailable(2)

	// Members that join meanwhile get no clients either.
	s.scale("demo", 5)
	five := s.members("demo", 5)
	s.form("demo", five)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	s.serve(five, false)

	s.patchCluster(`{"spec":{"clientService":{"serving":true}}}`)
	s.serve(five, true)
	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonQuorate)
	s.reported(v1alpha1.EventClientsServed, "")
	if diff := cmp.Diff(pods, s.uids(names, &corev1.Pod{})); diff != "" {
		t.Errorf("Pods were replaced (-before +after):\n%s", diff)
	}
}
