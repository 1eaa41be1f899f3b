package druid

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// larger is an edit by which the quota grows with the volumes.
const larger = `{"spec":{"storage":{"size":"8Gi"},"etcd":{"quotaBackendBytes":"6Gi"}}}`

func gib(n int64) string { return strconv.FormatInt(n<<30, 10) }

func TestVolumesGrowInPlaceAndNoQuotaIsAboveThem(t *testing.T) {
	c, names := renewed(t)
	c.expandable(names, true)
	claims := c.uids(names, &corev1.PersistentVolumeClaim{})
	c.patchCluster(larger)
	c.pass()
	if err := c.requests(names, "8Gi"); err != nil {
		t.Fatal(err)
	}
	if notified := strings.Join(c.notified(), "\n"); strings.Count(notified, v1alpha1.EventPVCExpanded) != len(names) {
		t.Errorf("events are\n%s", notified)
	}
	c.after(settled)
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
	c.after(settled)
	c.isGoing("when its volume had grown", names, names[1])
	c.returns(names, names[1])
	if got := c.quota(names[1]); got != gib(6) {
		t.Errorf("on 8 GiB the quota is %s", got)
	}
	c.after(settled)
	c.isGoing("while the other volumes grow", names)

	for _, name := range []string{names[2], names[0]} {
		c.resized(name, "8Gi")
		c.after(settled)
		c.isGoing("when its volume had grown", names, name)
		c.returns(names, name)
		if got := c.quota(name); got != gib(6) {
			t.Errorf("on 8 GiB the quota of %s is %s", name, got)
		}
	}
	c.after(settled)
	c.isGoing("in the end", names)
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
		t.Errorf("in the end it is %+v", p)
	}
	if got := c.uids(names, &corev1.PersistentVolumeClaim{}); len(got) != len(claims) || got[names[0]] != claims[names[0]] {
		t.Errorf("the claims are %v, were %v", got, claims)
	}
}

func TestDriverThatGrowsAtAMountGetsOnePodAfterAnother(t *testing.T) {
	c, names := renewed(t)
	c.expandable(names, true)
	c.patchCluster(`{"spec":{"storage":{"size":"8Gi"}}}`) // the quota is 2Gi, before and after
	c.pass()
	for _, name := range names {
		c.resizing(name, corev1.PersistentVolumeClaimFileSystemResizePending)
	}
	c.pass()
	c.isGoing("at once, when the kubelet may do without", names)
	c.after(mountPatience)
	c.isGoing("after that", names, names[1])
	pod := c.returns(names, names[1])
	if got := pod.Annotations[manifests.AnnotationMountedFor]; got != "8Gi" {
		t.Errorf("the Pod says that it was made for %q", got)
	}

	// This one fails to grow, and another Pod would not help it. The next goes nevertheless, and grows.
	c.resizing(names[1], corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimNodeResizeError)
	c.pass()
	c.after(startPatience)
	c.isGoing("then", names, names[2])
	if notified := c.notExpanded(); !strings.Contains(notified, names[1]) || !strings.Contains(notified, "the node fails") {
		t.Errorf("condition says %q", notified)
	}
	c.returns(names, names[2])
	c.resized(names[2], "8Gi")
	c.after(settled)
	c.isGoing("last", names, names[0])
	c.returns(names, names[0])
	c.resized(names[0], "8Gi")
	c.after(2 * mountPatience)
	c.isGoing("for a second time", names)
	c.resized(names[1], "8Gi")
	c.after(settled)
	c.isGoing("in the end", names)
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled || c.notExpanded() != "" {
		t.Errorf("in the end it is %+v, and %q", p, c.notExpanded())
	}
}

func TestVolumesThatCannotGrowAreReportedAndHoldNothingUp(t *testing.T) {
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
			c.after(startPatience)
		}},
		"no one does it": {allow: true, words: "check that the driver's resizer runs", then: func(c *clocked, _ []string) {
			c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"122m"}}}}`)
			c.after(growthPatience / 2)
			c.isGoing("while volumes may grow", c.members("demo", 3))
			c.after(growthPatience)
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
			if notified := c.notExpanded(); !strings.Contains(notified, "its volume has 4Gi and spec.storage.size is 8Gi: ") || !strings.Contains(notified, test.words) {
				t.Errorf("condition says %q, want %q", notified, test.words)
			}
			c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"123m"}}}}`)
			c.after(settled)
			c.isGoing("for another edit", names, names[1])
			c.returns(names, names[1])
			if got := c.quota(names[1]); got != gib(2) {
				t.Errorf("on 4 GiB the quota is %s", got)
			}
		})
	}
}
