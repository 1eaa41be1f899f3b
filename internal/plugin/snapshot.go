package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
)

// snapshotTimeout is more than the hour and five minutes within which an EtcdSnapshot that began ends.
const snapshotTimeout = 70 * time.Minute

// snapshotFlags are those of the command snapshot.
type snapshotFlags struct {
	waiting
	kind          string
	final, verify bool
}

func (o *options) snapshotCommand() *cobra.Command {
	f := snapshotFlags{waiting: waiting{timeout: snapshotTimeout}, kind: string(v1alpha1.SnapshotFull)}
	command := o.forCluster(&cobra.Command{
		Use:   "snapshot CLUSTER",
		Short: "Request a backup of an EtcdCluster",
		Long: "Request a backup of an EtcdCluster to the store of its spec.backup: create an EtcdSnapshot. The leader's agent makes the backup.\n" +
			"With --wait, show the progress, and end when the backup is saved or has failed. An interrupt ends the command, and not the backup.",
		Example: "  kubectl druid snapshot demo --wait\n  kubectl druid snapshot demo --final --wait",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		name, err := k.createSnapshot(cmd.Context(), args[0], f)
		if err != nil {
			return err
		}
		p := o.page(cmd, k)
		p.line(cell{text: fmt.Sprintf("EtcdSnapshot %s/%s created", k.namespace, name)})
		again := k.command(fmt.Sprintf("kubectl -n %s get etcdsnapshot %s", k.namespace, name))
		if !f.wait {
			p.line(cell{text: "See the progress: " + again})
			return p.err
		}
		return f.await(cmd, p, fmt.Sprintf("EtcdSnapshot %s/%s", k.namespace, name), again, func(ctx context.Context) (waitState, error) {
			return k.snapshotState(ctx, name)
		})
	})
	flags := command.Flags()
	flags.StringVar(&f.kind, "type", f.kind, "`type` of the backup: Full, or Delta for the changes since the last backup")
	flags.BoolVar(&f.final, "final", false, "make a backup that retention never deletes, before you delete, pause or move the cluster")
	flags.BoolVar(&f.verify, "verify", false, "restore the backup into a scratch directory and compare it, before it counts as saved")
	f.bind(command, "the backup is saved or has failed")
	return command
}

// createSnapshot returns the name of the EtcdSnapshot.
func (k *kube) createSnapshot(ctx context.Context, cluster string, f snapshotFlags) (string, error) {
	c, err := k.cluster(ctx, cluster)
	if err != nil {
		return "", err
	}
	if c.Spec.Backup == nil {
		return "", fmt.Errorf("EtcdCluster %s/%s has no spec.backup. Set it, or create an EtcdSnapshot with a store of its own", c.Namespace, c.Name)
	}
	if c.Spec.Replicas == 0 {
		return "", fmt.Errorf("EtcdCluster %s/%s is paused, so no agent can make a backup. Resume it first: %s. Nothing was created",
			c.Namespace, c.Name, k.resume(c))
	}
	spec := map[string]any{"clusterRef": map[string]any{"name": cluster}, "type": f.kind}
	if f.final {
		spec["final"] = true
	}
	if f.verify {
		spec["verify"] = true
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "EtcdSnapshot", "metadata": map[string]any{"generateName": cluster + "-"}, "spec": spec,
	}}
	created, err := k.dynamic.Resource(snapshotResource).Namespace(k.namespace).Create(ctx, object, metav1.CreateOptions{FieldManager: manager})
	if err != nil {
		return "", fmt.Errorf("create an EtcdSnapshot of EtcdCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	return created.GetName(), nil
}

// snapshotState is the state of an EtcdSnapshot.
func (k *kube) snapshotState(ctx context.Context, name string) (waitState, error) {
	object, err := k.dynamic.Resource(snapshotResource).Namespace(k.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return waitState{}, fmt.Errorf("get EtcdSnapshot %s/%s: %w", k.namespace, name, err)
	}
	s, err := convert[v1alpha1.EtcdSnapshot](*object)
	switch {
	case err != nil:
		return waitState{err: err}, nil //nolint:nilerr // it never succeeds
	case s.Status.Phase == v1alpha1.SnapshotFailed:
		return waitState{err: fmt.Errorf("EtcdSnapshot %s/%s failed: %s", s.Namespace, s.Name, s.Status.Message)}, nil
	default:
		return waitState{text: progressOf(s.Status), ended: s.Status.Phase == v1alpha1.SnapshotSucceeded}, nil
	}
}

// progressOf is one line about the phase.
func progressOf(s v1alpha1.EtcdSnapshotStatus) string {
	text := or(string(s.Phase))
	if s.Message != "" {
		text += ": " + sentence(s.Message)
	}
	if a := s.Artifact; a != nil {
		text += fmt.Sprintf("\n  revision %s, %s\n  %s", number(view.Known(a.Revision)), size(view.Known(a.Size)), or(a.URI))
	}
	return text
}
