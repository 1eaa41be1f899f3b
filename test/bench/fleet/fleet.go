package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// Name of the StorageClass, of the nodes' label and of their taint.
const Name = "fleet"

const (
	// parallel requests of the played kubelets and of the played provisioner: there would be one of each per node.
	parallel = 16
	// retryPause between two attempts at a request that failed.
	retryPause = 500 * time.Millisecond
)

// Fleet plays what is around the EtcdClusters of one namespace.
type Fleet struct {
	kube      kubernetes.Interface
	namespace string

	work    errgroup.Group // requests of the kubelets and the provisioner
	members errgroup.Group

	mu      sync.Mutex
	groups  map[string]*group                // by cluster
	running map[types.UID]context.CancelFunc // members by Pod
	seen    map[types.UID]bool               // claims and Pods
	pods    int
	address int
}

// New returns a fleet for the EtcdClusters of a namespace. kube must not limit itself.
func New(kube kubernetes.Interface, namespace string) *Fleet {
	f := &Fleet{
		kube: kube, namespace: namespace,
		groups: map[string]*group{}, running: map[types.UID]context.CancelFunc{}, seen: map[types.UID]bool{},
	}
	f.work.SetLimit(parallel)
	return f
}

// Place lets an EtcdCluster's Pods run on the played nodes and nowhere else.
func Place(c *v1alpha1.EtcdCluster) {
	class := Name
	c.Spec.Storage.StorageClassName = &class
	c.Spec.Tolerations = []corev1.Toleration{{Key: Name, Operator: corev1.TolerationOpExists}}
	c.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: Name, Operator: corev1.NodeSelectorOpExists}},
		}}},
	}}
}

// Pods is how many Pods were ever seen.
func (f *Fleet) Pods() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods
}

// first says whether an object is seen for the first time.
func (f *Fleet) first(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.seen[uid]
	f.seen[uid] = true
	return !known
}

// Run plays until ctx ends. Prepare comes before it.
func (f *Fleet) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(f.kube, 0, informers.WithNamespace(f.namespace))
	claims, pods := factory.Core().V1().PersistentVolumeClaims().Informer(), factory.Core().V1().Pods().Informer()
	_, claimsErr := claims.AddEventHandler(on(func(c *corev1.PersistentVolumeClaim) { f.claimSeen(ctx, c) }, nil))
	_, podsErr := pods.AddEventHandler(on(func(p *corev1.Pod) { f.podSeen(ctx, p) }, func(p *corev1.Pod) { f.podGone(p) }))
	if err := errors.Join(claimsErr, podsErr); err != nil {
		return fmt.Errorf("watch namespace %s: %w", f.namespace, err)
	}
	factory.StartWithContext(ctx)
	var group errgroup.Group
	group.Go(func() error { return f.beat(ctx) })
	<-ctx.Done()
	factory.Shutdown()
	return errors.Join(group.Wait(), f.work.Wait(), f.members.Wait())
}

// on is a handler of typed objects. gone may be nil.
func on[T any](seen, gone func(*T)) cache.ResourceEventHandlerFuncs {
	h := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { seen(object.(*T)) },
		UpdateFunc: func(_, object any) { seen(object.(*T)) },
	}
	if gone != nil {
		h.DeleteFunc = func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			gone(object.(*T))
		}
	}
	return h
}

// until tries again and again until try succeeds or ctx ends, and says whether it did.
func until(ctx context.Context, try func(context.Context) error) bool {
	for {
		if try(ctx) == nil {
			return true
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// named are the metadata of what the fleet makes.
func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{Name: "true"}}
}
