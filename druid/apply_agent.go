package druid

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/manifests"
)

// replaceAgent gives the agent of the very Pod that the plan meant another image, if the plan from live reads means it too, and
// the Pod is still as it was read then.
func (r *Reconciler) replaceAgent(ctx context.Context, o *observation, step plan.Step) error {
	pod, image := o.pods[step.Member], r.manifests.AgentImage
	crash.Before("replace-agent")
	err := client.IgnoreNotFound(r.patch(ctx, pod.DeepCopy(), types.StrategicMergePatchType, manifests.AgentPatch(pod, image)))
	crash.After("replace-agent")
	if err != nil {
		return fmt.Errorf("give the agent of Pod %s image %s: %w", step.Member, image, err)
	}
	r.inform(o, v1alpha1.EventAgentReplaced, step, "The agent of member %s gets image %s, and its etcd runs on (%s)", step.Member, image, step.Rule)
	return nil
}
