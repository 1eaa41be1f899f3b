package druid

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// passing says how soon to try again after an error that is no one's fault and passes by itself, and 0 for every other,
// which is logged and tried again with growing pauses. Of several errors each must be of that kind.
func passing(err error) time.Duration {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return passingAll(joined.Unwrap())
	}
	switch {
	case apierrors.IsConflict(err):
		// The caches are behind; they will have caught up in a moment.
		return staleCachePause
	case apierrors.HasStatusCause(err, namespaceTerminating):
		// Nothing can be made in a namespace that goes, and the EtcdCluster goes with it.
		return conflictPatience
	default:
		return 0
	}
}

func passingAll(errs []error) time.Duration {
	longest := time.Duration(0)
	for _, err := range errs {
		pause := passing(err)
		if pause == 0 {
			return 0
		}
		longest = max(longest, pause)
	}
	return longest
}

// goes says whether the EtcdCluster was deleted and is left to Kubernetes, by a live read. No answer is no.
func (r *Reconciler) goes(ctx context.Context, cluster *v1alpha1.EtcdCluster) bool {
	var live v1alpha1.EtcdCluster
	err := r.live.Get(ctx, client.ObjectKeyFromObject(cluster), &live)
	return apierrors.IsNotFound(err) || err == nil && (live.UID != cluster.UID || live.DeletionTimestamp != nil && !guarded(&live))
}
