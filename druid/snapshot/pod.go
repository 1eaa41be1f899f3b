package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// waitingInterval is the pause between two looks at what a Pod waits for that no watch reports.
const waitingInterval = 10 * time.Second

// advanceOnPods takes the next step of each EtcdSnapshot with a store of its own. A Pod stands for the request, and its
// termination message for the answer. One Pod at a time saves a cluster, so that etcd does not stream many snapshots at
// once. A Pod that deletes a backup needs nothing of etcd, so it waits for no other.
func (r *Reconciler) advanceOnPods(ctx context.Context, o *observation) error {
	if !slices.ContainsFunc(o.all, onPod) {
		return nil
	}
	if err := r.observePods(ctx, o); err != nil {
		return err
	}
	var ordered bool
	var errs []error // what the API server refuses for one EtcdSnapshot does not stop the others
	for _, snapshot := range o.all {
		if !onPod(snapshot) {
			continue
		}
		order, err := r.podOrder(ctx, o, snapshot)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		decision := decide(o, snapshot, podSlot(o, snapshot, order, ordered), order)
		if err := r.take(ctx, o, snapshot, order, decision); err != nil {
			errs = append(errs, err)
			continue
		}
		ordered = ordered || decision.Verdict == stepOrder && snapshot.DeletionTimestamp == nil
	}
	return errors.Join(errs...)
}

// podSlot says whether a Pod can be created now. ordered reports that this pass created one that saves.
func podSlot(o *observation, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder, ordered bool) orderSlot {
	switch {
	case order.reason != "":
		return slotUnknown
	case order.pod == nil && pausing(o, snapshot):
		return slotPausing
	case order.pod == nil && snapshot.DeletionTimestamp == nil && (ordered || taken(o, snapshot)):
		return slotTaken
	}
	return slotFree
}

// taken says whether another EtcdSnapshot has a Pod that saves, or has its turn in the pause between two Pods. It keeps the turn
// there, because its limit goes on. Kubernetes deletes a Pod whose EtcdSnapshot does not exist any more.
func taken(o *observation, snapshot *v1alpha1.EtcdSnapshot) bool {
	return slices.ContainsFunc(o.all, func(other *v1alpha1.EtcdSnapshot) bool {
		pod := o.pods[other.UID]
		return other != snapshot && (pod != nil && !drops(pod) || other.DeletionTimestamp == nil && other.Status.Attempts != nil)
	})
}

// onPod says whether the EtcdSnapshot has a store of its own.
func onPod(snapshot *v1alpha1.EtcdSnapshot) bool { return snapshot.Spec.Store != nil }

// observePods finds the Pods of the EtcdSnapshots of the cluster.
func (r *Reconciler) observePods(ctx context.Context, o *observation) error {
	var list corev1.PodList
	err := r.Client.List(ctx, &list, client.InNamespace(o.name.Namespace), client.MatchingLabels{
		leases.LabelCluster: o.name.Name, leases.LabelComponent: string(leases.ComponentSnapshot),
	})
	if err != nil {
		return err
	}
	o.pods = map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Kind == "EtcdSnapshot" {
			o.pods[owner.UID] = &list.Items[i]
		}
	}
	return nil
}

// podOrder is the request of an EtcdSnapshot with a store of its own, with the answer if there is one.
func (r *Reconciler) podOrder(ctx context.Context, o *observation, snapshot *v1alpha1.EtcdSnapshot) (leaseOrder, error) {
	order := leaseOrder{component: leases.ComponentSnapshot, pod: o.pods[snapshot.UID]}
	open, deleting := snapshotPhases[snapshot.Status.Phase] != phaseFinal, snapshot.DeletionTimestamp != nil
	if order.pod != nil {
		order.UID = string(snapshot.UID)
		if drops(order.pod) {
			order.Kind = leases.SnapshotDelete
		}
		order.answer, order.Answer, order.reason = answerOf(o, snapshot, order.pod)
		order.Answer.Kind = order.Kind
		return order, nil
	}
	switch {
	case o.cluster == nil:
		order.reason = "the EtcdCluster does not exist"
		return order, nil
	case deleting: // no member is needed to delete
	default:
		if order.reason = waitsForCluster(o); order.reason != "" {
			return order, nil
		}
	}
	problem, passing, err := r.claimProblem(ctx, snapshot)
	if problem == "" {
		problem = placeProblem(o.cluster, snapshot)
	}
	if err != nil || problem == "" {
		return order, err
	}
	left := clusterGrace - o.now.Sub(snapshot.CreationTimestamp.Time)
	if passing && left > 0 {
		o.lookAgain(min(left, waitingInterval))
		order.reason = problem
		return order, nil
	}
	if open || deleting {
		order.UID = string(snapshot.UID)
		order.answer, order.Answer = answerFailed, failedAnswer(o, snapshot, problem)
		if deleting {
			order.Kind, order.Answer.Kind = leases.SnapshotDelete, leases.SnapshotDelete
		}
	}
	return order, nil
}

// claimProblem says what is wrong with the PersistentVolumeClaim that the EtcdSnapshot names, and whether that can pass. A
// Pod for a claim that does not exist would wait without an end, and one for the claim of a member would fill its volume.
func (r *Reconciler) claimProblem(ctx context.Context, snapshot *v1alpha1.EtcdSnapshot) (problem string, passing bool, err error) {
	if snapshot.Spec.Store.Directory == nil {
		return "", false, nil
	}
	name := snapshot.Spec.Store.Directory.ClaimName
	var claim corev1.PersistentVolumeClaim
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: snapshot.Namespace, Name: name}, &claim)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("PersistentVolumeClaim %s does not exist in this namespace. Create it, and then another EtcdSnapshot", name), true, nil
	case err != nil:
		return "", false, fmt.Errorf("get PersistentVolumeClaim %s: %w", name, err)
	case claim.Labels[leases.LabelCluster] != "":
		return fmt.Sprintf("PersistentVolumeClaim %s belongs to a member of EtcdCluster %s. Name another one", name, claim.Labels[leases.LabelCluster]), false, nil
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("PersistentVolumeClaim %s is being deleted. Name another one", name), true, nil
	}
	return "", false, nil
}

// placeProblem says that the store is where the agents back up the cluster, or is empty. The agents count each full backup there as
// one that they can read, and record only what changed after it.
func placeProblem(cluster *v1alpha1.EtcdCluster, snapshot *v1alpha1.EtcdSnapshot) string {
	backups := []*v1alpha1.BackupSpec{cluster.Spec.Backup}
	if adopted, err := cluster.Status.Adopted(); err == nil && adopted != nil {
		backups = append(backups, adopted.Backup)
	}
	for _, backup := range backups {
		if backup != nil && manifests.SamePlace(&backup.Store, snapshot.Spec.Store) {
			return fmt.Sprintf("spec.store is where EtcdCluster %s is backed up. Create another EtcdSnapshot without spec.store, "+
				"or with another bucket, prefix or PersistentVolumeClaim", cluster.Name)
		}
	}
	return ""
}

// drops says whether the Pod deletes a backup.
func drops(pod *corev1.Pod) bool {
	return len(pod.Spec.Containers) > 0 && slices.Contains(pod.Spec.Containers[0].Command, "drop")
}

// answerOf reads what the kubelet reported of the Pod. reason is what a Pod waits for that has not started.
func answerOf(o *observation, snapshot *v1alpha1.EtcdSnapshot, pod *corev1.Pod) (orderAnswer, leases.SnapshotAnswer, string) {
	state := containerState(pod)
	if ended := state.Terminated; ended != nil {
		if a, ok := leases.ParseResult(ended.Message, string(snapshot.UID)); ok {
			return orderAnswers[a.Phase], a, ""
		}
	}
	switch {
	case pod.Status.Reason == reasonDeadline:
		words := fmt.Sprintf("not saved within %s", manifests.SnapshotTimeout)
		if drops(pod) {
			words = fmt.Sprintf("not deleted within %s", deletionTimeout/2)
		}
		return answerFailed, failedAnswer(o, snapshot, words+": "+cmp.Or(waitsFor(pod), fmt.Sprintf("Pod %s did not end", pod.Name))), ""
	case pod.DeletionTimestamp != nil, disrupted(pod), pod.Status.Phase == corev1.PodSucceeded:
		return answerLost, leases.SnapshotAnswer{}, ""
	case state.Terminated != nil:
		return answerFailed, failedAnswer(o, snapshot, fmt.Sprintf("Pod %s ended without a result (%s, exit code %d): %s", pod.Name, state.Terminated.Reason,
			state.Terminated.ExitCode, cmp.Or(strings.TrimSpace(state.Terminated.Message), "it wrote nothing"))), ""
	case pod.Status.Phase == corev1.PodFailed:
		return answerLost, leases.SnapshotAnswer{}, ""
	}
	if state.Running != nil {
		return answerRunning, leases.SnapshotAnswer{UID: string(snapshot.UID), Phase: leases.SnapshotRunning, Started: state.Running.StartedAt.Time}, ""
	}
	return unanswered, leases.SnapshotAnswer{}, waitsFor(pod)
}

// reasonDeadline is in the status of a Pod that the kubelet ended at its deadline.
const reasonDeadline = "DeadlineExceeded"

// disrupted says that something other than the process ended the Pod: an eviction, a drain, a lost node.
func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

func containerState(pod *corev1.Pod) corev1.ContainerState {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == manifests.ContainerSnapshot {
			return status.State
		}
	}
	return corev1.ContainerState{}
}

// waitsFor says why a Pod has not started, or is empty for one that has.
func waitsFor(pod *corev1.Pod) string {
	if state := containerState(pod); state.Running != nil || state.Terminated != nil {
		return ""
	}
	words := fmt.Sprintf("the EtcdSnapshot waits for Pod %s to start", pod.Name)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return words + ": " + c.Message
		}
	}
	if waiting := containerState(pod).Waiting; waiting != nil {
		return words + ": " + strings.TrimSpace(waiting.Reason+" "+waiting.Message)
	}
	return words
}

func failedAnswer(o *observation, snapshot *v1alpha1.EtcdSnapshot, words string) leases.SnapshotAnswer {
	started := o.now
	if snapshot.Status.StartedAt != nil {
		started = snapshot.Status.StartedAt.Time
	}
	return leases.SnapshotAnswer{UID: string(snapshot.UID), Phase: leases.SnapshotFailed, Started: started, Finished: o.now, Error: words}
}

// createPod requests a backup in the store of the EtcdSnapshot, or its deletion there. The name of the Pod is that of the
// request, so a second Pod is never created.
func (r *Reconciler) createPod(ctx context.Context, o *observation, snapshot *v1alpha1.EtcdSnapshot) error {
	cluster := o.cluster.DeepCopy()
	if adopted, err := cluster.Status.Adopted(); err != nil {
		return err
	} else if adopted != nil {
		cluster.Spec = *adopted // the members run with it
	}
	run := manifests.SnapshotRun{}
	if snapshot.DeletionTimestamp != nil {
		run.Drop, run.Within = snapshot.Status.Artifact.Key, deletionTimeout/2
	} else {
		run.Record, run.Within = *o.record, max(manifests.SnapshotTimeout-o.now.Sub(snapshot.Status.Attempts.FirstAt.Time), time.Minute)
	}
	pod, err := manifests.SnapshotPod(cluster, snapshot, run, r.Manifests)
	if err != nil {
		return err
	}
	defer crash.Around("create-snapshot-pod")()
	return client.IgnoreAlreadyExists(r.Client.Create(ctx, pod))
}

// deletePod deletes the Pod of a request, at once: its node may be lost, and what it still does harms nothing, because an
// object is in the store completely or not at all.
func (r *Reconciler) deletePod(ctx context.Context, pod *corev1.Pod) error {
	if pod == nil {
		return nil
	}
	defer crash.Around("delete-snapshot-pod")()
	return client.IgnoreNotFound(r.Client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(0)))
}
