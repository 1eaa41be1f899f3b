package druid

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/manifests"
)

// saveName is that of the EtcdSnapshot before a change of version: another one for each edit, so that none is taken for the backup
// before a later change.
func saveName(cluster *v1alpha1.EtcdCluster, d plan.Desired) string {
	return fmt.Sprintf("%s-before-%s-%d", cluster.Name, strings.ReplaceAll(d.Version, ".", "-"), d.Generation)
}

// observeUpgrade finds what a change of version has come to.
func (r *Reconciler) observeUpgrade(ctx context.Context, from source, o *observation) error {
	if err := observeSave(ctx, from, o); err != nil {
		return err
	}
	return o.observeRemade()
}

// observeSave reads the EtcdSnapshot that is made before a change of version, where one is to be.
func observeSave(ctx context.Context, from source, o *observation) error {
	if !plan.NeedsSave(o.desired, o.observed) {
		return nil
	}
	save := plan.Save{State: plan.SaveAbsent, Name: saveName(o.cluster, o.desired)}
	var snapshot v1alpha1.EtcdSnapshot
	err := from.Get(ctx, key(o, save.Name), &snapshot)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get EtcdSnapshot %s/%s: %w", o.cluster.Namespace, save.Name, err)
	default:
		save.State, save.Message = saveState(o.cluster, &snapshot)
	}
	o.observed.Save = save
	return nil
}

// observeRemade finds whether the Pod that would come in the place of an outdated one is another one: until an etcd of the version
// that is asked for may start on its data, it may be the same.
func (o *observation) observeRemade() error {
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if m.Make != plan.MakeOutdated {
			continue
		}
		pod, claim, cluster := o.pods[m.Name], o.claimOf(m.Name), o.cluster.DeepCopy()
		cluster.Spec.Version = plan.StartsAs(m.Name, o.desired, o.observed)
		hash, err := manifests.SpecHash(manifests.OnVolume(cluster, claim))
		if err != nil {
			return err
		}
		m.Remade = rules.YesNoOf(m.Room == plan.RoomMounts || makeOf(pod, hash) == plan.MakeOutdated)
	}
	return nil
}

func saveState(cluster *v1alpha1.EtcdCluster, snapshot *v1alpha1.EtcdSnapshot) (plan.SaveState, string) {
	switch {
	case !metav1.IsControlledBy(snapshot, cluster):
		return plan.SaveFailed, "it has another owner"
	case snapshot.DeletionTimestamp != nil:
		return plan.SaveComing, ""
	case snapshot.Status.Phase == v1alpha1.SnapshotSucceeded:
		return plan.SaveDone, ""
	case snapshot.Status.Phase == v1alpha1.SnapshotFailed:
		return plan.SaveFailed, strings.TrimSuffix(snapshot.Status.Message, ".")
	default:
		return plan.SaveComing, ""
	}
}
