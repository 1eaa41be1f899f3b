package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/internal/crash"
)

// CrashDruidAt lets each druid end at a point of docs/reference/crash-points.md, and waits until both replicas are of that mind. With
// an empty point they end nowhere.
func (r *Rig) CrashDruidAt(t testing.TB, point string) {
	t.Helper()
	if err := r.armDruid(context.WithoutCancel(t.Context()), point); err != nil {
		t.Fatalf("let druid end at point %q: %v", point, err)
	}
}

// armDruid sets the variable in druid's Deployment, or takes it away, and restarts both replicas at once: a rolling update
// would take its time.
func (r *Rig) armDruid(ctx context.Context, point string) error {
	setting := crash.Variable + "=" + point
	if point == "" {
		setting = crash.Variable + "-"
	}
	if _, err := r.Lab.Kubectl(ctx, "set", "env", "--namespace="+DruidNamespace, "deployment/"+druidDeployment, setting); err != nil {
		return err
	}
	_, err := poll(ctx, maxWait, func(ctx context.Context) error {
		pods, err := r.DruidPods(ctx)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if armedAt(&pod) != point && pod.DeletionTimestamp == nil {
				err = errors.Join(err, client.IgnoreNotFound(r.Client.Delete(ctx, &pod)), fmt.Errorf("%s restarts", pod.Name))
			}
		}
		if len(pods) != 2 {
			err = errors.Join(err, fmt.Errorf("%d Pods of druid", len(pods)))
		}
		return errors.Join(err, r.druidReady(ctx))
	})
	return err
}

func armedAt(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		for _, variable := range container.Env {
			if variable.Name == crash.Variable {
				return variable.Value
			}
		}
	}
	return ""
}

// DruidCrashed is nil if one of druid's processes ended at its point.
func (r *Rig) DruidCrashed(ctx context.Context) error {
	pods, err := r.DruidPods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
				if state.Terminated != nil && state.Terminated.ExitCode == crash.ExitCode {
					return nil
				}
			}
		}
	}
	return errors.New("no druid ended at its point")
}
