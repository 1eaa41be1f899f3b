package druid

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// stable is when a member that is ready lets another one go.
const stable = finishTimeout + time.Second

// renewed is a cluster of three that formed, whose first member leads, and whose agents druid has seen renew their Leases.
func renewed(t *testing.T) (*clocked, []string) {
	t.Helper()
	c, names := stuckCluster(t, 3)
	for i := range names {
		c.renew(names, i)
	}
	c.pass()
	c.after(stable)
	return c, names
}

// renew is what the agent of the member does.
func (c *clocked) renew(names []string, i int) {
	c.Helper()
	role := leases.RoleMember
	if i == 0 {
		role = leases.RoleLeader
	}
	c.agent("demo", names[i], uint64(i+1), role)
}

// going are the members whose Pods terminate.
func (c *clocked) going(names []string) (found []string) {
	c.Helper()
	for _, name := range names {
		if c.terminates(name) {
			found = append(found, name)
		}
	}
	return found
}

// replace is what the kubelet, and then druid, do about a Pod that terminates.
func (c *clocked) replace(name string) *corev1.Pod {
	c.Helper()
	c.end(name)
	c.pass()
	var pod corev1.Pod
	if err := c.fetch(name, &pod); err != nil {
		c.Fatal(err)
	}
	return &pod
}

func (c *clocked) progressing() metav1.Condition {
	c.Helper()
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		c.Fatal(err)
	}
	return *meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionProgressing)
}

// pulls says that the kubelet waits for the image of the member's etcd.
func (c *clocked) pulls(name string) {
	c.Helper()
	c.kubelet(name, false)
	var pod corev1.Pod
	if err := c.fetch(name, &pod); err != nil {
		c.Fatal(err)
	}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: manifests.ContainerAgent, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	if err := c.Status().Update(c.Context(), &pod); err != nil {
		c.Fatal(err)
	}
}

// TestRolloutOnePodAtATimeLeaderLast: an edited spec replaces one Pod after another, the leader's last.
func TestRolloutOnePodAtATimeLeaderLast(t *testing.T) {
	c, names := renewed(t)
	claims := c.uids(names, &corev1.PersistentVolumeClaim{})
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"123m"}}}}`)
	for i, name := range []string{names[1], names[2], names[0]} {
		c.pass()
		if got := c.going(names); len(got) != 1 || got[0] != name {
			t.Fatalf("%v were deleted, want %s", got, name)
		}
		var budget policyv1.PodDisruptionBudget
		if err := c.fetch("demo", &budget); err != nil || budget.Spec.MinAvailable.IntValue() != 3 && i < 2 {
			t.Errorf("meanwhile the budget allows evictions: %v, %v", budget.Spec.MinAvailable, err)
		}
		pod := c.replace(name)
		if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "123m" {
			t.Errorf("the new Pod of %s requests %s", name, got)
		}
		c.kubelet(name, true)
		c.renew(names, slices.Index(names, name))
		c.pass()
		if got := c.going(names); len(got) != 0 {
			t.Fatalf("%v were deleted the moment that %s was ready", got, name)
		}
		if want := fmt.Sprintf("%d of 3 members updated", i+1); i < 2 && !strings.HasPrefix(c.progressing().Message, want) {
			t.Errorf("condition is %+v, want %q", c.progressing(), want)
		}
		c.after(stable)
	}
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
		t.Errorf("in the end it is %s: %s", p.Reason, p.Message)
	}
	if got := c.uids(names, &corev1.PersistentVolumeClaim{}); fmt.Sprint(got) != fmt.Sprint(claims) {
		t.Errorf("the claims are %v, were %v", got, claims)
	}
	if got := c.members("demo", 3); !slices.Equal(got, names) {
		t.Errorf("the members are %v, were %v", got, names)
	}
}

// TestBadImageStopsAtOneMember: an image that does not exist takes down one member and is corrected.
func TestBadImageStopsAtOneMember(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(`{"spec":{"image":"registry.invalid/etcd"}}`)
	c.pass()
	affected := names[1]
	if got := c.going(names); len(got) != 1 || got[0] != affected {
		t.Fatalf("%v were deleted, want %s", got, affected)
	}
	c.replace(affected)
	c.pulls(affected)
	c.pass()
	c.after(stable)
	p := c.progressing()
	if p.Reason != v1alpha1.ReasonRollingUpdateBlocked || p.Status != metav1.ConditionFalse || !strings.Contains(p.Message, affected) ||
		!strings.Contains(p.Message, "registry.invalid/etcd") {
		t.Errorf("condition is %+v, want the member and the image", p)
	}
	if d := c.degraded(t); d.Reason != v1alpha1.ReasonImagePullFailed {
		t.Errorf("condition is %+v", d)
	}
	if got := c.going(names); len(got) != 0 {
		t.Fatalf("%v were deleted next to the one that is down", got)
	}

	c.patchCluster(`{"spec":{"image":"gcr.io/etcd-development/etcd"}}`)
	c.pass()
	if got := c.going(names); len(got) != 1 || got[0] != affected {
		t.Fatalf("%v were deleted, want the one that is down, %s", got, affected)
	}
	c.replace(affected)
	c.kubelet(affected, true)
	c.renew(names, 1)
	c.pass()
	c.after(stable)
	if got := c.going(names); len(got) != 0 {
		t.Errorf("%v were deleted, although they run what the spec asks for again", got)
	}
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
		t.Errorf("in the end it is %+v", p)
	}
}

func TestPodsThatAreNotOutdatedAreLeftAlone(t *testing.T) {
	c, names := renewed(t)
	before := c.uids(names, &corev1.Pod{})
	patch := func(name, patch string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
		if err := c.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	// A Pod of a druid that did not write the annotation, and one that a webhook added to.
	patch(names[0], `{"metadata":{"annotations":{"`+manifests.AnnotationSpecHash+`":null}}}`)
	patch(names[1], `{"metadata":{"annotations":{"a.webhook/was":"here"},"labels":{"a.webhook/was":"here"}}}`)
	// What the agents take up while they run.
	c.patchCluster(`{"spec":{"defragmentation":{"disabled":true}}}`)
	c.after(stable)
	if got := c.going(names); len(got) != 0 || fmt.Sprint(c.uids(names, &corev1.Pod{})) != fmt.Sprint(before) {
		t.Fatalf("%v were deleted, Pods are %v, were %v", got, c.uids(names, &corev1.Pod{}), before)
	}
	var pod, other corev1.Pod
	if err := c.fetch(names[0], &pod); err != nil {
		t.Fatal(err)
	}
	if err := c.fetch(names[1], &other); err != nil {
		t.Fatal(err)
	}
	if got, want := pod.Annotations[manifests.AnnotationSpecHash], other.Annotations[manifests.AnnotationSpecHash]; got != want || got == "" {
		t.Errorf("the Pod that did not report was marked with %q, want %q", got, want)
	}
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
		t.Errorf("condition is %+v", p)
	}
	c.patchCluster(`{"spec":{"priorityClassName":"system-cluster-critical"}}`)
	c.pass()
	if got := c.going(names); len(got) != 1 {
		t.Errorf("after an edit %v were deleted", got)
	}
}
