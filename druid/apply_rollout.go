package druid

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/manifests"
)

// adoptPod takes a Pod that does not report for which spec it was made for one of the spec as it is: from then on an edit
// makes it outdated.
func (r *Reconciler) adoptPod(ctx context.Context, o *observation, step plan.Step) error {
	hash, err := o.specHash(step.Member)
	if err != nil {
		return err
	}
	defer crash.Around("adopt-pod")()
	return client.IgnoreNotFound(r.patchMetadata(ctx, o.pods[step.Member].DeepCopy(), metadataPatch{
		UID: step.PodUID, Annotations: map[string]*string{manifests.AnnotationSpecHash: &hash},
	}))
}
