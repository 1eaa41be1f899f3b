package manifests

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// Applied is an object that druid owns wholly and writes by server-side apply.
type Applied struct {
	Kind            schema.GroupVersionKind
	Namespace, Name string
	// Hash of the content. The object bears it as AnnotationHash, so that who reads the object sees whether it is up to date
	// and nothing need be written.
	Hash string
	// Configuration is what to apply.
	Configuration runtime.ApplyConfiguration
}

// Shared are the objects that the members of a cluster share, in the order in which they are needed. members are the names
// in the cluster record: the agents may touch the Leases of those names and no other.
func Shared(cluster *v1alpha1.EtcdCluster, members []string, options Options) ([]Applied, error) {
	config, err := configMap(cluster, options.Reloadable)
	if err != nil {
		return nil, err
	}
	var all collector
	add(&all, serviceAccount(cluster))
	add(&all, agentRole(cluster, members))
	add(&all, agentRoleBinding(cluster))
	add(&all, config)
	add(&all, peerService(cluster))
	add(&all, clientService(cluster))
	return all.objects, all.err
}

// configuration is what every generated apply configuration can do.
type configuration[T any] interface {
	runtime.ApplyConfiguration
	identified
	WithAnnotations(map[string]string) T
}

// identified is what reports one object from all others.
type identified interface {
	GetAPIVersion() *string
	GetKind() *string
	GetNamespace() *string
	GetName() *string
}

// collector gathers objects and keeps the first error.
type collector struct {
	objects []Applied
	err     error
}

func add[T configuration[T]](c *collector, object T) {
	applied, err := applied(object)
	if err != nil {
		if c.err == nil {
			c.err = err
		}
		return
	}
	c.objects = append(c.objects, applied)
}

// applied puts the hash of object's content on it.
func applied[T configuration[T]](object T) (Applied, error) {
	sum, err := hash(object)
	if err != nil {
		return Applied{}, fmt.Errorf("hash %s %s/%s: %w", *object.GetKind(), *object.GetNamespace(), *object.GetName(), err)
	}
	return Applied{
		Kind:          schema.FromAPIVersionAndKind(*object.GetAPIVersion(), *object.GetKind()),
		Namespace:     *object.GetNamespace(),
		Name:          *object.GetName(),
		Hash:          sum,
		Configuration: object.WithAnnotations(map[string]string{AnnotationHash: sum}),
	}, nil
}

func ownerReference(cluster *v1alpha1.EtcdCluster) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(kind.GroupVersion().String()).
		WithKind(kind.Kind).
		WithName(cluster.Name).
		WithUID(cluster.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}
