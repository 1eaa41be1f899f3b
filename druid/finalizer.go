package druid

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/manifests"
)

// foregroundPause is the pause between two looks at an EtcdCluster whose objects Kubernetes deletes. No event reports
// the end of that.
const foregroundPause = 2 * time.Second

// guardDeletion adds or removes the finalizer of an EtcdCluster in a raft group with external members. It uses a
// compare-and-set and runs before all other steps. It returns the EtcdCluster as written, or nil if nothing had to be
// written. Its second result reports whether the pass ends here.
func (r *Reconciler) guardDeletion(ctx context.Context, o *observation) (written *v1alpha1.EtcdCluster, over bool, err error) {
	if o.desired.HandsOff != "" && !o.desired.Deleted {
		return nil, false, nil
	}
	guardDeletion := o.evaluation.Finalizer
	is := o.lock.wanted(o.cluster)
	others := slices.DeleteFunc(slices.Clone(is.Finalizers), func(f string) bool { return f == v1alpha1.JoinFinalizer })
	switch guardDeletion.Verdict {
	case policy.FinalizerHold:
		written, err = r.setFinalizers(ctx, is, append(others, v1alpha1.JoinFinalizer), guardDeletion.Rule)
		return written, false, err
	case policy.FinalizerRelease:
		if sure, err := r.releasable(ctx, o, is); err != nil || !sure {
			return nil, true, err
		}
		written, err = r.setFinalizers(ctx, is, slices.Concat([]string{}, others), guardDeletion.Rule) // never nil: an empty list is written
		if is.DeletionTimestamp != nil {
			r.memory.forgetCluster(is.UID)
		}
		return written, is.DeletionTimestamp != nil, err
	case policy.FinalizerWait:
		o.lookAgain(foregroundPause)
		return nil, true, nil
	default:
		return nil, false, nil
	}
}

// releasable says whether a live read leads to the removal of the finalizer too. A voter that the caches do not know
// yet would otherwise stay in the member list.
func (r *Reconciler) releasable(ctx context.Context, o *observation, is *v1alpha1.EtcdCluster) (bool, error) {
	if is.DeletionTimestamp == nil {
		return true, nil
	}
	cluster := &v1alpha1.EtcdCluster{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(is), cluster)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get EtcdCluster %s/%s: %w", is.Namespace, is.Name, err)
	}
	fresh, err := r.observe(ctx, source{unshared{r.live.Reader}, r.live.of}, cluster, nil)
	if err != nil {
		return false, err
	}
	if fresh.evaluation.Finalizer.Verdict != policy.FinalizerRelease || cluster.UID != is.UID {
		o.lookAgain(control.StaleCachePause)
		return false, nil
	}
	return true, nil
}

func (r *Reconciler) setFinalizers(ctx context.Context, is *v1alpha1.EtcdCluster, finalizers []string, rule string) (*v1alpha1.EtcdCluster, error) {
	changed := is.DeepCopy()
	crash.Before("hold-cluster")
	err := r.patchMetadata(ctx, changed, metadataPatch{UID: string(is.UID), ResourceVersion: is.ResourceVersion, Finalizers: &finalizers})
	crash.After("hold-cluster")
	if apierrors.IsNotFound(err) && is.DeletionTimestamp != nil {
		err = nil // it was let go before
	}
	if err != nil {
		return nil, fmt.Errorf("write the finalizers of EtcdCluster %s/%s (%s): %w", is.Namespace, is.Name, rule, err)
	}
	r.log.InfoContext(ctx, "finalizers written", "namespace", is.Namespace, "cluster", is.Name, "finalizers", finalizers, "rule", rule)
	return changed, nil
}

// guarded says whether the EtcdCluster has druid's finalizer.
func guarded(cluster *v1alpha1.EtcdCluster) bool {
	return controllerutil.ContainsFinalizer(cluster, v1alpha1.JoinFinalizer)
}

// observeGoing reads live whether the namespace of a deleted EtcdCluster with the finalizer is being deleted too.
func (r *Reconciler) observeGoing(ctx context.Context, o *observation) error {
	if !o.desired.Deleted || !o.desired.Held {
		return nil
	}
	var namespace corev1.Namespace
	if err := r.live.Get(ctx, client.ObjectKey{Name: o.cluster.Namespace}, &namespace); err != nil {
		return fmt.Errorf("get namespace %s: %w", o.cluster.Namespace, err)
	}
	o.desired.NamespaceGoes = namespace.DeletionTimestamp != nil
	return nil
}

// leftovers are the claims of earlier EtcdClusters with the same name, sorted. druid never uses them: their data
// belongs to another raft group, and the user might want either.
func leftovers(o *observation) []string {
	var names []string
	for name, claim := range o.claims {
		uid := claim.Labels[manifests.LabelClusterUID]
		if uid != "" && uid != string(o.cluster.UID) && claim.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// reportLeftovers reports them once, when the new cluster forms.
func (r *Reconciler) reportLeftovers(o *observation, step policy.Step) {
	names := leftovers(o)
	if len(names) == 0 {
		return
	}
	r.event(o, policy.Event{
		Warning: true, Reason: v1alpha1.EventRetainedVolumesFound,
		Note: "This cluster starts empty. PersistentVolumeClaims of an earlier EtcdCluster of this name exist and are not used: " +
			strings.Join(names, ", ") + ". Delete them, or copy their data first (docs/how-to/run/delete.md)",
	}, string(step.Kind))
}
