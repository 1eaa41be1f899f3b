package plugin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

func (o *options) pauseCommand() *cobra.Command {
	return o.forCluster(&cobra.Command{
		Use:   "pause CLUSTER",
		Short: "Stop all members of an EtcdCluster, and keep its data",
		Long: "Stop all members of an EtcdCluster: set spec.replicas to 0. Members leave until one is left, and druid deletes its Pod.\n" +
			"One PersistentVolumeClaim keeps the data. Clients are not served until you resume the cluster.",
		Example: "  kubectl druid pause demo",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		return o.scale(cmd, k, args[0], 0, func(c v1alpha1.EtcdCluster) error {
			if c.Spec.Replicas == 0 {
				return errors.New("spec.replicas is 0 already")
			}
			return nil
		})
	})
}

func (o *options) resumeCommand() *cobra.Command {
	var replicas int32
	command := o.forCluster(&cobra.Command{
		Use:     "resume CLUSTER",
		Short:   "Start a paused EtcdCluster with its data",
		Long:    "Start a paused EtcdCluster: set spec.replicas. The member that kept the data starts first, and the others join it.",
		Example: "  kubectl druid resume demo --replicas 3",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if replicas < 1 {
			return fmt.Errorf("--replicas is %d, want an odd number of members", replicas)
		}
		return o.scale(cmd, k, args[0], replicas, func(c v1alpha1.EtcdCluster) error {
			if c.Spec.Replicas != 0 {
				return fmt.Errorf("spec.replicas is %d, so it is not paused. Use kubectl scale to change the number of members", c.Spec.Replicas)
			}
			return nil
		})
	})
	command.Flags().Int32Var(&replicas, "replicas", 0, "`number` of members")
	_ = command.MarkFlagRequired("replicas")
	return command
}

// scale sets spec.replicas, if that makes sense.
func (o *options) scale(cmd *cobra.Command, k *kube, name string, replicas int32, check func(v1alpha1.EtcdCluster) error) error {
	cluster, err := k.cluster(cmd.Context(), name)
	if err != nil {
		return err
	}
	if err := check(cluster); err != nil {
		return fmt.Errorf("EtcdCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	// The resourceVersion refuses the patch if the EtcdCluster changed after the check.
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": cluster.ResourceVersion}, "spec": map[string]any{"replicas": replicas}}
	if err := k.patch(cmd, cluster, patch); err != nil {
		return err
	}
	p := o.page(cmd, k)
	p.line(cell{text: fmt.Sprintf("spec.replicas of EtcdCluster %s/%s was %d and is %d.", cluster.Namespace, cluster.Name, cluster.Spec.Replicas, replicas)})
	p.line(cell{text: "See the progress: " + k.invoke(cluster, "status")})
	return p.err
}
