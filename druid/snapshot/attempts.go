package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/manifests"
)

const (
	// firstPause is the pause after the first Pod, as that of a Job. It doubles with each Pod.
	firstPause = 10 * time.Second
	// longestPause leaves time for a dozen Pods in the hour.
	longestPause = 5 * time.Minute
	// podsTimeout bounds all Pods of an EtcdSnapshot together. It ends later than the kubelet ends a Pod: the kubelet does so a
	// minute after the process gave up, and no kubelet ends a Pod that is on no node.
	podsTimeout = manifests.SnapshotTimeout + 5*time.Minute
	// turnTimeout bounds the time until the first Pod, or the answer of an agent. EtcdSnapshots of a cluster are served one after
	// another, each in at most podsTimeout, so it leaves time for twenty before it, and for an operator who resumes the cluster.
	turnTimeout = 24 * time.Hour
)

// pauseAfter returns the pause after a number of Pods.
func pauseAfter(count int32) time.Duration {
	pause := firstPause
	for ; count > 1 && pause < longestPause; count-- {
		pause *= 2
	}
	return min(pause, longestPause)
}

// pausing says whether the pause after the last Pod is not over. It counts from the creation of the Pod, so that a Pod that
// ran for minutes before its node was drained is replaced at once.
func pausing(o *observation, snapshot *v1alpha1.EtcdSnapshot) bool {
	left := pauseLeft(snapshot.Status.Attempts, o.now)
	if left > 0 {
		o.lookAgain(left)
	}
	return left > 0
}

func pauseLeft(attempts *v1alpha1.SnapshotAttempts, now time.Time) time.Duration {
	if attempts == nil {
		return 0
	}
	return attempts.LastAt.Add(pauseAfter(attempts.Count)).Sub(now)
}

// limitOf returns from when an open EtcdSnapshot has how long. That is the time of its Pods together from the first one on,
// and until then the time for its turn to come.
func limitOf(snapshot *v1alpha1.EtcdSnapshot, order leaseOrder) (since time.Time, limit time.Duration) {
	mine := order.UID == string(snapshot.UID)
	switch {
	case onPod(snapshot) && snapshot.Status.Attempts != nil:
		return snapshot.Status.Attempts.FirstAt.Time, podsTimeout
	case onPod(snapshot) && order.pod != nil: // of a druid that did not count
		return order.pod.CreationTimestamp.Time, podsTimeout
	case mine && order.answer == answerRunning:
		return snapshot.CreationTimestamp.Time, turnTimeout + manifests.SnapshotTimeout
	default:
		return snapshot.CreationTimestamp.Time, turnTimeout
	}
}

// overdue says whether the time of an open EtcdSnapshot is over.
func overdue(o *observation, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder) rules.YesNo {
	if snapshotPhases[snapshot.Status.Phase] == phaseFinal {
		return rules.No
	}
	since, limit := limitOf(snapshot, order)
	left := limit - o.now.Sub(since)
	if left > 0 {
		o.lookAgain(left)
	}
	return rules.YesNoOf(left <= 0)
}

// overdueWords says why nothing was saved in time.
func overdueWords(snapshot *v1alpha1.EtcdSnapshot, order leaseOrder) string {
	last := order.reason
	if order.pod != nil {
		last = cmp.Or(waitsFor(order.pod), fmt.Sprintf("Pod %s did not end", order.pod.Name))
	}
	_, limit := limitOf(snapshot, order)
	return fmt.Sprintf("not saved within %s. Resolve what is wrong, and create another EtcdSnapshot. The last state was: %s",
		limit, cmp.Or(last, snapshot.Status.Message, "another EtcdSnapshot of the cluster was served first"))
}

// lostWords says why a Pod ended that is created again.
func lostWords(pod *corev1.Pod) string {
	why := cmp.Or(pod.Status.Reason, "it was deleted")
	if pod.Status.Message != "" {
		why += ": " + pod.Status.Message
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			why = c.Reason + ": " + c.Message
		}
	}
	return fmt.Sprintf("Pod %s ended before it was done (%s). druid creates it again after a pause", pod.Name, why)
}

// retry reports why the Pod was lost, and deletes it. The report comes first, because it has its reason from the Pod.
func (r *Reconciler) retry(ctx context.Context, o *observation, snapshot *v1alpha1.EtcdSnapshot, order leaseOrder) error {
	status := *snapshot.Status.DeepCopy()
	status.Message = policy.AsSentences(policy.Note(lostWords(order.pod)))
	if snapshot.DeletionTimestamp == nil {
		status.Phase = v1alpha1.SnapshotPending
	}
	if err := r.writeStatus(ctx, snapshot, status); err != nil {
		return err
	}
	return r.clear(ctx, o.name, order)
}

// orderPod counts the Pod of a request, and then creates it. So a druid that ends in between, or a Pod that the API server
// refuses, counts as well. If the API server refuses it, the status says why, and the pause applies.
func (r *Reconciler) orderPod(ctx context.Context, o *observation, live *v1alpha1.EtcdSnapshot) error {
	if pauseLeft(live.Status.Attempts, o.now) > 0 {
		return cachesBehind(live.Name)
	}
	now := metav1.NewTime(o.now)
	attempts := v1alpha1.SnapshotAttempts{FirstAt: now}
	if live.Status.Attempts != nil {
		attempts = *live.Status.Attempts
	}
	attempts.Count, attempts.LastAt = attempts.Count+1, now
	status := *live.Status.DeepCopy()
	status.Attempts = &attempts
	if live.DeletionTimestamp != nil {
		status.Message = policy.AsSentences("the EtcdSnapshot waits for the Pod that deletes its backup")
	}
	counted, err := r.patchStatus(ctx, live, status)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	err = r.createPod(ctx, o, counted)
	if err == nil || control.Passing(err) > 0 || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return err
	}
	status.Message = policy.AsSentences(policy.Note(fmt.Sprintf("the API server refuses the Pod of the EtcdSnapshot: %v", err)))
	return r.writeStatus(ctx, counted, status)
}
