package druid

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// parallel steps of one stage: a cluster has at most nine members and about as many shared objects.
const parallel = 16

// apply takes the steps stage by stage, and the steps of a stage in parallel. A step that fails holds back only the
// steps that need it (see policy.Troubles).
func (r *Reconciler) apply(ctx context.Context, o *observation, steps []policy.Step) ([]policy.Problem, error) {
	var (
		mu      sync.Mutex
		refused []policy.Problem
		errs    []error
		failed  policy.Troubles
	)
	for len(steps) > 0 {
		var group errgroup.Group
		group.SetLimit(parallel)
		stage := steps[0].Stage
		for len(steps) > 0 && steps[0].Stage == stage {
			mu.Lock()
			step, ok := failed.Leave(steps[0])
			mu.Unlock()
			steps = steps[1:]
			if !ok {
				continue
			}
			group.Go(func() error {
				problems, err := classify(step, r.take(ctx, o, step))
				if err != nil || len(problems) > 0 {
					mu.Lock()
					defer mu.Unlock()
					failed.Add(step)
					refused = append(refused, problems...)
					errs = append(errs, err)
				}
				return nil
			})
		}
		_ = group.Wait() // the errors are in errs
	}
	return refused, errors.Join(errs...)
}

// act takes steps of one kind. For a step that must be confirmed, the observation is from live reads.
type act func(context.Context, *observation, policy.Step) error

// perform confirms the step if that is required, and acts. It does not take a step that the second plan does not
// contain.
func (r *Reconciler) perform(ctx context.Context, o *observation, step policy.Step, act act) error {
	confirmed, step, err := r.confirmed(ctx, o, step)
	if err != nil || confirmed == nil {
		return err
	}
	return act(ctx, confirmed, step)
}

// take takes one step.
func (r *Reconciler) take(ctx context.Context, o *observation, step policy.Step) error {
	act := map[policy.Kind]act{
		policy.ApplyObject:         r.applyObject,
		policy.ApplyBudget:         r.applyBudget,
		policy.DeleteBudget:        r.deleteBudget,
		policy.DeleteObject:        r.deleteObject,
		policy.CreateLeaderLease:   r.createLeaderLease,
		policy.CreateSnapshotLease: r.createSnapshotLease,
		policy.DeleteSnapshotLease: r.deleteSnapshotLease,
		policy.CreateMemberLease:   r.createMemberLease,
		policy.CreateClaim:         r.createClaim,
		policy.CreatePod:           r.createPod,
		policy.MarkLease:           r.markLease,
		policy.LabelPod:            r.labelPod,
		policy.DeletePod:           r.deletePod,
		policy.AdoptPod:            r.adoptPod,
		policy.ReplaceAgent:        r.replaceAgent,
		policy.RequestRemoval:      r.requestRemoval,
		policy.WithdrawRemoval:     r.withdrawRemoval,
		policy.RepeatRemoval:       r.requestRemoval,
		policy.DeleteClaim:         r.deleteClaim,
		policy.RetainClaim:         r.retainClaim,
		policy.DeleteLease:         r.deleteLease,
		policy.TakeClaim:           r.takeClaim,
		policy.ReleaseClaim:        r.releaseClaim,
		policy.GrowClaim:           r.growClaim,
		policy.MarkRepairing:       r.markRepairing,
		policy.CreateSnapshot:      r.createSave,
		policy.OrderUpgrade:        r.orderUpgrade,
		policy.RequestRestorePlan:  r.requestRestorePlan,
		policy.ForgetRestorePlan:   r.requestRestorePlan,
		policy.EndUpgrade:          r.orderUpgrade,
		policy.IssueCertificates:   r.issueCertificates,
		policy.CreateAuthority:     r.createAuthority,
		policy.RequestCertificate:  r.requestCertificate,
	}[step.Kind]
	if act == nil {
		return fmt.Errorf("step %s by rule %s: there is no such step", step.Kind, step.Rule)
	}
	if err := r.perform(ctx, o, step, act); err != nil {
		if control.Passing(err) == 0 {
			r.metrics.failures.WithLabelValues(string(step.Kind), step.Rule).Inc()
		}
		return fmt.Errorf("%s by rule %s: %w", step.Kind, step.Rule, err)
	}
	r.taken(ctx, o, step)
	return nil
}

// taken reports that a step was taken or was no longer needed.
func (r *Reconciler) taken(ctx context.Context, o *observation, step policy.Step) {
	r.metrics.steps.WithLabelValues(string(step.Kind), step.Rule).Inc()
	log := r.log.With("namespace", o.cluster.Namespace, "cluster", o.cluster.Name, "step", step.Kind, "rule", step.Rule)
	if step.Member != "" {
		log = log.With("member", step.Member)
	}
	if step.Object != "" {
		log = log.With("object", step.Object)
	}
	log.InfoContext(ctx, "step taken")
}

// replaceAgent changes the image of the agent in exactly the Pod of the plan, if the plan from live reads contains the
// step too and the Pod did not change since.
func (r *Reconciler) replaceAgent(ctx context.Context, o *observation, step policy.Step) error {
	pod, image := o.pods[step.Member], r.manifests.AgentImage
	crash.Before("replace-agent")
	err := client.IgnoreNotFound(r.patch(ctx, pod.DeepCopy(), types.StrategicMergePatchType, manifests.AgentPatch(pod, image)))
	crash.After("replace-agent")
	if err != nil {
		return fmt.Errorf("set the agent of Pod %s to image %s: %w", step.Member, image, err)
	}
	r.inform(o, v1alpha1.EventAgentReplaced, step, "The agent of member %s gets image %s, and its etcd continues to run (%s)", step.Member, image, step.Rule)
	return nil
}

func (r *Reconciler) createSnapshotLease(ctx context.Context, o *observation, step policy.Step) error {
	lease, err := manifests.SnapshotLease(o.cluster, leases.Component(step.Object))
	if err != nil || lease == nil {
		return err
	}
	defer crash.Around("create-snapshot-lease")()
	return r.create(ctx, o, "Lease", lease)
}

// deleteSnapshotLease deletes the Lease that reported backups that are no longer made. The backups stay.
func (r *Reconciler) deleteSnapshotLease(ctx context.Context, o *observation, step policy.Step) error {
	name := leases.SnapshotName(o.cluster.Name, leases.Component(step.Object))
	live := o.leases[name]
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.Namespace, Name: name}}
	crash.Before("delete-snapshot-lease")
	err := client.IgnoreNotFound(r.client.Delete(ctx, lease, client.Preconditions{UID: &live.UID}))
	crash.After("delete-snapshot-lease")
	if err != nil {
		return fmt.Errorf("delete Lease %s: %w", name, err)
	}
	return nil
}

// markRepairing announces on the member's Lease what druid is about to do with the member, or withdraws that. It is a
// compare-and-set on the Lease of the plan.
func (r *Reconciler) markRepairing(ctx context.Context, o *observation, step policy.Step) error {
	crash.Before("mark-healing")
	err := r.leaseStore(o).AnnounceRepair(ctx, step.Member, leases.Version(o.leases[step.Member].ResourceVersion), *step.Repairing)
	crash.After("mark-healing")
	if err != nil {
		return fmt.Errorf("annotate Lease %s: %w", step.Member, err)
	}
	switch before := repairingOf(o, step.Member); {
	case step.Repairing.Restarts > before.Restarts:
		r.inform(o, v1alpha1.EventPodRestarted, step, "Pod %s is restarted because its etcd was not ready for %s. Restarts in a row: %d",
			step.Member, policy.MaxWait(r.grace, before.Restarts), step.Repairing.Restarts)
	case step.Repairing.ClaimUID != "" && step.Repairing.ClaimUID != before.ClaimUID:
		r.inform(o, v1alpha1.EventVolumeAbandoned, step,
			"The volume of member %s is abandoned, because its node %s was declared lost and no other node can mount the volume",
			step.Member, nodeOf(o, step.Member))
	}
	return nil
}

func repairingOf(o *observation, member string) leases.Repairing {
	for _, m := range o.observed.Members {
		if m.Name == member {
			return m.Reports.Repairing
		}
	}
	return leases.Repairing{}
}

func nodeOf(o *observation, member string) string {
	for _, m := range o.observed.Members {
		if m.Name == member {
			return m.NodeName
		}
	}
	return ""
}

// adoptPod treats a Pod that does not say for which spec it was created as one of the current spec. A later change of
// the spec makes it outdated.
func (r *Reconciler) adoptPod(ctx context.Context, o *observation, step policy.Step) error {
	hash, err := o.specHash(step.Member)
	if err != nil {
		return err
	}
	defer crash.Around("adopt-pod")()
	return client.IgnoreNotFound(r.patchMetadata(ctx, o.pods[step.Member].DeepCopy(), metadataPatch{
		UID: step.PodUID, Annotations: map[string]*string{manifests.AnnotationSpecHash: &hash},
	}))
}

// event emits an Event about the cluster. The Event is related to the member's Pod, because the recorder counts two
// Events that differ only in their notes as one that happened twice, and keeps the first note.
func (r *Reconciler) event(o *observation, e policy.Event, action string) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	var related runtime.Object
	if e.Member != "" {
		related = &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: o.cluster.Namespace, Name: e.Member}
	}
	r.metrics.events.WithLabelValues(kind, e.Reason).Inc()
	r.recorder.Eventf(o.cluster, related, kind, e.Reason, action, "%s", policy.Note(e.Note))
}

// inform reports a step that was taken.
func (r *Reconciler) inform(o *observation, reason string, step policy.Step, note string, args ...any) {
	r.event(o, policy.Event{Reason: reason, Member: step.Member, Note: fmt.Sprintf(note, args...)}, string(step.Kind))
}
