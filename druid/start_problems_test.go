package druid

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// TestStartProblemsReported: what keeps a member from starting is reported.
func TestStartProblemsReported(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	t.Run("a StorageClass that does not exist, until it does", func(t *testing.T) {
		cluster := s.createClusterWith("nowhere", func(c *v1alpha1.EtcdCluster) {
			c.Spec.Storage.StorageClassName = new("missing-" + s.namespace)
		})
		condition := s.condition("nowhere", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonStorageClassMissing)
		if class := *cluster.Spec.Storage.StorageClassName; !strings.Contains(condition.Message, class) {
			t.Errorf("message %q does not name %s", condition.Message, class)
		}
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: *cluster.Spec.Storage.StorageClassName}, Provisioner: "test"}
		if err := s.Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		s.binder(s.members("nowhere", 1)[0])
		s.condition("nowhere", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	})
	t.Run("an image that cannot be pulled", func(t *testing.T) {
		s.createCluster("imageless", 1)
		name := s.members("imageless", 1)[0]
		s.binder(name)
		s.waits(name, "ImagePullBackOff")
		condition := s.condition("imageless", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonImagePullFailed)
		if !strings.Contains(condition.Message, "gcr.io/etcd-development/etcd:v3.7.3") || !strings.Contains(condition.Message, name) {
			t.Errorf("message %q does not name image and member", condition.Message)
		}
	})
	t.Run("a container that cannot be started", func(t *testing.T) {
		s.createCluster("startless", 1)
		name := s.members("startless", 1)[0]
		s.binder(name)
		s.waits(name, "RunContainerError")
		s.condition("startless", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonContainerCannotStart)
	})
}

// waits is a kubelet that cannot start the etcd container.
func (s *stage) waits(name, reason string) {
	s.Helper()
	s.kubelet(name, false)
	s.eventually("report "+reason, func() error {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil {
			return err
		}
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "exec: permission denied"}}
		return s.Status().Update(s.Context(), &pod)
	})
}
