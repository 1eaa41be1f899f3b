package control

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

const (
	// FieldOwner of what druid writes.
	FieldOwner = "druid"
	// NamespaceTerminating is the cause with which the API server refuses objects in a namespace that is being deleted.
	NamespaceTerminating = corev1.NamespaceTerminatingCause
)

const (
	// StaleCachePause before another pass after a lost compare-and-set. The watch is usually milliseconds behind.
	StaleCachePause = 200 * time.Millisecond
	// NamePause is how soon druid looks again at a name that is taken: nothing reports when it becomes free.
	NamePause = 30 * time.Second
)

// Passing returns the pause before another attempt after an error that disappears by itself, and 0 for every other error,
// which is logged and retried with growing pauses. Of several errors, each must be of that kind.
func Passing(err error) time.Duration {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return passingAll(joined.Unwrap())
	}
	switch {
	case apierrors.IsConflict(err):
		// The caches are behind, but only for a moment.
		return StaleCachePause
	case NamespaceEnds(err):
		// Nothing can be created in a namespace that is being deleted, and the EtcdCluster is deleted with it.
		return NamePause
	default:
		return 0
	}
}

// NamespaceEnds reports whether the API server refused at least one object because its namespace is being deleted.
func NamespaceEnds(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(joined.Unwrap(), NamespaceEnds)
	}
	return apierrors.HasStatusCause(err, NamespaceTerminating)
}

func passingAll(errs []error) time.Duration {
	longest := time.Duration(0)
	for _, err := range errs {
		pause := Passing(err)
		if pause == 0 {
			return 0
		}
		longest = max(longest, pause)
	}
	return longest
}

// ClusterOf returns the EtcdCluster that an object names in its label.
func ClusterOf(object client.Object) (reconcile.Request, bool) {
	name := object.GetLabels()[leases.LabelCluster]
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}, name != ""
}

// ToCluster requests a pass over the EtcdCluster that an object names in its label.
func ToCluster(_ context.Context, object client.Object) []reconcile.Request {
	if request, ok := ClusterOf(object); ok {
		return []reconcile.Request{request}
	}
	return nil
}

// SpecChanged passes changes of what druid works towards and until when: a change of the spec, and of what does not count in the
// generation: the annotations by which users request something, and two fields in the status.
var SpecChanged = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.EtcdCluster)
		after, isOne := e.ObjectNew.(*v1alpha1.EtcdCluster)
		return ok && isOne && (!maps.Equal(requests(before), requests(after)) || !before.Status.ProgressDeadline.Equal(after.Status.ProgressDeadline) ||
			!equality.Semantic.DeepEqual(before.Status.Observed, after.Status.Observed))
	},
})

// requests are the annotations by which users request something from druid. Other annotations, such as those of kubectl and of GitOps
// controllers, mean nothing to druid.
func requests(cluster *v1alpha1.EtcdCluster) map[string]string {
	found := map[string]string{}
	for name, value := range cluster.Annotations {
		if strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") {
			found[name] = value
		}
	}
	return found
}
