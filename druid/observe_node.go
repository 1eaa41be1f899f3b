package druid

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

// observeNode reads the node of a member that is unreachable or stuck, or that no node accepts. It always reads live:
// druid watches neither nodes nor volumes, because there are many, and reads one only if something is wrong.
func (r *Reconciler) observeNode(ctx context.Context, o *observation, m *policy.Member) error {
	pod := o.pods[m.Name]
	homeless := m.Pod == policy.PodUnscheduled && podCondition(pod, corev1.PodScheduled).Status == corev1.ConditionFalse
	homeless = r.still(o, *m, "homeless", m.PodUID, homeless, schedulingTimeout)
	bound := m.PodUID != "" && pod.Spec.NodeName != ""
	if !homeless && !(bound && (m.NodeLost || m.Stuck)) {
		return nil
	}
	o.lookAgain(nodeInterval)
	if err := r.observeVolume(ctx, o, m, bound); err != nil || m.NodeName == "" {
		return err
	}
	if gone := m.Node == policy.NodeGone; !r.still(o, *m, "node gone", m.NodeName, gone, r.grace) && gone {
		m.Node = policy.NodeVanished
	}
	if away := m.Node == policy.NodeAway; !r.still(o, *m, "node away", m.NodeName, away, nodeTimeout) && away {
		m.Node = policy.NodeUnknown
	}
	return nil
}

// observeSilent finds an unreachable node under a Pod whose etcd counts as ready. The node controller does not mark a
// Pod that was not ready when its node failed, for example because its agent was down, and the last state of etcd
// stays.
func (r *Reconciler) observeSilent(ctx context.Context, o *observation, m *policy.Member) error {
	pod := o.pods[m.Name]
	if !m.Expired || m.NodeLost || m.Pod != policy.PodLive || pod.Spec.NodeName == "" {
		return nil
	}
	node, err := r.findNode(ctx, pod.Spec.NodeName, pin{}, true)
	if err != nil {
		return err
	}
	if node.state&(policy.NodeAway|policy.NodeOutOfService|policy.NodeGone) != 0 {
		m.NodeLost, m.Idle = true, false
	}
	o.lookAgain(nodeInterval)
	return nil
}

// observeVolume finds the node of the Pod or of the volume, and says whether only that node can mount the volume.
func (r *Reconciler) observeVolume(ctx context.Context, o *observation, m *policy.Member, bound bool) error {
	volume, to, err := r.volumeOf(ctx, o, m)
	if err != nil {
		return err
	}
	m.Volume, m.NodeName = volume, to.host
	if bound {
		m.NodeName = o.pods[m.Name].Spec.NodeName
	}
	if m.NodeName == "" {
		return nil // any node may take it
	}
	node, err := r.findNode(ctx, m.NodeName, to, bound)
	if err != nil {
		return err
	}
	m.Node = node.state
	if m.Volume == policy.VolumeLocal && !to.allows(m.NodeName, node.labels) {
		m.Volume = policy.VolumeUnknown // the Pod runs where its volume cannot be, as far as we understand
	}
	return nil
}

// found is the result of a look at a node.
type found struct {
	state  policy.NodeState
	labels map[string]string
}

// findNode reads the Node called name. If none has that name, it looks for the hostname label, unless the Pod names
// the node.
func (r *Reconciler) findNode(ctx context.Context, name string, pin pin, bound bool) (found, error) {
	var node corev1.Node
	err := r.live.Get(ctx, types.NamespacedName{Name: name}, &node)
	switch {
	case apierrors.IsForbidden(err):
		return found{state: policy.NodeUnknown}, nil // this installation may not read Nodes: their state is unknown
	case err == nil:
		return found{nodeState(&node), node.Labels}, nil
	case !apierrors.IsNotFound(err):
		return found{}, fmt.Errorf("get Node %s: %w", name, err)
	case bound || pin.byName:
		return found{state: policy.NodeGone}, nil
	}
	var nodes corev1.NodeList
	err = r.live.List(ctx, &nodes, client.MatchingLabels{corev1.LabelHostname: name}, client.Limit(1))
	switch {
	case apierrors.IsForbidden(err), err == nil && len(nodes.Items) > 0:
		return found{state: policy.NodeUnknown}, nil
	case err != nil:
		return found{}, fmt.Errorf("list Nodes of host %s: %w", name, err)
	}
	return found{state: policy.NodeGone}, nil
}

// nodeState returns the state of a node. The taint counts only on a node that is not ready, as in the garbage
// collector of Kubernetes.
func nodeState(node *corev1.Node) policy.NodeState {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	declared := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	switch {
	case ready:
		return policy.NodeReady
	case declared:
		return policy.NodeOutOfService
	default:
		return policy.NodeAway
	}
}

// volumeOf says where the claim's volume can be mounted.
func (r *Reconciler) volumeOf(ctx context.Context, o *observation, m *policy.Member) (policy.VolumeState, pin, error) {
	if m.Claim == policy.ClaimUnwanted && m.On != "" {
		return policy.VolumeLocal, pin{m.On, true}, nil // it is memory or a directory of that node
	}
	claim := o.claims[m.Name]
	if m.Claim != policy.ClaimPresent || claim.Spec.VolumeName == "" {
		return policy.VolumeUnknown, pin{}, nil
	}
	var volume corev1.PersistentVolume
	err := r.live.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName}, &volume)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return policy.VolumeUnknown, pin{}, nil
	case err != nil:
		return policy.VolumeUnknown, pin{}, fmt.Errorf("get PersistentVolume %s: %w", claim.Spec.VolumeName, err)
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID || volume.Spec.ClaimRef.Namespace != o.cluster.Namespace:
		return policy.VolumeUnknown, pin{}, nil
	}
	if to := pinOf(&volume); to.host != "" {
		return policy.VolumeLocal, to, nil
	}
	return policy.VolumeMovable, pin{}, nil
}

// pin is the one node on which a volume is: its name, or the value of its label kubernetes.io/hostname.
type pin struct {
	host   string
	byName bool
}

func (p pin) allows(node string, labels map[string]string) bool {
	if labels == nil || p.byName { // a Node that is gone has no labels; its name and its host were most likely one
		return p.host == node
	}
	return labels[corev1.LabelHostname] == p.host
}

// pinOf reads the volume's node affinity. It accepts only the two ways to name one node that each Kubernetes cluster
// knows. A label of a zone or of a driver can match a future node, and druid does not abandon such a volume.
func pinOf(volume *corev1.PersistentVolume) pin {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return pin{}
	}
	var to pin
	for i, term := range affinity.Required.NodeSelectorTerms {
		p := pinOfTerm(term)
		if i > 0 && p != to {
			return pin{}
		}
		to = p
	}
	return to
}

func pinOfTerm(term corev1.NodeSelectorTerm) pin {
	one := func(r corev1.NodeSelectorRequirement, key string) bool {
		return r.Key == key && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
	}
	for _, r := range term.MatchFields {
		if one(r, metav1.ObjectNameField) {
			return pin{r.Values[0], true}
		}
	}
	for _, r := range term.MatchExpressions {
		if one(r, corev1.LabelHostname) {
			return pin{r.Values[0], false}
		}
	}
	return pin{}
}

const (
	// lingerTimeout is how long an object without its counterpart is tolerated. A Pod gets its node and its image in
	// less time, and an object that is being deleted is gone by then.
	lingerTimeout = time.Minute
	// nodeTimeout is how long a node may be unreachable before druid reports it: most nodes are back from a reboot by then.
	nodeTimeout = 2 * time.Minute
	// nodeInterval between two looks at a node that is not reachable: druid does not watch nodes.
	nodeInterval = 30 * time.Second
	// finishTimeout is how long a member must be ready before druid replaces the Pod of another one. Clients return to
	// it in this time, and a member that cannot serve them fails within moments.
	finishTimeout = 10 * time.Second
)

// observeRepairing finds the members that do not recover by themselves, by druid's own clock. A druid that just
// started has seen nothing yet.
func (r *Reconciler) observeRepairing(ctx context.Context, o *observation) error {
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if m.Lingers = r.lastsLonger(o, *m, "is no member", !m.Listed, lingerTimeout); !m.Listed {
			continue
		}
		if err := r.observeSilent(ctx, o, m); err != nil {
			return err
		}
		m.Blocked = blocked(o.pods[m.Name])
		r.observeStuck(o, m)
		comes := m.Pod&(policy.PodLive|policy.PodTerminating) != 0 // also on a node that is away: it may be the one that joins
		m.Lingers = r.lastsLonger(o, *m, "is not coming", !comes, max(lingerTimeout, r.leaseTimeout))
		m.Absent = r.lastsLonger(o, *m, "is not live", m.Pod != policy.PodLive, lingerTimeout)
		if err := r.observeNode(ctx, o, m); err != nil {
			return err
		}
	}
	o.observeTrust() // what a member that has just started runs with is not known
	o.observeSchemes()
	return nil
}

// observeStuck watches a member that is not up. The clock starts again with each Pod, when a Pod is deleted, and when
// a learner makes progress.
func (r *Reconciler) observeStuck(o *observation, m *policy.Member) {
	up := m.Pod == policy.PodLive && m.EtcdReady && !m.NodeLost
	learner := m.Readable && m.Reports.Role == leases.RoleLearner
	progress := fmt.Sprintf("%s %t", m.PodUID, m.Pod == policy.PodTerminating)
	if learner {
		progress += " " + m.Reports.Raft.String()
	}
	restarts := m.Reports.Repairing.Restarts
	if m.Reports.Repairing.PodUID == m.PodUID && restarts > 0 {
		restarts-- // the last one is announced, and this is the Pod that it is to delete
	}
	maxWait := policy.MaxWait(r.grace, restarts)
	wellKept := learner && m.Liveness == leases.Live // its etcd is healthy, and waits for its vote
	m.Stuck = r.still(o, *m, "down", progress, !up && !wellKept, maxWait)
	marked := m.Readable && m.Reports.PodUID == m.PodUID // so it is this Pod's agent that renews
	m.Stable = r.still(o, *m, "stable", m.PodUID, up && !learner && marked && m.Liveness == leases.Live, finishTimeout)
	if m.Reports.Repairing != (leases.Repairing{}) {
		m.Steady = r.still(o, *m, "up", m.PodUID, up && !learner, maxWait)
	}
}

// still measures how long something holds while value stays the same.
func (r *Reconciler) still(o *observation, m policy.Member, what, value string, holds bool, maxWait time.Duration) bool {
	f := fact{o.cluster.UID, m.Name + " " + what}
	r.memory.note(f, value)
	lasts, left := r.memory.lasts(f, holds, maxWait, r.now())
	o.lookAgain(left)
	return lasts
}

// blocked says whether a container of the Pod waits for its image or its configuration. The kubelet keeps trying, and
// a new Pod would wait for the same.
func blocked(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(containerStatuses(pod), func(s corev1.ContainerStatus) bool {
		waiting := s.State.Waiting
		return waiting != nil && (slices.Contains(cannotPull, waiting.Reason) || waiting.Reason == "CreateContainerConfigError")
	})
}
