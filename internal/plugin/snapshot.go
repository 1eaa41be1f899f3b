package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
)

const (
	// snapshotTimeout is more than the hour and five minutes within which an EtcdSnapshot that began ends.
	snapshotTimeout = 70 * time.Minute
	// snapshotPoll is the pause between two looks at an EtcdSnapshot.
	snapshotPoll = time.Second
)

// snapshotFlags are those of the command snapshot.
type snapshotFlags struct {
	kind                string
	final, verify, wait bool
	timeout             time.Duration
}

func (o *options) snapshotCommand() *cobra.Command {
	f := snapshotFlags{kind: string(v1alpha1.SnapshotFull), timeout: snapshotTimeout}
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
		if !f.wait {
			p.line(cell{text: "See the progress: " + k.command(fmt.Sprintf("kubectl -n %s get etcdsnapshot %s", k.namespace, name))})
			return p.err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		progress := cli.NewProgress(cmd.ErrOrStderr())
		return progress.During(fmt.Sprintf("EtcdSnapshot %s/%s", k.namespace, name), func() error { return k.await(ctx, name, p, progress) })
	})
	flags := command.Flags()
	flags.StringVar(&f.kind, "type", f.kind, "`type` of the backup: Full, or Delta for the changes since the last backup")
	flags.BoolVar(&f.final, "final", false, "make a backup that retention never deletes, before you delete, pause or move the cluster")
	flags.BoolVar(&f.verify, "verify", false, "restore the backup into a scratch directory and compare it, before it counts as saved")
	flags.BoolVar(&f.wait, "wait", false, "show the progress, and wait until the backup is saved or has failed")
	flags.DurationVar(&f.timeout, "timeout", f.timeout, "how long to wait")
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
		return "", fmt.Errorf("EtcdCluster %s/%s is paused, so no agent can make a backup. Resume it first: %s. Nothing was created", c.Namespace, c.Name, k.resume(c))
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

// await prints each change of the EtcdSnapshot until it ends.
func (k *kube) await(ctx context.Context, name string, p *page, progress *cli.Progress) error {
	last := v1alpha1.EtcdSnapshotStatus{}
	for poll := time.Tick(snapshotPoll); ; {
		object, err := k.dynamic.Resource(snapshotResource).Namespace(k.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return fmt.Errorf("get EtcdSnapshot %s/%s: %w", k.namespace, name, err)
		}
		if err == nil {
			var s v1alpha1.EtcdSnapshot
			if s, err = convert[v1alpha1.EtcdSnapshot](*object); err != nil {
				return err
			}
			if s.Status.Phase != last.Phase || s.Status.Message != last.Message {
				last = s.Status
				progress.Apart(func() { p.line(cell{text: progressOf(s.Status)}) })
			}
			if done, err := ended(s); done {
				return errors.Join(err, p.err)
			}
		}
		select {
		case <-poll:
		case <-ctx.Done():
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("it is %s. It continues without this command: %s", or(string(last.Phase)),
					k.command(fmt.Sprintf("kubectl -n %s get etcdsnapshot %s", k.namespace, name)))
			}
			return fmt.Errorf("wait for EtcdSnapshot %s/%s: %w", k.namespace, name, err)
		}
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

// ended says whether the EtcdSnapshot ended, and returns an error if it failed.
func ended(s v1alpha1.EtcdSnapshot) (bool, error) {
	switch s.Status.Phase {
	case v1alpha1.SnapshotSucceeded:
		return true, nil
	case v1alpha1.SnapshotFailed:
		return true, fmt.Errorf("EtcdSnapshot %s/%s failed: %s", s.Namespace, s.Name, s.Status.Message)
	default:
		return false, nil
	}
}
