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
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/manifests"
)

// Time for what ends by itself in a healthy start: a Pod waits for its volume and its node, a member for its
// peers. Only what lasts is a problem for an operator.
const (
	schedulingTimeout = 10 * time.Second
	startMaxWait      = 30 * time.Second
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
func (r *Reconciler) volumeProblem(ctx context.Context, from source, o *observation, m policy.Member) (*policy.Problem, error) {
	claim := o.claims[m.Name]
	pending := m.Claim == policy.ClaimPresent && claim.Status.Phase == corev1.ClaimPending
	if !r.still(o, m, "claim pending", m.ClaimUID, pending, schedulingTimeout) {
		return nil, nil
	}
	if claim.Spec.StorageClassName == nil {
		return &policy.Problem{Reason: v1alpha1.ReasonVolumePending, Message: "its PersistentVolumeClaim has no volume. " +
			"spec.storage.storageClassName is not set, so check that there is a default StorageClass"}, nil
	}
	class := *claim.Spec.StorageClassName
	if class == "" {
		return &policy.Problem{Reason: v1alpha1.ReasonVolumePending, Message: fmt.Sprintf("its PersistentVolumeClaim has no volume. "+
			"spec.storage.storageClassName is empty, so create a PersistentVolume without a class, with at least %s and ReadWriteOnce",
			claim.Spec.Resources.Requests.Storage())}, nil
	}
	err := from.Get(ctx, types.NamespacedName{Name: class}, &storagev1.StorageClass{})
	switch {
	case err == nil:
		return &policy.Problem{Reason: v1alpha1.ReasonVolumePending, Message: fmt.Sprintf(
			"its PersistentVolumeClaim gets no volume from StorageClass %s. kubectl describe pvc %s shows the cause", class, m.Name)}, nil
	case client.IgnoreNotFound(err) == nil:
		return &policy.Problem{Reason: v1alpha1.ReasonStorageClassMissing, Message: fmt.Sprintf(
			"StorageClass %s does not exist. Create it, or create the EtcdCluster again with one that exists", class)}, nil
	default:
		return nil, fmt.Errorf("get StorageClass %s: %w", class, err)
	}
}

// podProblem: no node takes the Pod, or a container cannot be started. The kubelet's own words change with every attempt;
// those here do not, so that a cluster that is stuck costs no writes.
func (r *Reconciler) podProblem(o *observation, m policy.Member) *policy.Problem {
	pod := o.pods[m.Name]
	unscheduled := m.Pod == policy.PodUnscheduled && podCondition(pod, corev1.PodScheduled).Status == corev1.ConditionFalse
	if r.still(o, m, "unscheduled", m.PodUID, unscheduled, schedulingTimeout) {
		return &policy.Problem{Reason: v1alpha1.ReasonPodUnschedulable, Message: fmt.Sprintf(
			"no node can run its Pod. kubectl describe pod %s shows the cause", m.Name)}
	}
	if pod == nil || m.Pod&(policy.PodUnstarted|policy.PodLive) == 0 {
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

func containerProblem(pod *corev1.Pod, s corev1.ContainerStatus) *policy.Problem {
	waiting, ended := s.State.Waiting, s.LastTerminationState.Terminated
	if s.State.Terminated != nil {
		ended = s.State.Terminated
	}
	switch {
	case waiting != nil && slices.Contains(cannotPull, waiting.Reason):
		return &policy.Problem{Reason: v1alpha1.ReasonImagePullFailed, Message: imageAdvice(pod, s.Name)}
	case waiting != nil && slices.Contains(cannotStart, waiting.Reason):
		return &policy.Problem{Reason: v1alpha1.ReasonContainerCannotStart, Message: fmt.Sprintf(
			"container %s cannot be started: %s", s.Name, oneLine(waiting.Message))}
	case ended == nil || ended.ExitCode == 0 || s.State.Running != nil:
		return nil
	case slices.Contains(cannotStart, ended.Reason):
		return &policy.Problem{Reason: v1alpha1.ReasonContainerCannotStart, Message: fmt.Sprintf(
			"container %s cannot be started: %s", s.Name, oneLine(ended.Message))}
	default:
		words := lastWords(ended.Message)
		if words == "" {
			words = fmt.Sprintf("kubectl logs %s -c %s --previous shows the cause", pod.Name, s.Name)
		}
		return &policy.Problem{Reason: v1alpha1.ReasonContainerCannotStart, Message: fmt.Sprintf(
			"container %s ended with exit code %d: %s", s.Name, ended.ExitCode, words)}
	}
}

func imageAdvice(pod *corev1.Pod, container string) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container && container == manifests.ContainerEtcd {
			return fmt.Sprintf("image %s cannot be pulled. Check spec.image, spec.version and spec.imagePullSecrets. "+
				"If you set --etcd-image-repository of druid after this Pod was created, delete the Pod", c.Image)
		}
		if c.Name == container {
			return fmt.Sprintf("image %s cannot be pulled. Check druid's --agent-image and spec.imagePullSecrets", c.Image)
		}
	}
	return "the image of container " + container + " cannot be pulled"
}

// lastWords returns the last log line of a container without the parts that differ in every line. With the time in it,
// each restart of a container would change the message.
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

// ruleAuthRequired is the rule of an agent that does not restore a backup in which authentication is on
// (agent/start.RuleAuthRequired).
const ruleAuthRequired = "auth-required-not-configured"

// startProblem returns the problem that the agent reports instead of starting etcd, once it lasts.
func (r *Reconciler) startProblem(o *observation, m policy.Member) *policy.Problem {
	waits := m.Readable && m.Reports.Reason != "" && m.Pod == policy.PodLive && !m.EtcdReady
	if !r.still(o, m, "waits", m.PodUID+" "+m.Reports.Rule, waits, startMaxWait) {
		return nil
	}
	if m.Reports.Rule == ruleAuthRequired {
		return &policy.Problem{Reason: v1alpha1.ReasonAuthRequiredNotConfigured, Message: m.Reports.Reason}
	}
	return &policy.Problem{Reason: v1alpha1.ReasonMemberCannotStart, Message: m.Reports.Reason}
}

// lastsLonger says whether what has held for longer than its time. What is observed only at intervals needs no end: a clock that a look
// does not ask for is forgotten with that look.
func (r *Reconciler) lastsLonger(o *observation, m policy.Member, what string, holds bool, maxWait time.Duration) bool {
	lasts, left := r.memory.lasts(fact{o.cluster.UID, m.Name + " " + what}, holds, maxWait, r.now())
	o.lookAgain(left)
	return lasts
}

const (
	// mountTimeout is how long a file system may wait for its node before druid takes it that only a new mount makes it grow.
	// Where the driver can, the kubelet grows one that is mounted within seconds.
	mountTimeout = 2 * time.Minute
	// growthTimeout is how long Pods wait for a volume that grows. Cloud disks take a minute or two. A volume that is
	// never enlarged must not block a corrected image permanently.
	growthTimeout = 10 * time.Minute
)

// observeVolumes compares the volumes with the size in the spec.
func (r *Reconciler) observeVolumes(ctx context.Context, from source, o *observation) error {
	size := o.cluster.Spec.Storage.Size
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if !m.Listed || m.Claim != policy.ClaimPresent {
			continue
		}
		claim := o.claims[m.Name]
		m.ClaimSmall = claim.Spec.Resources.Requests.Storage().Cmp(size) < 0
		m.ClaimBound = claim.Status.Phase == corev1.ClaimBound
		refusal, err := r.observeExpansion(ctx, from, o, m)
		if err != nil {
			return err
		}
		capacity, _ := manifests.Capacity(claim)
		room, why := r.room(o, *m, claim, capacity.Cmp(size) < 0)
		if refusal != "" {
			room, why = policy.RoomStays, refusal
		}
		m.Room = room
		if room == policy.RoomMounts && m.Make == policy.MakeCurrent {
			m.Make = policy.MakeOutdated
		}
		if room == policy.RoomStays {
			o.observed.Problems = append(o.observed.Problems, notExpanded(m.Name, capacity.String(), size.String(), why))
		}
	}
	return nil
}

// observeExpansion finds whether the claim may request more, where it is to, and else why not.
func (r *Reconciler) observeExpansion(ctx context.Context, from source, o *observation, m *policy.Member) (refusal string, err error) {
	if !m.ClaimSmall || !m.ClaimBound {
		return "", nil
	}
	if refusal, err = refusalOf(ctx, from, o.claims[m.Name]); err != nil {
		return "", err
	}
	m.Expands = policy.ExpansionAllowed
	if refusal != "" {
		m.Expands = policy.ExpansionRefused
		o.lookAgain(control.NamePause) // no event reports that the StorageClass permits it
	}
	return refusal, nil
}

// room compares the volume with the requested size, and says why it stays smaller.
func (r *Reconciler) room(o *observation, m policy.Member, claim *corev1.PersistentVolumeClaim, small bool) (policy.Room, string) {
	asked := o.cluster.Spec.Storage.Size.String()
	if pod := o.pods[m.Name]; pod != nil && manifests.IsMountedFor(pod, claim) {
		asked += " of Pod " + m.PodUID // from then on it is another wait
	}
	late := r.still(o, m, "volume small", asked, small, growthTimeout)
	room, why := r.growth(o, m, claim, small, asked)
	switch {
	case !small:
		return policy.RoomEnough, ""
	case late && room == policy.RoomGrows:
		return policy.RoomStays, "it does not grow although druid requested it. Check that the driver's resizer runs"
	default:
		return room, why
	}
}

func notExpanded(member, capacity, size, why string) policy.Problem {
	return policy.Problem{Reason: v1alpha1.ReasonVolumeNotExpanded, Member: member, Message: fmt.Sprintf(
		"its volume has %s and spec.storage.size is %s: %s. kubectl describe pvc %s shows more. Until it has grown, the quota of its etcd stays within the volume",
		capacity, size, why, member)}
}

// refusalOf says why the API server would not let the claim request more, and is empty where it would.
func refusalOf(ctx context.Context, from source, claim *corev1.PersistentVolumeClaim) (string, error) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return "the claim has no StorageClass, and volumes without one do not grow", nil
	}
	name := *claim.Spec.StorageClassName
	var class storagev1.StorageClass
	switch err := from.Get(ctx, types.NamespacedName{Name: name}, &class); {
	case err == nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion:
		return "", nil
	case err == nil:
		return "StorageClass " + name + " does not allow volumes to grow. If its driver can expand volumes, set allowVolumeExpansion: true", nil
	case client.IgnoreNotFound(err) == nil:
		return "StorageClass " + name + " does not exist, and volumes do not grow without it", nil
	default:
		return "", fmt.Errorf("get StorageClass %s: %w", name, err)
	}
}

// growth is how far the larger volume is, and what hinders it, by what driver and kubelet write into the claim.
func (r *Reconciler) growth(o *observation, m policy.Member, claim *corev1.PersistentVolumeClaim, small bool, asked string) (policy.Room, string) {
	mounts := small && manifests.GrowsWhenMounted(claim)
	waited := r.still(o, m, "volume mounts", asked, mounts, mountTimeout)
	pod := o.pods[m.Name]
	if mounts && m.Pod != policy.PodAbsent && !manifests.IsMountedFor(pod, claim) {
		if waited {
			return policy.RoomMounts, ""
		}
		return policy.RoomGrows, ""
	}
	why := failure(claim)
	if r.still(o, m, "volume fails", asked, small && why != "", startMaxWait) {
		return policy.RoomStays, why
	}
	return policy.RoomGrows, ""
}

// failure is what hinders the driver or the kubelet. It does not quote them: their words may change with every attempt.
func failure(claim *corev1.PersistentVolumeClaim) string {
	status := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	switch {
	case status == corev1.PersistentVolumeClaimControllerResizeInfeasible:
		return "its driver reports that the size is not feasible"
	case status == corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return "its driver reports that the node cannot expand its file system"
	case manifests.ClaimCondition(claim, corev1.PersistentVolumeClaimControllerResizeError) != nil:
		return "its driver fails to expand it"
	case manifests.ClaimCondition(claim, corev1.PersistentVolumeClaimNodeResizeError) != nil:
		return "the node fails to expand its file system"
	default:
		return ""
	}
}
