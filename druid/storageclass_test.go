package druid

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// An empty StorageClass forbids provisioning, and no StorageClass asks for the default one. Kubernetes sets the default
// class only in claims in which the field is not set.
func TestEmptyStorageClassIsNotTheDefaultOne(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	tests := map[string]struct {
		class *string
		words string
	}{
		"static":  {new(""), "is empty, so create a PersistentVolume without a class, with at least 4Gi and ReadWriteOnce"},
		"default": {nil, "is not set, so check that there is a default StorageClass"},
	}
	for name, test := range tests {
		s.createClusterWith(name, func(c *v1alpha1.EtcdCluster) { c.Spec.Storage.StorageClassName = test.class })
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{}
			if err := s.fetch(s.members(name, 1)[0], claim); err != nil {
				t.Fatal(err)
			}
			if got := claim.Spec.StorageClassName; (got == nil) != (test.class == nil) || got != nil && *got != *test.class {
				t.Errorf("the claim has the class %s, want %s", quoted(got), quoted(test.class))
			}
			condition := s.condition(name, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonVolumePending)
			if !strings.Contains(condition.Message, test.words) {
				t.Errorf("message is %q, want %q", condition.Message, test.words)
			}
		})
	}
}

func quoted(class *string) string {
	if class == nil {
		return "nil"
	}
	return `"` + *class + `"`
}
