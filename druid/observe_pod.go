package druid

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func observePod(o *observation, m *policy.Member) error {
	pod := o.pods[m.Name]
	if pod == nil {
		m.Pod = policy.PodAbsent
		return nil
	}
	if !ours(o.cluster, pod) {
		m.Pod = policy.PodForeign
		return nil
	}
	withoutTLS(m, pod)
	m.Pod, m.PodUID = podState(pod), string(pod.UID)
	m.On = pod.Spec.NodeName
	m.EtcdReady = m.Pod != policy.PodEnded && etcdReady(pod)
	m.NodeLost = nodeLost(pod)
	hash, err := o.specHash(m.Name)
	if err != nil {
		return err
	}
	m.Make = makeOf(pod, hash)
	m.Idle = !m.NodeLost && m.Pod == policy.PodLive && etcdStopped(pod)
	m.Serving = pod.Labels[manifests.LabelServing] == manifests.LabelTrue
	m.CutFor = pod.Annotations[manifests.AnnotationCutFor]
	m.Voter = pod.Labels[manifests.LabelVoter] == manifests.LabelTrue
	m.Leader = pod.Labels[manifests.LabelLeader] == manifests.LabelTrue
	return nil
}

// claimOf is the member's claim, nil where there is none that is the cluster's.
func (o *observation) claimOf(member string) *corev1.PersistentVolumeClaim {
	if claim := o.claims[member]; claim != nil && ours(o.cluster, claim) {
		return claim
	}
	return nil
}

// specHash returns the spec hash of a Pod for the current spec and for the volume of the member.
func (o *observation) specHash(member string) (string, error) {
	return manifests.SpecHash(manifests.OnVolume(o.cluster, o.claimOf(member)))
}

func podState(pod *corev1.Pod) policy.PodState {
	switch {
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		if pod.DeletionTimestamp != nil {
			return policy.PodTerminating
		}
		return policy.PodEnded
	case pod.DeletionTimestamp != nil:
		return policy.PodTerminating
	case pod.Spec.NodeName == "":
		return policy.PodUnscheduled
	case slices.ContainsFunc(containerStatuses(pod), everRan):
		return policy.PodLive
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return policy.PodUnstarted
	default: // Running or Unknown without container statuses: a container can have run
		return policy.PodLive
	}
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func everRan(s corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil || s.RestartCount > 0
}

func etcdReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == manifests.ContainerEtcd && s.Ready
	})
}

// makeOf reports for which spec the Pod was made.
func makeOf(pod *corev1.Pod, specHash string) policy.PodMake {
	switch made, reported := pod.Annotations[manifests.AnnotationSpecHash]; {
	case !reported:
		return policy.MakeUnmarked
	case made == specHash:
		return policy.MakeCurrent
	default:
		return policy.MakeOutdated
	}
}

// etcdStopped says that the kubelet runs no etcd container: it waits for its image, or until it may start it again.
func etcdStopped(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == manifests.ContainerEtcd && (s.State.Waiting != nil || s.State.Terminated != nil)
	})
}

// nodeLost reports that the node controller of Kubernetes gave up the node. The node controller then sets only the
// condition Ready of the Pod to False. A kubelet writes Ready and ContainersReady together, unless they differ because
// of a readiness gate of a webhook, which the reason shows. So druid need not watch Nodes, whose status changes all
// the time. A Pod that was not ready before shows no such difference: see observeSilent.
func nodeLost(pod *corev1.Pod) bool {
	ready := podCondition(pod, corev1.PodReady)
	return podCondition(pod, corev1.ContainersReady).Status == corev1.ConditionTrue &&
		ready.Status == corev1.ConditionFalse && ready.Reason != reasonGates
}

// reasonGates is the kubelet's, in k8s.io/kubernetes/pkg/kubelet/status.
const reasonGates = "ReadinessGatesNotReady"

// podCondition returns the status of a condition of the Pod. It is Unknown if the Pod does not have the condition.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{Type: kind, Status: corev1.ConditionUnknown}
}

// agentInterval is the pause between two reads of the Lease of an agent that was replaced. A renewal without new facts
// causes no event.
const agentInterval = 2 * time.Second

// observeAgents compares the agents with the image in the configuration of druid.
func (r *Reconciler) observeAgents(o *observation) {
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		pod := o.pods[m.Name]
		if m.Pod&(policy.PodAbsent|policy.PodForeign) != 0 {
			continue
		}
		m.AgentImage = manifests.AgentImage(pod)
		m.Agent = policy.AgentOutdated
		if m.AgentImage == r.manifests.AgentImage {
			m.Agent = policy.AgentCurrent
		}
		m.AgentIdle = !m.NodeLost && m.Pod == policy.PodLive && agentStopped(pod)
		if m.Listed && m.Agent == policy.AgentCurrent && m.Reports.EverFormed() {
			r.observeArrival(o, m, pod)
		}
	}
}

// agentProblem returns the problem of an agent with a new image that does not start. The kubelet often gives no
// reason: it treats a sidecar that it stopped as completed, also while it cannot pull the next image.
func agentProblem(m policy.Member) *policy.Problem {
	if m.Arrival != policy.ArrivalLate {
		return nil
	}
	return &policy.Problem{Reason: v1alpha1.ReasonAgentNotRunning, Message: fmt.Sprintf(
		"its new agent, of image %s, does not start, and etcd continues to run. Check druid's --agent-image and spec.imagePullSecrets. "+
			"kubectl describe pod %s shows more", m.AgentImage, m.Name)}
}

// agentStopped says that the kubelet runs no agent: it waits for its image, or until it may start it again.
func agentStopped(pod *corev1.Pod) bool {
	status := manifests.AgentStatus(pod)
	return status != nil && (status.State.Waiting != nil || status.State.Terminated != nil)
}

// observeArrival follows an agent that was replaced until it has worked for some seconds. That it works shows in a renewal of its
// member's Lease that was not there when its container was first seen: who was before it cannot have made that. A druid that just
// started knows of no renewal, and takes it for one that is not confirmed yet. While no quorum serves, no agent of a voter renews. Then
// another version of the agent in the Lease shows that it works, and an agent that runs is not late.
func (r *Reconciler) observeArrival(o *observation, m *policy.Member, pod *corev1.Pod) {
	replaced, run := manifests.AgentReplaced(pod)
	if !replaced {
		return
	}
	container, enough := "", finishTimeout
	if run == manifests.AgentRunsAgain {
		// The kubelet ends the former agent within that time, if it is that one.
		container, enough = manifests.AgentStatus(pod).ContainerID, lingerTimeout
	}
	var (
		runs      = run != manifests.AgentRunsNot
		lease     = o.leases[m.Name]
		which     = m.PodUID + " " + m.AgentImage + " " + pod.Annotations[manifests.AnnotationAgentBefore]
		lastKnown = r.memory.renewedSince(fact{o.cluster.UID, m.Name + " agent heard"}, which+container, runs, renewalOf(lease))
		lost      = policy.QuorumLost(o.desired, o.observed)
		wrote     = r.memory.renewedSince(fact{o.cluster.UID, m.Name + " agent version"}, which, true, renewal{version: m.Reports.AgentVersion})
		works     = lastKnown && m.Liveness == leases.Live || lost && wrote
		stable    = r.still(o, *m, "agent renews", which+container, works && runs, enough)
		silent    = !lastKnown && m.Liveness != leases.Unknown && !(lost && runs)
		overdue   = r.still(o, *m, "agent comes", which, silent, lingerTimeout)
		arriving  = policy.ArrivalUnconfirmed
	)
	switch {
	case stable:
		arriving = policy.ArrivalOver
	case overdue, silent && blocked(pod):
		arriving = policy.ArrivalLate
	case silent:
		arriving = policy.ArrivalAwaited
	}
	m.Arrival = arriving
	if arriving != policy.ArrivalOver {
		o.lookAgain(agentInterval)
	}
}

// saveName is that of the EtcdSnapshot before a change of version: another one for each edit, so that none is taken for the backup
// before a later change.
func saveName(cluster *v1alpha1.EtcdCluster, d policy.Desired) string {
	return fmt.Sprintf("%s-before-%s-%d", cluster.Name, strings.ReplaceAll(d.Version, ".", "-"), d.Generation)
}

// observeUpgrade finds what a change of version has come to.
func (r *Reconciler) observeUpgrade(ctx context.Context, from source, o *observation) error {
	if err := observeSave(ctx, from, o); err != nil {
		return err
	}
	return o.observeRemade()
}

// observeSave reads the EtcdSnapshot that precedes a change of version, if there must be one.
func observeSave(ctx context.Context, from source, o *observation) error {
	if !policy.NeedsSave(o.desired, o.observed) {
		return nil
	}
	save, _, err := saveOf(ctx, from, o, saveName(o.cluster, o.desired))
	o.observed.Save = save
	return err
}

// saveOf reads the EtcdSnapshot called name that druid makes before a change.
func saveOf(ctx context.Context, from source, o *observation, name string) (policy.Save, *v1alpha1.EtcdSnapshot, error) {
	save := policy.Save{State: policy.SaveAbsent, Name: name}
	var snapshot v1alpha1.EtcdSnapshot
	err := from.Get(ctx, key(o, save.Name), &snapshot)
	switch {
	case apierrors.IsNotFound(err):
		return save, nil, nil
	case err != nil:
		return policy.Save{}, nil, fmt.Errorf("get EtcdSnapshot %s/%s: %w", o.cluster.Namespace, save.Name, err)
	}
	save.State, save.Message = saveState(o.cluster, &snapshot)
	return save, &snapshot, nil
}

// observeRemade finds out whether the Pod that would replace an outdated one differs from it. Until an etcd with the
// requested version may start on its data, it can be the same.
func (o *observation) observeRemade() error {
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if m.Make != policy.MakeOutdated {
			continue
		}
		pod, claim, cluster := o.pods[m.Name], o.claimOf(m.Name), o.cluster.DeepCopy()
		cluster.Spec.Version = policy.StartsAs(m.Name, o.desired, o.observed)
		hash, err := manifests.SpecHash(manifests.OnVolume(cluster, claim))
		if err != nil {
			return err
		}
		m.Remade = rules.YesNoOf(m.Outruns || m.Room == policy.RoomMounts || makeOf(pod, hash) == policy.MakeOutdated)
	}
	return nil
}

func saveState(cluster *v1alpha1.EtcdCluster, snapshot *v1alpha1.EtcdSnapshot) (policy.SaveState, string) {
	switch {
	case !metav1.IsControlledBy(snapshot, cluster):
		return policy.SaveFailed, "it has another owner"
	case snapshot.DeletionTimestamp != nil:
		return policy.SaveComing, ""
	case snapshot.Status.Phase == v1alpha1.SnapshotSucceeded:
		return policy.SaveDone, ""
	case snapshot.Status.Phase == v1alpha1.SnapshotFailed:
		return policy.SaveFailed, strings.TrimSuffix(snapshot.Status.Message, ".")
	default:
		return policy.SaveComing, ""
	}
}
