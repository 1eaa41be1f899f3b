package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// handsOffPage explains what druid and the agents do meanwhile.
const handsOffPage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/run/hands-off.md"

func (o *options) handsOffCommand() *cobra.Command {
	var reason string
	var end bool
	command := o.forCluster(&cobra.Command{
		Use:   "hands-off CLUSTER",
		Short: "Keep druid off an EtcdCluster while you work on it by hand, or let druid act again",
		Long: "Keep druid off an EtcdCluster while you work on it by hand: set the annotation " + v1alpha1.HandsOffAnnotation + " to your reason. druid then\n" +
			"creates, changes and deletes nothing of the cluster. The agents continue, and etcd continues to serve. With --end, let druid act again.",
		Example: "  kubectl druid hands-off demo --reason 'disk copy on n2, ask Kim'\n  kubectl druid hands-off demo --end",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		c, err := k.cluster(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if end {
			return o.endHandsOff(cmd, k, c)
		}
		return o.handsOff(cmd, k, c, strings.TrimSpace(reason))
	})
	flags := command.Flags()
	flags.StringVar(&reason, "reason", "", "why druid must not act. Other people see this `text` in the status")
	flags.BoolVar(&end, "end", false, "let druid act again")
	command.MarkFlagsMutuallyExclusive("reason", "end")
	command.MarkFlagsOneRequired("reason", "end")
	return command
}

// handsOff keeps druid off an EtcdCluster.
func (o *options) handsOff(cmd *cobra.Command, k *kube, c v1alpha1.EtcdCluster, reason string) error {
	standing := c.Annotations[v1alpha1.HandsOffAnnotation]
	switch {
	case reason == "":
		return errors.New("--reason is empty. Say why druid must not act, for other people read it in the status")
	case standing != "":
		return fmt.Errorf("druid is kept off EtcdCluster %s/%s already: %s. Nothing was changed. Ask who set this before you end it: %s --end",
			c.Namespace, c.Name, standing, k.invoke(c, "hands-off"))
	}
	if err := k.annotate(cmd, c, v1alpha1.HandsOffAnnotation, reason); err != nil {
		return err
	}
	p := o.page(cmd, k)
	p.line(cell{text: fmt.Sprintf("druid is to take no action for EtcdCluster %s/%s: %s.", c.Namespace, c.Name, strings.TrimRight(reason, "."))})
	p.line(cell{text: "Begin your work when druid confirms it:"})
	p.line(cell{text: "  " + p.command(fmt.Sprintf(
		"kubectl -n %s wait etcdcluster/%s --for=jsonpath='{.status.conditions[?(@.type==\"Progressing\")].reason}'=HandsOff", c.Namespace, c.Name))})
	if r := c.Status.Recovery; r != nil && (r.Phase == v1alpha1.RecoveryPreparing || r.Phase == v1alpha1.RecoveryExecuting) {
		p.line(cell{"The agents still carry out the recovery that druid ordered. Wait until it ends: " + k.invoke(c, "recover"), middle})
	}
	if r := c.Status.Recovery; r != nil && r.Phase == v1alpha1.RecoverySaving {
		p.line(cell{"Clients are cut off for a restore in place. They stay cut off until you let druid act again: " + k.invoke(c, "hands-off") + " --end", middle})
	}
	p.line(cell{text: "The agents continue. Read what they do to members before you start etcd on another volume."})
	p.line(cell{text: "When you have finished: " + k.invoke(c, "hands-off") + " --end"})
	p.line(cell{text: handsOffPage})
	return p.err
}

// endHandsOff lets druid act again.
func (o *options) endHandsOff(cmd *cobra.Command, k *kube, c v1alpha1.EtcdCluster) error {
	standing := c.Annotations[v1alpha1.HandsOffAnnotation]
	if standing == "" {
		return fmt.Errorf("druid is not kept off EtcdCluster %s/%s: it has no annotation %s", c.Namespace, c.Name, v1alpha1.HandsOffAnnotation)
	}
	if err := k.annotate(cmd, c, v1alpha1.HandsOffAnnotation, nil); err != nil {
		return err
	}
	p := o.page(cmd, k)
	p.line(cell{text: fmt.Sprintf("druid acts for EtcdCluster %s/%s again. The reason was: %s.", c.Namespace, c.Name, strings.TrimRight(standing, "."))})
	p.line(cell{text: "See what it does: " + k.invoke(c, "status")})
	return p.err
}
