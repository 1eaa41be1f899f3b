package druid

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/manifests"
)

func observePod(o *observation, m *plan.Member) error {
	pod := o.pods[m.Name]
	if pod == nil {
		m.Pod = plan.PodAbsent
		return nil
	}
	if !ours(o.cluster, pod) {
		m.Pod = plan.PodForeign
		return nil
	}
	m.Pod, m.PodUID = podState(pod), string(pod.UID)
	m.On = pod.Spec.NodeName
	m.EtcdReady = m.Pod != plan.PodEnded && etcdReady(pod)
	m.NodeLost = nodeLost(pod)
	hash, err := o.specHash(m.Name)
	if err != nil {
		return err
	}
	m.Make = makeOf(pod, hash)
	m.Idle = !m.NodeLost && m.Pod == plan.PodLive && etcdStopped(pod)
	m.Serving = pod.Labels[manifests.LabelServing] == manifests.LabelTrue
	m.Voter = pod.Labels[manifests.LabelVoter] == manifests.LabelTrue
	return nil
}

// claimOf is the member's claim, nil where there is none that is the cluster's.
func (o *observation) claimOf(member string) *corev1.PersistentVolumeClaim {
	if claim := o.claims[member]; claim != nil && ours(o.cluster, claim) {
		return claim
	}
	return nil
}

// specHash is what the member's Pod bears if it was made for the spec as it is, and for the volume that the member has.
func (o *observation) specHash(member string) (string, error) {
	return manifests.SpecHash(manifests.OnVolume(o.cluster, o.claimOf(member)))
}

func podState(pod *corev1.Pod) plan.PodState {
	switch {
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		if pod.DeletionTimestamp != nil {
			return plan.PodTerminating
		}
		return plan.PodEnded
	case pod.DeletionTimestamp != nil:
		return plan.PodTerminating
	case pod.Spec.NodeName == "":
		return plan.PodUnscheduled
	case slices.ContainsFunc(containerStatuses(pod), everRan):
		return plan.PodLive
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return plan.PodUnstarted
	default: // Running or Unknown, without a word of its containers: it is not known that none ran
		return plan.PodLive
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
func makeOf(pod *corev1.Pod, specHash string) plan.PodMake {
	switch made, notified := pod.Annotations[manifests.AnnotationSpecHash]; {
	case !notified:
		return plan.MakeUnmarked
	case made == specHash:
		return plan.MakeCurrent
	default:
		return plan.MakeOutdated
	}
}

// etcdStopped says that the kubelet runs no etcd container: it waits for its image, or until it may start it again.
func etcdStopped(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == manifests.ContainerEtcd && (s.State.Waiting != nil || s.State.Terminated != nil)
	})
}

// nodeLost says that Kubernetes' node controller gave the node up. It then sets the Pod's condition Ready to False, and
// nothing else; a kubelet writes Ready and ContainersReady together, unless a readiness gate that a webhook put in sets them apart,
// of which it reports. So druid need not watch nodes, of which every one writes its status all the time. A Pod that was not ready
// before bears no such mark: see observeSilent.
func nodeLost(pod *corev1.Pod) bool {
	ready := podCondition(pod, corev1.PodReady)
	return podCondition(pod, corev1.ContainersReady).Status == corev1.ConditionTrue &&
		ready.Status == corev1.ConditionFalse && ready.Reason != reasonGates
}

// reasonGates is the kubelet's, in k8s.io/kubernetes/pkg/kubelet/status.
const reasonGates = "ReadinessGatesNotReady"

// podCondition is Unknown where the Pod has none of the kind.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{Type: kind, Status: corev1.ConditionUnknown}
}
