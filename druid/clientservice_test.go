package druid

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// A change of the client Service restarts nothing. A family that Kubernetes refuses is reported until it is corrected.
func TestTheClientServiceChangesAndNoPodDoes(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	s.serve(names, true)
	pods := s.uids(names, &corev1.Pod{})
	service := func(want func(corev1.ServiceSpec) bool) {
		s.Helper()
		s.eventually("change the client Service", func() error {
			var live corev1.Service
			if err := s.fetch(manifests.ClientServiceName("demo"), &live); err != nil {
				return err
			}
			if !want(live.Spec) {
				return fmt.Errorf("it is %+v", live.Spec)
			}
			return nil
		})
	}

	s.patchCluster(`{"spec":{"clientService":{"type":"LoadBalancer","ipFamilyPolicy":"PreferDualStack"}}}`)
	service(func(spec corev1.ServiceSpec) bool {
		return spec.Type == corev1.ServiceTypeLoadBalancer && len(spec.IPFamilies) == 2
	})

	s.patchCluster(`{"spec":{"clientService":{"ipFamilyPolicy":"SingleStack","ipFamilies":["IPv6"]}}}`)
	refused := s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonAPIRequestRejected)
	if !strings.Contains(refused.Message, "Service") || !strings.Contains(refused.Message, "ipFamilies[0]") {
		t.Errorf("the condition says %q", refused.Message)
	}
	s.serve(names, true)

	s.patchCluster(`{"spec":{"clientService":null}}`)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	service(func(spec corev1.ServiceSpec) bool { return spec.Type == corev1.ServiceTypeClusterIP })
	if diff := cmp.Diff(pods, s.uids(names, &corev1.Pod{})); diff != "" {
		t.Errorf("Pods were replaced (-before +after):\n%s", diff)
	}
}
