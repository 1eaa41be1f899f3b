package fleet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
)

// podSeen starts a Pod that has a node, and ends one that is to go.
func (f *Fleet) podSeen(ctx context.Context, pod *corev1.Pod) {
	first := f.first(pod.UID)
	f.mu.Lock()
	defer f.mu.Unlock()
	if first {
		f.pods++
	}
	end, runs := f.running[pod.UID]
	switch {
	case pod.DeletionTimestamp != nil:
		if runs {
			end()
		}
		f.work.Go(func() error {
			until(ctx, func(ctx context.Context) error { return f.bury(ctx, pod) })
			return nil
		})
	case !runs && pod.Spec.NodeName != "":
		running, end := context.WithCancel(ctx)
		f.running[pod.UID] = end
		f.address++
		ip := fmt.Sprintf("10.250.%d.%d", f.address/250, 1+f.address%250)
		f.members.Go(func() error { return f.live(running, pod, ip) })
	}
}

func (f *Fleet) podGone(pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end, runs := f.running[pod.UID]; runs {
		end()
	}
	delete(f.running, pod.UID)
}

// live is the life of a Pod on its node, with the agent in it, until ctx ends.
func (f *Fleet) live(ctx context.Context, pod *corev1.Pod, ip string) error {
	report := func(p progress) func(context.Context) error {
		return func(ctx context.Context) error {
			status := map[string]any{"status": statusAt(pod, ip, p)}
			return patch(ctx, f.kube.CoreV1().Pods(pod.Namespace).Patch, pod.Name, status, "status")
		}
	}
	if !until(ctx, report(installed)) || !until(ctx, report(started)) {
		return nil
	}
	return f.agent(ctx, f.groupOf(pod.Labels[leases.LabelCluster]), pod, func(ctx context.Context) { until(ctx, report(ready)) })
}

// progress of a Pod, of which its kubelet writes a status each.
type progress int

const (
	installed progress = iota + 1 // the agent runs
	started                       // etcd's container runs
	ready                         // etcd answers
)

// statusAt is what a kubelet writes of a member's Pod.
func statusAt(pod *corev1.Pod, ip string, at progress) corev1.PodStatus {
	now := metav1.Now()
	s := corev1.PodStatus{Phase: corev1.PodPending, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &now}
	if at >= started {
		s.Phase = corev1.PodRunning
	}
	for kind, holds := range map[corev1.PodConditionType]bool{
		corev1.PodScheduled: true, corev1.PodInitialized: true, corev1.ContainersReady: at >= ready, corev1.PodReady: at >= ready,
	} {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: now}
		if holds {
			c.Status = corev1.ConditionTrue
		}
		s.Conditions = append(s.Conditions, c)
	}
	for _, c := range pod.Spec.InitContainers {
		one := containerStatus(c, true)
		if c.RestartPolicy == nil {
			one.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}}
		} else {
			one.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, one)
	}
	for _, c := range pod.Spec.Containers {
		one := containerStatus(c, at >= ready)
		one.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
		if at >= started {
			one.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, one)
	}
	return s
}

func containerStatus(c corev1.Container, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "played://" + c.Name, Ready: ready, Started: &ready,
	}
}

// bury confirms the end of a Pod that is to go, as its kubelet does.
func (f *Fleet) bury(ctx context.Context, pod *corev1.Pod) error {
	err := f.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
