package druid

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// larger is an edit by which the quota grows with the volumes.
const larger = `{"spec":{"storage":{"size":"8Gi"},"etcd":{"quotaBackendBytes":"6Gi"}}}`

func gib(n int64) string { return strconv.FormatInt(n<<30, 10) }

// TestVolumesGrowBeforeQuota: volumes grow in place and no quota is above them.
func TestVolumesGrowBeforeQuota(t *testing.T) {
	c, names := renewed(t)
	c.expandable(names, true)
	claims := c.uids(names, &corev1.PersistentVolumeClaim{})
	c.patchCluster(larger)
	c.pass()
	if err := c.requests(names, "8Gi"); err != nil {
		t.Fatal(err)
	}
	if reported := strings.Join(c.reported(), "\n"); strings.Count(reported, v1alpha1.EventPVCExpanded) != len(names) {
		t.Errorf("events are\n%s", reported)
	}
	c.after(stable)
	c.isGoing("before any volume had grown", names)
	if p := c.progressing(); p.Reason != v1alpha1.ReasonRollingUpdate || !strings.Contains(p.Message, "the volume of member "+names[0]+" grows") {
		t.Errorf("condition is %+v", p)
	}

	// A Pod that is lost meanwhile, and one whose volume has grown.
	lost := &corev1.Pod{}
	lost.Namespace, lost.Name = c.namespace, names[2]
	if err := c.Delete(t.Context(), lost, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.returns(names, names[2])
	if got := c.quota(names[2]); got != gib(2) {
		t.Errorf("on 4 GiB the quota is %s", got)
	}
	c.resized(names[1], "8Gi")
	c.after(stable)
	c.isGoing("when its volume had grown", names, names[1])
	c.returns(names, names[1])
	if got := c.quota(names[1]); got != gib(6) {
		t.Errorf("on 8 GiB the quota is %s", got)
	}
	c.after(stable)
	c.isGoing("while the other volumes grow", names)

	for _, name := range []string{names[2], names[0]} {
		c.resized(name, "8Gi")
		c.after(stable)
		c.isGoing("when its volume had grown", names, name)
		c.returns(names, name)
		if got := c.quota(name); got != gib(6) {
			t.Errorf("on 8 GiB the quota of %s is %s", name, got)
		}
	}
	c.after(stable)
	c.isGoing("in the end", names)
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
		t.Errorf("in the end it is %+v", p)
	}
	if got := c.uids(names, &corev1.PersistentVolumeClaim{}); len(got) != len(claims) || got[names[0]] != claims[names[0]] {
		t.Errorf("the claims are %v, were %v", got, claims)
	}
}

// TestGrowAtMountReplacesPodsInTurn: a driver that grows at a mount gets one Pod after another.
func TestGrowAtMountReplacesPodsInTurn(t *testing.T) {
	c, names := renewed(t)
	c.expandable(names, true)
	c.patchCluster(`{"spec":{"storage":{"size":"8Gi"}}}`) // the quota is 2Gi, before and after
	c.pass()
	for _, name := range names {
		c.resizing(name, corev1.PersistentVolumeClaimFileSystemResizePending)
	}
	c.pass()
	c.isGoing("at once, when the kubelet may do without", names)
	c.after(mountTimeout)
	c.isGoing("after that", names, names[1])
	pod := c.returns(names, names[1])
	if got := pod.Annotations[manifests.AnnotationMountedFor]; got != "8Gi" {
		t.Errorf("the Pod says that it was made for %q", got)
	}

	// This one fails to grow, and another Pod would not help it. The next goes nevertheless, and grows.
	c.resizing(names[1], corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimNodeResizeError)
	c.pass()
	c.after(startMaxWait)
	c.isGoing("then", names, names[2])
	if reported := c.notExpanded(); !strings.Contains(reported, names[1]) || !strings.Contains(reported, "the node fails") {
		t.Errorf("condition says %q", reported)
	}
	c.returns(names, names[2])
	c.resized(names[2], "8Gi")
	c.after(stable)
	c.isGoing("last", names, names[0])
	c.returns(names, names[0])
	c.resized(names[0], "8Gi")
	c.after(2 * mountTimeout)
	c.isGoing("for a second time", names)
	c.resized(names[1], "8Gi")
	c.after(stable)
	c.isGoing("in the end", names)
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled || c.notExpanded() != "" {
		t.Errorf("in the end it is %+v, and %q", p, c.notExpanded())
	}
}

// TestUngrowableVolumesReported: volumes that cannot grow are reported and hold nothing up.
func TestUngrowableVolumesReported(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		allow bool
		then  func(c *clocked, names []string)
		words string
	}{
		"the class does not allow it": {words: "set allowVolumeExpansion: true", then: func(*clocked, []string) {}},
		"the driver fails": {allow: true, words: "its driver fails to expand it", then: func(c *clocked, names []string) {
			for _, name := range names {
				c.resizing(name, corev1.PersistentVolumeClaimControllerResizeError)
			}
			c.pass()
			c.after(startMaxWait)
		}},
		"the resizer does not run": {allow: true, words: "Check that the driver's resizer runs", then: func(c *clocked, _ []string) {
			c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"122m"}}}}`)
			c.after(growthTimeout / 2)
			c.isGoing("while volumes may grow", c.members("demo", 3))
			c.after(growthTimeout)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, names := renewed(t)
			c.expandable(names, test.allow)
			c.patchCluster(larger)
			c.pass()
			test.then(c, names)
			if want := map[bool]string{false: "4Gi", true: "8Gi"}[test.allow]; c.requests(names, want) != nil {
				t.Error(c.requests(names, want))
			}
			if reported := c.notExpanded(); !strings.Contains(reported, "its volume has 4Gi and spec.storage.size is 8Gi: ") || !strings.Contains(reported, test.words) {
				t.Errorf("condition says %q, want %q", reported, test.words)
			}
			c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"123m"}}}}`)
			c.after(stable)
			c.isGoing("for another edit", names, names[1])
			c.returns(names, names[1])
			if got := c.quota(names[1]); got != gib(2) {
				t.Errorf("on 4 GiB the quota is %s", got)
			}
		})
	}
}

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
