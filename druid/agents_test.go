package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

const (
	youngerImage = "ghcr.io/etcd-druid/druid:younger"
	// completed is what a kubelet says of a sidecar that it ended, also while it cannot pull the image of the next one.
	completed = "Completed"
)

// agentStatus is what the kubelet says of the member's agent: a container of that ID that runs, or that waits for a reason. The image is
// what stands before a slash.
func (s *stage) agentStatus(name, id, waits string) {
	s.Helper()
	s.eventually("report the agent of "+name, func() error {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil {
			return err
		}
		image, _, _ := strings.Cut(id, "/")
		status := corev1.ContainerStatus{Name: manifests.ContainerAgent, ContainerID: id, Image: "agent", ImageID: image}
		switch waits {
		case "":
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
		case completed:
			status.State.Terminated = &corev1.ContainerStateTerminated{Reason: completed}
		default:
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: waits}
		}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{status}
		return s.Status().Update(s.Context(), &pod)
	})
}

// patchPod is what someone else writes into the member's Pod.
func (s *stage) patchPod(name, patch string) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.Patch(s.Context(), pod, client.RawPatch("application/strategic-merge-patch+json", []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// withAgents are the members in whose Pods install and agent are of the image, and etcd is of its own.
func (s *stage) withAgents(image string, names []string) (found []string) {
	s.Helper()
	for _, name := range names {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil {
			s.Fatal(err)
		}
		var images []string
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			images = append(images, container.Image)
		}
		if slices.Equal(images, []string{image, image, "gcr.io/etcd-development/etcd:v3.7.3"}) {
			found = append(found, name)
		}
	}
	return found
}

// attended is a stable cluster of three, whose agents run.
func attended(t *testing.T) (*clocked, []string) {
	t.Helper()
	c, names := renewed(t)
	for _, name := range names {
		c.agentStatus(name, "first", "")
	}
	return c, names
}

// have fails unless these members' agents are of the image, and no Pod was deleted or made.
func (c *clocked) have(when, image string, names []string, want ...string) {
	c.Helper()
	if got := c.withAgents(image, names); !slices.Equal(got, want) {
		c.Fatalf("%s %v have image %s, want %v: %+v", when, got, image, want, c.progressing())
	}
	c.isGoing(when, names)
}

// TestAgentUpdateInPlaceLeaderLast: agents are replaced in Pods that run on, the leader's agent last.
func TestAgentUpdateInPlaceLeaderLast(t *testing.T) {
	c, names := attended(t)
	before := c.uids(names, &corev1.Pod{})
	c.manifests.AgentImage = youngerImage
	done := []string{}
	for i, name := range []string{names[1], names[2], names[0]} {
		c.pass()
		done = append(done, name)
		slices.Sort(done)
		c.have("at once", youngerImage, names, done...)
		if p := c.progressing(); p.Reason != v1alpha1.ReasonUpdatingAgents || !strings.HasPrefix(p.Message, fmt.Sprintf("%d of 3 agents updated", i)) {
			t.Errorf("condition is %+v", p)
		}
		c.renew(names, slices.Index(names, name))
		c.after(2 * stable)
		c.have("while the former agent runs and renews", youngerImage, names, done...)
		c.agentStatus(name, "first/crashed", "")
		c.renew(names, slices.Index(names, name))
		c.after(2 * stable)
		c.renew(names, slices.Index(names, name))
		c.after(2 * stable)
		c.have("while the former agent, which crashed, runs again", youngerImage, names, done...)
		c.agentStatus(name, "second", "")
		c.after(2 * stable)
		c.have("while the new one has not renewed", youngerImage, names, done...)
		c.renew(names, slices.Index(names, name))
		c.pass()
		c.have("the moment that it did", youngerImage, names, done...)
		c.after(stable)
	}
	c.have("in the end", youngerImage, names, names...)
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
		t.Errorf("in the end it is %+v", p)
	}
	if got := c.uids(names, &corev1.Pod{}); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the Pods are %v, were %v", got, before)
	}
	// A druid that takes over has nothing to do, and nothing to report.
	writes := c.resourceVersion()
	successor := c.stage.clocked(func(r *Reconciler) { r.manifests.AgentImage = youngerImage })
	for range 5 {
		for i := range names {
			c.renew(names, i)
		}
		successor.after(stable)
	}
	if got := c.resourceVersion(); got != writes {
		t.Errorf("a druid that took over wrote the EtcdCluster: %+v", c.progressing())
	}
}

func (c *clocked) resourceVersion() string {
	c.Helper()
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		c.Fatal(err)
	}
	return cluster.ResourceVersion
}

// TestBadAgentImageReachesOneMember: an agent image that is no good reaches one member and is corrected.
func TestBadAgentImageReachesOneMember(t *testing.T) {
	for state, reason := range map[string]string{"ImagePullBackOff": v1alpha1.ReasonImagePullFailed, completed: v1alpha1.ReasonAgentNotRunning} {
		t.Run(state, func(t *testing.T) { badAgentImage(t, state, reason) })
	}
}

func badAgentImage(t *testing.T, state, reason string) {
	t.Helper()
	c, names := attended(t)
	affected := names[1]
	c.manifests.AgentImage = "registry.invalid/druid"
	c.pass()
	c.agentStatus(affected, "first", state)
	c.pass()
	for range 7 {
		c.renew(names, 0)
		c.renew(names, 2)
		c.after(stable)
	}
	c.have("in the end", "registry.invalid/druid", names, affected)
	p := c.progressing()
	if p.Reason != v1alpha1.ReasonAgentUpdateBlocked || !strings.Contains(p.Message, "of image registry.invalid/druid, does not start. Correct --agent-image") {
		t.Errorf("condition is %+v", p)
	}
	if d := c.degraded(t); d.Reason != reason || !strings.Contains(d.Message, "registry.invalid/druid") {
		t.Errorf("condition is %+v", d)
	}
	// A druid that takes over knows it too.
	successor := c.stage.clocked(func(r *Reconciler) { r.manifests.AgentImage = "registry.invalid/druid" })
	successor.after(stable)
	c.have("by another druid", "registry.invalid/druid", names, affected)

	c.manifests.AgentImage = agentImage
	c.pass()
	c.have("when it is corrected", agentImage, names, names...)
	c.after(stable)
	if p := c.progressing(); state == completed && p.Reason != v1alpha1.ReasonUpdatingAgents {
		t.Errorf("the corrected image is given no time: %+v", p)
	}
	c.agentStatus(affected, "second", "")
	c.pass()
	c.renew(names, 1)
	c.after(stable)
	c.have("at last", agentImage, names, names...)
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
		t.Errorf("in the end it is %+v", p)
	}
}

// TestUnknownAgentsNotUpdated: agents that are not known to be outdated are left alone.
func TestUnknownAgentsNotUpdated(t *testing.T) {
	c, names := attended(t)
	// A Pod whose images a webhook sends to a mirror, and one of a druid that did not write the annotation.
	c.patchPod(names[1], `{"spec":{"initContainers":[{"name":"install","image":"mirror/druid:test"},{"name":"agent","image":"mirror/druid:test"}]}}`)
	c.patchPod(names[2], `{"metadata":{"annotations":{"`+manifests.AnnotationAgentImage+`":null}}}`)
	c.after(stable)
	c.have("before", agentImage, names, names[0], names[2])
	if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
		t.Errorf("condition is %+v", p)
	}
	// Another image reaches either, and what others put into the Pod stays as it is.
	c.manifests.AgentImage = youngerImage
	c.pass()
	c.have("then", youngerImage, names, names[1])
}

// agentComes is what a kubelet does about an agent that was given another image.
func (s *stage) agentComes(name string) {
	s.Helper()
	var pod corev1.Pod
	if s.fetch(name, &pod) != nil {
		return
	}
	if replaced, runs := manifests.AgentReplaced(&pod); replaced && runs == manifests.AgentRunsNot {
		s.agentStatus(name, "second", "")
	}
}

// agentGiven says whether the member's Pod bears the image that druid was given.
func (s *stage) agentGiven(name string) error {
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil {
		return err
	}
	if pod.Annotations[manifests.AnnotationAgentImage] != agentImage {
		return errors.New("the agent is of another image")
	}
	return nil
}

// TestAgentsFollowWithoutAQuorum: while no quorum serves, no agent renews, and each is replaced after the one before wrote its version.
func TestAgentsFollowWithoutAQuorum(t *testing.T) {
	c, names := attended(t)
	for _, name := range names {
		c.kubelet(name, false)
		c.agentStatus(name, "first", "")
		c.says(name, leases.Prefix+"agent-version", "v1")
	}
	c.after(2 * time.Hour) // the Leases are stale
	c.manifests.AgentImage = youngerImage
	for i, name := range names {
		c.pass()
		c.have("at once", youngerImage, names, names[:i+1]...)
		c.agentStatus(name, "second", "")
		c.after(2 * lingerTimeout)
		c.have("while the new one has not written its version", youngerImage, names, names[:i+1]...)
		if d := c.degraded(t); strings.Contains(d.Message, "does not start") {
			t.Errorf("an agent that runs is late: %+v", d)
		}
		c.says(name, leases.Prefix+"agent-version", "v2")
		c.pass()
		c.have("the moment that it did", youngerImage, names, names[:i+1]...)
		c.after(stable)
	}
	c.have("in the end", youngerImage, names, names...)
}
