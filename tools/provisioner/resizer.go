package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// A storage class with parameter grows=when-mounted is of a driver that makes a file system larger only when it is mounted again. A
// volume of any other class grows while it is in use.
const (
	growsParameter   = "grows"
	growsWhenMounted = "when-mounted"
)

// resizer makes volumes larger, as the external-resizer next to a driver does, and for those that grow when they are mounted what the
// kubelet does at the mount. Sizes are reported and not enforced, so there is nothing else to do.
type resizer struct {
	client  kubernetes.Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	pods    corelisters.PodLister
	classes storagelisters.StorageClassLister
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// runResizer serves all claims whose class one of the provisioners serves, until ctx ends.
func runResizer(ctx context.Context, client kubernetes.Interface, provisioners []string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	r := &resizer{
		client: client, claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(), pods: core.Pods().Lister(),
		classes: factory.Storage().V1().StorageClasses().Lister(),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](100*time.Millisecond, 10*time.Second)),
	}
	for informer, each := range map[cache.SharedIndexInformer]func(any){
		core.PersistentVolumeClaims().Informer(): r.enqueueClaim,
		core.Pods().Informer():                   r.enqueueClaimsOfPod,
	} {
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc: each, UpdateFunc: func(_, now any) { each(now) }, DeleteFunc: each,
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch claims and pods: %w", err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	context.AfterFunc(ctx, r.queue.ShutDown)
	for {
		name, ended := r.queue.Get()
		if ended {
			return nil
		}
		r.work(ctx, name, provisioners)
	}
}

func (r *resizer) work(ctx context.Context, name cache.ObjectName, provisioners []string) {
	defer r.queue.Done(name)
	err := r.grow(ctx, name, provisioners)
	if err == nil || errors.Is(err, context.Canceled) {
		r.queue.Forget(name)
		return
	}
	if !apierrors.IsConflict(err) {
		log.Printf("grow the volume of claim %s: %v", name, err)
	}
	r.queue.AddRateLimited(name)
}

func (r *resizer) enqueueClaim(object any) {
	if claim, ok := object.(*v1.PersistentVolumeClaim); ok {
		r.queue.Add(cache.MetaObjectToName(claim))
	}
}

func (r *resizer) enqueueClaimsOfPod(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, ok := object.(*v1.Pod)
	if !ok {
		return
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			r.queue.Add(cache.NewObjectName(pod.Namespace, v.PersistentVolumeClaim.ClaimName))
		}
	}
}

// grow does what is left to do for a claim: the volume gets its size first, then the claim says so. Between the two it says
// FileSystemResizePending where the file system waits for a mount.
func (r *resizer) grow(ctx context.Context, name cache.ObjectName, provisioners []string) error {
	cached, err := r.claims.PersistentVolumeClaims(name.Namespace).Get(name.Name)
	if err != nil || cached.Status.Phase != v1.ClaimBound || cached.Spec.StorageClassName == nil {
		return ignoreNotFound(err)
	}
	size := cached.Spec.Resources.Requests[v1.ResourceStorage]
	if has := cached.Status.Capacity[v1.ResourceStorage]; has.Cmp(size) >= 0 {
		return nil
	}
	class, err := r.classes.Get(*cached.Spec.StorageClassName)
	if err != nil || class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion || !slices.Contains(provisioners, class.Provisioner) {
		return ignoreNotFound(err)
	}
	if err := r.growVolume(ctx, cached.Spec.VolumeName, size); err != nil {
		return err
	}
	claim := cached.DeepCopy()
	if class.Parameters[growsParameter] == growsWhenMounted {
		if since := pendingSince(claim); since == nil {
			claim.Status.Conditions = append(claim.Status.Conditions, v1.PersistentVolumeClaimCondition{
				Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(),
				Message: "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
			})
			return r.writeStatus(ctx, claim)
		} else if mounted, err := r.mountedSince(name, *since); !mounted {
			return err // an event of a Pod brings us back
		}
	}
	claim.Status.Capacity = v1.ResourceList{v1.ResourceStorage: size}
	claim.Status.Conditions = slices.DeleteFunc(claim.Status.Conditions, isPending)
	return r.writeStatus(ctx, claim)
}

func (r *resizer) growVolume(ctx context.Context, name string, size resource.Quantity) error {
	volume, err := r.volumes.Get(name)
	if err != nil {
		return fmt.Errorf("get volume %s: %w", name, err)
	}
	if has := volume.Spec.Capacity[v1.ResourceStorage]; has.Cmp(size) >= 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"capacity": v1.ResourceList{v1.ResourceStorage: size}}})
	if err != nil {
		return err
	}
	if _, err := r.client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("grow volume %s to %s: %w", name, size.String(), err)
	}
	return nil
}

// mountedSince says whether the volume was mounted again: a Pod that was made after that moment, reported in whole seconds, is on a node,
// and none from before uses it any more.
func (r *resizer) mountedSince(claim cache.ObjectName, since metav1.Time) (bool, error) {
	users, err := r.users(claim)
	mounted := false
	for _, pod := range users {
		if !since.Before(&pod.CreationTimestamp) {
			return false, err
		}
		mounted = mounted || pod.Spec.NodeName != ""
	}
	return mounted, err
}

// users are the Pods that may have the claim's volume mounted, or are to.
func (r *resizer) users(claim cache.ObjectName) ([]*v1.Pod, error) {
	pods, err := r.pods.Pods(claim.Namespace).List(labels.Everything())
	return slices.DeleteFunc(pods, func(pod *v1.Pod) bool {
		uses := slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
		})
		return !uses || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	}), err
}

func (r *resizer) writeStatus(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	_, err := r.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

func isPending(c v1.PersistentVolumeClaimCondition) bool {
	return c.Type == v1.PersistentVolumeClaimFileSystemResizePending && c.Status == v1.ConditionTrue
}

// pendingSince is when the file system began to wait for a mount, nil where it does not.
func pendingSince(claim *v1.PersistentVolumeClaim) *metav1.Time {
	if i := slices.IndexFunc(claim.Status.Conditions, isPending); i >= 0 {
		return &claim.Status.Conditions[i].LastTransitionTime
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
