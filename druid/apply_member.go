package druid

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// create creates the object. An object that exists was created by an earlier attempt if the cluster owns it; otherwise
// it is a conflict.
func (r *Reconciler) create(ctx context.Context, o *observation, kind string, object client.Object) error {
	labels := object.GetLabels()
	err := r.client.Create(ctx, object, client.FieldOwner(control.FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !ours(o.cluster, object) {
		return &foreignError{kind: kind, name: object.GetName()}
	}
	for k, v := range labels {
		if object.GetLabels()[k] != v {
			// Someone removed the labels by which druid finds the object.
			defer crash.Around("restore-labels")()
			return r.patchMetadata(ctx, object, metadataPatch{UID: string(object.GetUID()), Labels: pointers(labels)})
		}
	}
	return nil
}

func pointers(labels map[string]string) map[string]*string {
	all := map[string]*string{}
	for k, v := range labels {
		all[k] = &v
	}
	return all
}

// metadataPatch is a merge patch of an object's metadata. The UID and, if set, the resource version are preconditions.
type metadataPatch struct {
	UID             string             `json:"uid"`
	ResourceVersion string             `json:"resourceVersion,omitempty"`
	Labels          map[string]*string `json:"labels,omitempty"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
	// OwnerReferences replaces the complete list, so a patch with it needs a resource version.
	OwnerReferences *[]metav1.OwnerReference `json:"ownerReferences,omitempty"`
	// Finalizers likewise.
	Finalizers *[]string `json:"finalizers,omitempty"`
}

func (r *Reconciler) patchMetadata(ctx context.Context, object client.Object, patch metadataPatch) error {
	return r.mergePatch(ctx, object, map[string]any{"metadata": patch})
}

// mergePatch patches the object that the metadata name.
func (r *Reconciler) mergePatch(ctx context.Context, object client.Object, patch map[string]any) error {
	return r.patch(ctx, object, types.MergePatchType, patch)
}

func (r *Reconciler) patch(ctx context.Context, object client.Object, kind types.PatchType, patch map[string]any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = r.client.Patch(ctx, object, client.RawPatch(kind, raw), client.FieldOwner(control.FieldOwner))
	if otherUID(err) {
		// To the API server this is an attempt to change the UID; to us it says that the plan is old.
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), err)
	}
	return err
}

// otherUID says whether the API server rejected a patch because the object is not the one of the plan.
func otherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

func (r *Reconciler) createLeaderLease(ctx context.Context, o *observation, _ policy.Step) error {
	defer crash.Around("create-leader-lease")()
	return r.create(ctx, o, "Lease", manifests.LeaderLease(o.cluster))
}

func (r *Reconciler) createMemberLease(ctx context.Context, o *observation, step policy.Step) error {
	defer crash.Around("create-member-lease")()
	return r.create(ctx, o, "Lease", manifests.MemberLease(o.cluster, step.Member))
}

func (r *Reconciler) createClaim(ctx context.Context, o *observation, step policy.Step) error {
	defer crash.Around("create-claim")()
	return r.create(ctx, o, "PersistentVolumeClaim", manifests.PersistentVolumeClaim(o.cluster, step.Member))
}

func (r *Reconciler) createPod(ctx context.Context, o *observation, step policy.Step) error {
	claim, cluster := o.claimOf(step.Member), o.cluster.DeepCopy()
	// A Pod of another version than that of the spec is outdated from the beginning: its spec hash says so.
	cluster.Spec.Version = policy.StartsAs(step.Member, o.desired, o.observed)
	pod, err := manifests.Pod(manifests.OnVolume(cluster, claim), step.Member, r.manifests)
	if err != nil {
		return err
	}
	manifests.MountedFor(pod, claim)
	if mark := o.evaluation.CutFor(); mark != "" {
		pod.Annotations[manifests.AnnotationCutFor] = mark
	}
	crash.Before("create-pod")
	err = r.create(ctx, o, "Pod", pod)
	crash.After("create-pod")
	if err != nil {
		return err
	}
	r.inform(o, v1alpha1.EventPodCreated, step, "Pod %s of a member was created (%s)", step.Member, step.Rule)
	return nil
}

// markLease writes to the member's Lease which Pod and which volume belong to the member. It is a compare-and-set on
// the Lease of the plan, so that a druid that lost its leadership cannot replace a newer Pod with an older one.
func (r *Reconciler) markLease(ctx context.Context, o *observation, step policy.Step) error {
	defer crash.Around("mark-lease")()
	return r.leaseStore(o).BindMember(ctx, step.Member, leases.Version(o.leases[step.Member].ResourceVersion), step.PodUID, step.ClaimUID)
}

// leaseStore writes the Leases of the cluster.
func (r *Reconciler) leaseStore(o *observation) *leases.Store {
	return leases.NewStore(r.leases.Leases(o.cluster.Namespace), o.cluster.Name)
}

func (r *Reconciler) labelPod(ctx context.Context, o *observation, step policy.Step) error {
	patch := metadataPatch{UID: step.PodUID, Labels: map[string]*string{}}
	if step.Guarded() { // a druid that another one replaced must not send clients to a Pod that was cut off since
		patch.ResourceVersion = o.pods[step.Member].ResourceVersion
	}
	if step.Mark != nil {
		patch.Annotations = map[string]*string{manifests.AnnotationCutFor: step.Mark}
		if *step.Mark == "" {
			patch.Annotations[manifests.AnnotationCutFor] = nil
		}
	}
	for label, want := range map[string]*bool{
		manifests.LabelServing: step.Serving, manifests.LabelVoter: step.Voter, manifests.LabelLeader: step.Leader,
	} {
		switch {
		case want == nil:
		case *want:
			patch.Labels[label] = new(manifests.LabelTrue)
		default:
			patch.Labels[label] = nil
		}
	}
	defer crash.Around("label-pod")()
	return client.IgnoreNotFound(r.patchMetadata(ctx, o.pods[step.Member].DeepCopy(), patch))
}

// deletePod deletes exactly the Pod of the plan, if the plan from live reads contains the step too.
func (r *Reconciler) deletePod(ctx context.Context, o *observation, step policy.Step) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.Namespace, Name: step.Member}}
	crash.Before("delete-pod")
	err := client.IgnoreNotFound(r.client.Delete(ctx, pod, client.Preconditions{UID: new(types.UID(step.PodUID))}))
	crash.After("delete-pod")
	if err != nil {
		return fmt.Errorf("delete Pod %s: %w", step.Member, err)
	}
	r.inform(o, v1alpha1.EventPodDeleted, step, "Pod %s of a member was deleted (%s)", step.Member, step.Rule)
	return nil
}

// changeSlot applies the step to the record as it was just read. It returns nil if the record is not what the plan
// saw.
func (r *Reconciler) changeSlot(record leases.Record, step policy.Step) (*leases.Record, error) {
	mark, err := drawMark()
	if err != nil {
		return nil, err
	}
	changed, ok := step.ChangeSlot(record, mark)
	if !ok {
		return nil, nil
	}
	return &changed, nil
}

// drawMark creates a name for a request. Eight random bytes do not repeat.
func drawMark() (string, error) {
	var mark [8]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return "", fmt.Errorf("generate the name of a removal request: %w", err)
	}
	return hex.EncodeToString(mark[:]), nil
}

// reportSlot reports that a record was written.
func (r *Reconciler) reportSlot(o *observation, step policy.Step) {
	if step.Kind == policy.RemoveName {
		r.inform(o, v1alpha1.EventMemberRemoved, step, "Member %s was removed from the cluster (%s)", step.Member, step.Rule)
	}
}

// requestRemoval requests the removal of the member from the agents, under the slot that the record has now. A removal that it
// requests again stays claimed, so that it cannot be canceled: it may have happened.
func (r *Reconciler) requestRemoval(ctx context.Context, o *observation, step policy.Step) error {
	return r.writeMark(o, step, func(store *leases.Store, version leases.Version, step policy.Step) (leases.Member, error) {
		mark := leases.RemovalRequest{State: leases.RemovalRequested, Mark: step.Slot.Mark, At: r.now().UTC().Format(time.RFC3339)}
		if step.Kind == policy.RepeatRemoval {
			mark = repeated(o, step)
		}
		defer crash.Around("request-removal")()
		return store.RequestRemoval(ctx, step.Member, version, mark)
	})
}

// repeated is the claim that replaces an acknowledgement. The ID to remove is the one that the member's own agent reports,
// because the acknowledgement can be forged.
func repeated(o *observation, step policy.Step) leases.RemovalRequest {
	is := slices.IndexFunc(o.observed.Members, func(m policy.Member) bool { return m.Name == step.Member })
	reports := o.observed.Members[is].Reports
	mark := reports.Removal
	mark.State, mark.MemberID, mark.RaftTerm, mark.RaftIndex = leases.RemovalBegun, "", 0, 0
	if reports.ID != 0 {
		mark.MemberID = leases.FormatID(reports.ID)
	}
	return mark
}

// withdrawRemoval deletes a removal request, unless the Lease changed since the live read: an agent might have claimed
// the removal.
func (r *Reconciler) withdrawRemoval(ctx context.Context, o *observation, step policy.Step) error {
	return r.writeMark(o, step, func(store *leases.Store, version leases.Version, step policy.Step) (leases.Member, error) {
		defer crash.Around("withdraw-removal")()
		return store.RequestRemoval(ctx, step.Member, version, leases.RemovalRequest{})
	})
}

// markWriter writes a removal request to the Lease if it still has the version.
type markWriter func(store *leases.Store, version leases.Version, step policy.Step) (leases.Member, error)

func (r *Reconciler) writeMark(o *observation, step policy.Step, write markWriter) error {
	store := r.leaseStore(o)
	_, err := write(store, leases.Version(o.leases[step.Member].ResourceVersion), step)
	switch {
	case errors.Is(err, leases.ErrConflict):
		return apierrors.NewConflict(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}, step.Member, err)
	case errors.Is(err, leases.ErrAbsent), errors.Is(err, leases.ErrUnreadable): // the next pass sees it
		return nil
	}
	return err
}
