package druid

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

const mergePatch = "application/merge-patch+json"

// expandable gives the members' claims a StorageClass that lets volumes grow, or does not, and volumes of the size that they
// request. It waits until the API server acts by that.
func (s *stage) expandable(names []string, allow bool) {
	s.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Provisioner: "test", AllowVolumeExpansion: &allow,
	}
	if err := s.Create(s.Context(), class); err != nil {
		s.Fatal(err)
	}
	for _, name := range names {
		s.patchClaim(name, `{"spec":{"storageClassName":"`+class.Name+`"}}`)
		s.resized(name, "4Gi")
		if allow {
			s.eventually("the API server knows the StorageClass", func() error {
				larger := client.RawPatch(mergePatch, []byte(`{"spec":{"resources":{"requests":{"storage":"5Gi"}}}}`))
				return s.Patch(s.Context(), s.claim(name), larger, client.DryRunAll)
			})
		}
	}
}

func (s *stage) claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
}

func (s *stage) patchClaim(name, patch string) {
	s.Helper()
	if err := s.Patch(s.Context(), s.claim(name), client.RawPatch(mergePatch, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// resized is what reports a volume that has the size now.
func (s *stage) resized(name, size string) {
	s.Helper()
	s.claimStatus(name, func(status *corev1.PersistentVolumeClaimStatus) {
		status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		status.Conditions = nil
	})
}

// resizing is what a driver says while the volume does not have its size yet.
func (s *stage) resizing(name string, kinds ...corev1.PersistentVolumeClaimConditionType) {
	s.Helper()
	s.claimStatus(name, func(status *corev1.PersistentVolumeClaimStatus) {
		status.Conditions = nil
		for _, kind := range kinds {
			status.Conditions = append(status.Conditions, corev1.PersistentVolumeClaimCondition{
				Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
			})
		}
	})
}

func (s *stage) claimStatus(name string, change func(*corev1.PersistentVolumeClaimStatus)) {
	s.Helper()
	s.eventually("report claim "+name, func() error {
		claim := s.claim(name)
		if err := s.fetch(name, claim); err != nil {
			return err
		}
		change(&claim.Status)
		return s.Status().Update(s.Context(), claim)
	})
}

// requests says whether each claim requests the size.
func (s *stage) requests(names []string, size string) error {
	for _, name := range names {
		claim := s.claim(name)
		if err := s.fetch(name, claim); err != nil {
			return err
		}
		if got := claim.Spec.Resources.Requests.Storage().String(); got != size {
			return fmt.Errorf("claim %s requests %s, want %s", name, got, size)
		}
	}
	return nil
}

// quota is that of the member's Pod.
func (c *clocked) quota(name string) string {
	c.Helper()
	var pod corev1.Pod
	if err := c.fetch(name, &pod); err != nil {
		c.Fatal(err)
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, arg := range slices.Concat(container.Command, container.Args) {
			if value, found := strings.CutPrefix(arg, "--quota-backend-bytes="); found {
				return value
			}
		}
	}
	return "none"
}

// isGoing fails unless these and no others of the members' Pods terminate.
func (c *clocked) isGoing(when string, names []string, want ...string) {
	c.Helper()
	if got := c.going(names); !slices.Equal(got, want) {
		c.Fatalf("%s %v were deleted, want %v", when, got, want)
	}
}

// returns is the life of a Pod that was deleted, until others may go.
func (c *clocked) returns(names []string, name string) *corev1.Pod {
	c.Helper()
	pod := c.replace(name)
	c.kubelet(name, true)
	c.renew(names, slices.Index(names, name))
	c.pass()
	return pod
}

func (c *clocked) notExpanded() string {
	c.Helper()
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		c.Fatal(err)
	}
	d := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDegraded)
	if d == nil || d.Reason != v1alpha1.ReasonVolumeNotExpanded {
		return ""
	}
	return d.Message
}
