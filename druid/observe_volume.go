package druid

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/manifests"
)

const (
	// mountPatience is how long a file system may wait for its node before druid takes it that only a new mount makes it grow.
	// Where the driver can, the kubelet grows one that is mounted within seconds.
	mountPatience = 2 * time.Minute
	// growthPatience is how long Pods wait for a volume that grows. Cloud disks take a minute or two; a volume that no one
	// makes larger must not keep a corrected image from a member permanently.
	growthPatience = 10 * time.Minute
)

// observeVolumes finds how the volumes stand to the size that the spec asks for.
func (r *Reconciler) observeVolumes(ctx context.Context, from source, o *observation) error {
	size := o.cluster.Spec.Storage.Size
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if !m.Listed || m.Claim != plan.ClaimPresent {
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
			room, why = plan.RoomStays, refusal
		}
		m.Room = room
		if room == plan.RoomMounts && m.Make == plan.MakeCurrent {
			m.Make = plan.MakeOutdated
		}
		if room == plan.RoomStays {
			o.observed.Problems = append(o.observed.Problems, notExpanded(m.Name, capacity.String(), size.String(), why))
		}
	}
	return nil
}

// observeExpansion finds whether the claim may request more, where it is to, and else why not.
func (r *Reconciler) observeExpansion(ctx context.Context, from source, o *observation, m *plan.Member) (refusal string, err error) {
	if !m.ClaimSmall || !m.ClaimBound {
		return "", nil
	}
	if refusal, err = refusalOf(ctx, from, o.claims[m.Name]); err != nil {
		return "", err
	}
	m.Expands = plan.ExpansionAllowed
	if refusal != "" {
		m.Expands = plan.ExpansionRefused
		o.lookAgain(conflictPatience) // nothing reports when the class allows it
	}
	return refusal, nil
}

// room is how the volume stands to the size that is asked for, and why it stays small.
func (r *Reconciler) room(o *observation, m plan.Member, claim *corev1.PersistentVolumeClaim, small bool) (plan.Room, string) {
	asked := o.cluster.Spec.Storage.Size.String()
	if pod := o.pods[m.Name]; pod != nil && manifests.IsMountedFor(pod, claim) {
		asked += " of Pod " + m.PodUID // from then on it is another wait
	}
	late := r.still(o, m, "volume small", asked, small, growthPatience)
	room, why := r.growth(o, m, claim, small, asked)
	switch {
	case !small:
		return plan.RoomEnough, ""
	case late && room == plan.RoomGrows:
		return plan.RoomStays, "it does not grow although druid requested it; check that the driver's resizer runs"
	default:
		return room, why
	}
}

func notExpanded(member, capacity, size, why string) plan.Problem {
	return plan.Problem{Reason: v1alpha1.ReasonVolumeNotExpanded, Member: member, Message: fmt.Sprintf(
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
		return "StorageClass " + name + " does not allow volumes to grow; if its driver can expand volumes, set allowVolumeExpansion: true", nil
	case client.IgnoreNotFound(err) == nil:
		return "StorageClass " + name + " does not exist, and volumes do not grow without it", nil
	default:
		return "", fmt.Errorf("get StorageClass %s: %w", name, err)
	}
}

// growth is how far the larger volume is, and what hinders it, by what driver and kubelet write into the claim.
func (r *Reconciler) growth(o *observation, m plan.Member, claim *corev1.PersistentVolumeClaim, small bool, asked string) (plan.Room, string) {
	mounts := small && manifests.GrowsWhenMounted(claim)
	waited := r.still(o, m, "volume mounts", asked, mounts, mountPatience)
	pod := o.pods[m.Name]
	if mounts && m.Pod != plan.PodAbsent && !manifests.IsMountedFor(pod, claim) {
		if waited {
			return plan.RoomMounts, ""
		}
		return plan.RoomGrows, ""
	}
	why := failure(claim)
	if r.still(o, m, "volume fails", asked, small && why != "", startPatience) {
		return plan.RoomStays, why
	}
	return plan.RoomGrows, ""
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
