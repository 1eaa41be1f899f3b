package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// An etcd that no one spoke of goes before its agent, and what the user says of a resource stands alone.
func TestEtcdRequestsWhatIsNotSpokenOf(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for name, value := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if value != "" {
				all[name] = resource.MustParse(value)
			}
		}
		return all
	}
	tests := map[string]struct {
		requests, limits, want corev1.ResourceList
	}{
		"nothing is asked for":       {want: list("100m", "100Mi")},
		"CPU is requested":           {requests: list("10m", ""), want: list("10m", "100Mi")},
		"memory is requested":        {requests: list("", "1Gi"), want: list("100m", "1Gi")},
		"both are requested":         {requests: list("2", "1Gi"), want: list("2", "1Gi")},
		"CPU is limited":             {limits: list("50m", ""), want: list("", "100Mi")},
		"memory is limited":          {limits: list("", "64Mi"), want: list("100m", "")},
		"one each":                   {requests: list("2", ""), limits: list("", "64Mi"), want: list("2", "")},
		"no CPU is asked for at all": {requests: list("0", ""), want: list("0", "100Mi")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked := corev1.ResourceRequirements{Requests: test.requests, Limits: test.limits}
			before := *asked.DeepCopy()
			got := etcdResources(asked)
			if d := cmp.Diff(test.want, got.Requests); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
			if d := cmp.Diff(before, asked); d != "" {
				t.Errorf("what is asked for was changed:\n%s", d)
			}
			if d := cmp.Diff(before.Limits, got.Limits); d != "" {
				t.Errorf("limits (-want +got):\n%s", d)
			}
		})
	}
}
