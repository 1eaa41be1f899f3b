package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// nodeCount spreads the members of a cluster.
	nodeCount = 3
	// beatInterval of the nodes' Leases: half of that of the rig's kubelets, which are given up after 16 s. A played node
	// that was given up would be an outage in the middle of the measurement.
	beatInterval = 2 * time.Second
	// readyWithin is for the node controller's next look at all nodes.
	readyWithin = time.Minute
)

func nodeName(i int) string { return fmt.Sprintf("%s-%d", Name, i) }

// Prepare makes the nodes and the StorageClass, and waits until Pods can be scheduled.
func (f *Fleet) Prepare(ctx context.Context) error {
	mode, policy := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimRetain
	_, err := f.kube.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: named(Name), Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode, ReclaimPolicy: &policy,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make StorageClass %s: %w", Name, err)
	}
	for i := range nodeCount {
		if err := f.makeNode(ctx, nodeName(i)); err != nil {
			return fmt.Errorf("make node %s: %w", nodeName(i), err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if !until(ctx, f.schedulable) {
		return errors.New("the played nodes do not become ready")
	}
	return nil
}

// Remove deletes what Prepare made and the volumes, whose claims went with their namespace.
func (f *Fleet) Remove(ctx context.Context) error {
	ours := metav1.ListOptions{LabelSelector: Name}
	return errors.Join(
		f.kube.CoreV1().PersistentVolumes().DeleteCollection(ctx, metav1.DeleteOptions{}, ours),
		f.kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, ours),
		f.kube.StorageV1().StorageClasses().Delete(ctx, Name, metav1.DeleteOptions{}),
	)
}

func (f *Fleet) makeNode(ctx context.Context, name string) error {
	node := &corev1.Node{
		ObjectMeta: named(name),
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: Name, Effect: corev1.TaintEffectNoSchedule}}},
	}
	node.Labels[corev1.LabelHostname], node.Labels[corev1.LabelTopologyZone] = name, name
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("10000"),
	}
	node.Status = corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Played", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}}
	nodes := f.kube.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := patch(ctx, nodes.Patch, name, map[string]any{"status": node.Status}, "status"); err != nil {
		return err
	}
	return f.beatOf(ctx, name)
}

func (f *Fleet) schedulable(ctx context.Context) error {
	nodes, err := f.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: Name})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if len(node.Spec.Taints) != 1 {
			return fmt.Errorf("node %s has taints %v", node.Name, node.Spec.Taints)
		}
		if err := f.beatOf(ctx, node.Name); err != nil {
			return err
		}
	}
	return nil
}

// beat renews the nodes' Leases until ctx ends.
func (f *Fleet) beat(ctx context.Context) error {
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	for {
		for i := range nodeCount {
			until(ctx, func(ctx context.Context) error { return f.beatOf(ctx, nodeName(i)) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// beatOf renews a node's Lease, by which the node controller reports that the node lives.
func (f *Fleet) beatOf(ctx context.Context, node string) error {
	client := f.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := client.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &node, LeaseDurationSeconds: new(int32(40)), RenewTime: &metav1.MicroTime{Time: time.Now()},
			},
		}, metav1.CreateOptions{})
	}
	return err
}
