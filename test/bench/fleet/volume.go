package fleet

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claimSeen gives every claim a volume of its own, once.
func (f *Fleet) claimSeen(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if !f.first(claim.UID) || claim.DeletionTimestamp != nil {
		return
	}
	f.work.Go(func() error {
		until(ctx, func(ctx context.Context) error { return f.bind(ctx, claim) })
		return nil
	})
}

// bind does what Kubernetes' own volume controller does with a volume that was made for a claim: that controller asks the
// API server at most 20 times a second, and would be what is measured.
func (f *Fleet) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "fleet-" + string(claim.UID)
	volume := &corev1.PersistentVolume{ObjectMeta: named(name), Spec: corev1.PersistentVolumeSpec{
		StorageClassName: Name, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests,
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere/" + name}},
		ClaimRef: &corev1.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		},
	}}
	volumes, claims := f.kube.CoreV1().PersistentVolumes(), f.kube.CoreV1().PersistentVolumeClaims(claim.Namespace)
	if _, err := volumes.Create(ctx, volume, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make volume %s: %w", name, err)
	}
	bound := map[string]any{"status": map[string]any{"phase": corev1.VolumeBound}}
	if err := patch(ctx, volumes.Patch, name, bound, "status"); err != nil {
		return err
	}
	spec := map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{
			"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
		}},
		"spec": map[string]any{"volumeName": name},
	}
	if err := patch(ctx, claims.Patch, claim.Name, spec); err != nil {
		return err
	}
	status := map[string]any{"status": map[string]any{
		"phase": corev1.ClaimBound, "accessModes": claim.Spec.AccessModes, "capacity": claim.Spec.Resources.Requests,
	}}
	return patch(ctx, claims.Patch, claim.Name, status, "status")
}

// patcher is how the typed clients patch an object of kind T.
type patcher[T any] func(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)

// patch merges content into an object. One that is gone needs no content.
func patch[T any](ctx context.Context, do patcher[T], name string, content map[string]any, subresources ...string) error {
	raw, err := json.Marshal(content)
	if err != nil {
		return err
	}
	_, err = do(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
