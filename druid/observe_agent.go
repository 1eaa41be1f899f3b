package druid

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// agentInterval between two looks at the Lease of an agent that was replaced: a renewal that says nothing new is no event.
const agentInterval = 2 * time.Second

// observeAgents finds how the agents stand to the image that druid was given.
func (r *Reconciler) observeAgents(o *observation) {
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		pod := o.pods[m.Name]
		if m.Pod&(plan.PodAbsent|plan.PodForeign) != 0 {
			continue
		}
		m.AgentImage = manifests.AgentImage(pod)
		m.Agent = plan.AgentOutdated
		if m.AgentImage == r.manifests.AgentImage {
			m.Agent = plan.AgentCurrent
		}
		m.AgentIdle = !m.NodeLost && m.Pod == plan.PodLive && agentStopped(pod)
		if m.Listed && m.Agent == plan.AgentCurrent && m.Says.EverFormed() {
			r.observeArrival(o, m, pod)
		}
	}
}

// agentProblem: an agent of another image does not come up. The kubelet often does not say why: a sidecar that it ended counts for it
// as one that has completed, also while the next image cannot be pulled.
func agentProblem(m plan.Member) *plan.Problem {
	if m.Arrival != plan.ArrivalLate {
		return nil
	}
	return &plan.Problem{Reason: v1alpha1.ReasonAgentNotRunning, Message: fmt.Sprintf(
		"its new agent, of image %s, does not come up, and etcd runs on; check druid's --agent-image and spec.imagePullSecrets. "+
			"kubectl describe pod %s reports more", m.AgentImage, m.Name)}
}

// agentStopped says that the kubelet runs no agent: it waits for its image, or until it may start it again.
func agentStopped(pod *corev1.Pod) bool {
	status := manifests.AgentStatus(pod)
	return status != nil && (status.State.Waiting != nil || status.State.Terminated != nil)
}

// observeArrival follows an agent that was replaced until it has worked for some seconds. That it works shows in a renewal of its
// member's Lease that was not there when its container was first seen: who was before it cannot have made that. A druid that just
// started knows of no renewal, and takes it for one that settles.
func (r *Reconciler) observeArrival(o *observation, m *plan.Member, pod *corev1.Pod) {
	replaced, run := manifests.AgentReplaced(pod)
	if !replaced {
		return
	}
	container, enough := "", settlePatience
	if run == manifests.AgentRunsAgain {
		// The kubelet ends the former agent within that time, if it is that one.
		container, enough = manifests.AgentStatus(pod).ContainerID, lingerPatience
	}
	var (
		runs     = run != manifests.AgentRunsNot
		lease    = o.leases[m.Name]
		which    = m.PodUID + " " + m.AgentImage + " " + pod.Annotations[manifests.AnnotationAgentBefore]
		heard    = r.memory.renewedSince(fact{o.cluster.UID, m.Name + " agent heard"}, which+container, runs, renewalOf(lease))
		settled  = r.still(o, *m, "agent settles", which+container, heard && runs && m.Liveness == leases.Live, enough)
		silent   = !heard && m.Liveness != leases.Unknown
		overdue  = r.still(o, *m, "agent comes", which, silent, lingerPatience)
		arriving = plan.ArrivalSettles
	)
	switch {
	case settled:
		arriving = plan.ArrivalOver
	case overdue, silent && blocked(pod):
		arriving = plan.ArrivalLate
	case silent:
		arriving = plan.ArrivalAwaited
	}
	m.Arrival = arriving
	if arriving != plan.ArrivalOver {
		o.lookAgain(agentInterval)
	}
}
