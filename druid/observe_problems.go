package druid

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/manifests"
)

// Patience with what passes by itself in a healthy start: a Pod waits for its volume and its node, a member for its
// peers. Only what lasts is a problem for a person.
const (
	schedulingPatience = 10 * time.Second
	startPatience      = 30 * time.Second
)

// observeProblems finds what keeps a member from starting.
func (r *Reconciler) observeProblems(ctx context.Context, from source, o *observation) error {
	for _, m := range o.observed.Members {
		if !m.Listed {
			continue
		}
		found, err := r.volumeProblem(ctx, from, o, m)
		if err != nil {
			return err
		}
		if found == nil {
			found = r.podProblem(o, m)
		}
		if found == nil {
			found = r.startProblem(o, m)
		}
		if found == nil {
			found = agentProblem(m)
		}
		if found != nil {
			found.Member = m.Name
			o.observed.Problems = append(o.observed.Problems, *found)
		}
	}
	return nil
}

// volumeProblem: the claim gets no volume.
func (r *Reconciler) volumeProblem(ctx context.Context, from source, o *observation, m plan.Member) (*plan.Problem, error) {
	claim := o.claims[m.Name]
	pending := m.Claim == plan.ClaimPresent && claim.Status.Phase == corev1.ClaimPending
	if !r.still(o, m, "claim pending", m.ClaimUID, pending, schedulingPatience) {
		return nil, nil
	}
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	if class == "" {
		return &plan.Problem{Reason: v1alpha1.ReasonVolumePending, Message: "its PersistentVolumeClaim gets no volume: " +
			"spec.storage.storageClassName is not set; is there a default StorageClass?"}, nil
	}
	err := from.Get(ctx, types.NamespacedName{Name: class}, &storagev1.StorageClass{})
	switch {
	case err == nil:
		return &plan.Problem{Reason: v1alpha1.ReasonVolumePending, Message: fmt.Sprintf(
			"its PersistentVolumeClaim gets no volume of StorageClass %s; kubectl describe pvc %s reports why", class, m.Name)}, nil
	case client.IgnoreNotFound(err) == nil:
		return &plan.Problem{Reason: v1alpha1.ReasonStorageClassMissing, Message: fmt.Sprintf(
			"StorageClass %s does not exist; create it, or make the EtcdCluster again with one that does", class)}, nil
	default:
		return nil, fmt.Errorf("get StorageClass %s: %w", class, err)
	}
}

// podProblem: no node takes the Pod, or a container cannot be started. The kubelet's own words change with every attempt;
// those here do not, so that a cluster that is stuck costs no writes.
func (r *Reconciler) podProblem(o *observation, m plan.Member) *plan.Problem {
	pod := o.pods[m.Name]
	unscheduled := m.Pod == plan.PodUnscheduled && podCondition(pod, corev1.PodScheduled).Status == corev1.ConditionFalse
	if r.still(o, m, "unscheduled", m.PodUID, unscheduled, schedulingPatience) {
		return &plan.Problem{Reason: v1alpha1.ReasonPodUnschedulable, Message: fmt.Sprintf(
			"no node takes its Pod; kubectl describe pod %s reports why", m.Name)}
	}
	if pod == nil || m.Pod&(plan.PodUnstarted|plan.PodLive) == 0 {
		return nil
	}
	for _, s := range containerStatuses(pod) {
		if p := containerProblem(pod, s); p != nil {
			return p
		}
	}
	return nil
}

var (
	cannotPull  = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
	cannotStart = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)

func containerProblem(pod *corev1.Pod, s corev1.ContainerStatus) *plan.Problem {
	waiting, ended := s.State.Waiting, s.LastTerminationState.Terminated
	if s.State.Terminated != nil {
		ended = s.State.Terminated
	}
	switch {
	case waiting != nil && slices.Contains(cannotPull, waiting.Reason):
		return &plan.Problem{Reason: v1alpha1.ReasonImagePullFailed, Message: imageAdvice(pod, s.Name)}
	case waiting != nil && slices.Contains(cannotStart, waiting.Reason):
		return &plan.Problem{Reason: v1alpha1.ReasonContainerCannotStart, Message: fmt.Sprintf(
			"container %s cannot be started: %s", s.Name, oneLine(waiting.Message))}
	case ended == nil || ended.ExitCode == 0 || s.State.Running != nil:
		return nil
	case slices.Contains(cannotStart, ended.Reason):
		return &plan.Problem{Reason: v1alpha1.ReasonContainerCannotStart, Message: fmt.Sprintf(
			"container %s cannot be started: %s", s.Name, oneLine(ended.Message))}
	default:
		words := lastWords(ended.Message)
		if words == "" {
			words = fmt.Sprintf("kubectl logs %s -c %s --previous reports why", pod.Name, s.Name)
		}
		return &plan.Problem{Reason: v1alpha1.ReasonContainerCannotStart, Message: fmt.Sprintf(
			"container %s ended with exit code %d: %s", s.Name, ended.ExitCode, words)}
	}
}

func imageAdvice(pod *corev1.Pod, container string) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container && container == manifests.ContainerEtcd {
			return fmt.Sprintf("image %s cannot be pulled; check spec.image, spec.version and spec.imagePullSecrets", c.Image)
		}
		if c.Name == container {
			return fmt.Sprintf("image %s cannot be pulled; check druid's --agent-image and spec.imagePullSecrets", c.Image)
		}
	}
	return "the image of container " + container + " cannot be pulled"
}

// lastWords are what a container's last log line says, without what differs in every line: the time would make each end
// of a container that ends again and again a new message.
func lastWords(message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	last := lines[len(lines)-1]
	var line struct{ Msg, Err, Error string }
	if json.Unmarshal([]byte(last), &line) != nil || line.Msg == "" {
		return oneLine(message)
	}
	if line.Err == "" {
		line.Err = line.Error
	}
	return oneLine(strings.TrimSuffix(line.Msg+": "+line.Err, ": "))
}

// maxWords of what a container said last: a condition is read by people.
const maxWords = 300

func oneLine(message string) string {
	words := strings.Join(strings.Fields(message), " ")
	if len(words) > maxWords {
		words = strings.ToValidUTF8(words[:maxWords], "") + "…"
	}
	return words
}

// startProblem: the agent says why it does not start etcd, and goes on saying it.
func (r *Reconciler) startProblem(o *observation, m plan.Member) *plan.Problem {
	waits := m.Readable && m.Says.Reason != "" && m.Pod == plan.PodLive && !m.EtcdReady
	if !r.still(o, m, "waits", m.PodUID+" "+m.Says.Rule, waits, startPatience) {
		return nil
	}
	return &plan.Problem{Reason: v1alpha1.ReasonMemberCannotStart, Message: m.Says.Reason}
}

// patient says whether what has held for longer than patience. What is looked at only now and then needs no end: a clock that a look
// does not ask for is forgotten with that look.
func (r *Reconciler) patient(o *observation, m plan.Member, what string, holds bool, patience time.Duration) bool {
	lasts, left := r.memory.lasts(fact{o.cluster.UID, m.Name + " " + what}, holds, patience, r.now())
	o.lookAgain(left)
	return lasts
}
