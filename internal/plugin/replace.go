package plugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// replacePage explains the replacement of a member, and scalePage the order in which members leave.
const (
	replacePage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/run/replace-member.md"
	scalePage   = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/run/scale.md"
)

func (o *options) replaceCommand() *cobra.Command {
	var cancel, keep bool
	w := waiting{timeout: waitTimeout}
	command := o.forCluster(&cobra.Command{
		Use:   "replace CLUSTER MEMBER",
		Short: "Request a new member in the place of a named one, or withdraw that request",
		Long: "Request a new member in the place of a named one: set the annotation " + v1alpha1.ReplaceAnnotation + ". The new member joins first.\n" +
			"When it votes, druid removes the named member and deletes its PersistentVolumeClaim, if any. The command refuses a name that is no " +
			"member of the EtcdCluster.\n" +
			"With --keep-volume, add the member to the annotation " + v1alpha1.KeepVolumeAnnotation +
			" too. druid then keeps its PersistentVolumeClaim, so that you can inspect the data.\n" +
			"With --wait, show the progress, and end when the member has left. An interrupt ends the command, and not the replacement.\n" +
			"With --cancel, remove the annotation " + v1alpha1.ReplaceAnnotation + ". The name of the member is optional then.",
		Example: "  kubectl druid replace demo demo-bqdq7 --wait\n  kubectl druid replace demo demo-bqdq7 --keep-volume\n  kubectl druid replace demo --cancel",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 || cancel && len(args) == 1 {
				return nil
			}
			return fmt.Errorf("got %d arguments, want the name of one EtcdCluster and of one of its members", len(args))
		},
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		cluster, err := k.cluster(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if cancel {
			return o.cancelReplace(cmd, k, cluster, args[1:])
		}
		return o.replace(cmd, k, cluster, args[1], keep, w)
	})
	command.ValidArgsFunction = o.completeMembers
	command.Flags().BoolVar(&cancel, "cancel", false, "withdraw the request")
	command.Flags().BoolVar(&keep, "keep-volume", false, "keep the PersistentVolumeClaim of the member, so that you can inspect its data")
	w.bind(command, "the member has left, or the request is withdrawn")
	command.MarkFlagsMutuallyExclusive("cancel", "keep-volume")
	command.MarkFlagsMutuallyExclusive("cancel", "wait")
	return command
}

// replace requests that a member is replaced, and with keep that its volume stays.
func (o *options) replace(cmd *cobra.Command, k *kube, c v1alpha1.EtcdCluster, member string, keep bool, w waiting) error {
	err := k.replaceable(c, member)
	if err == nil && keep {
		err = keepable(c)
	}
	if err != nil {
		return fmt.Errorf("replace member %s of EtcdCluster %s/%s: %w. Nothing was changed", member, c.Namespace, c.Name, err)
	}
	annotations := map[string]any{v1alpha1.ReplaceAnnotation: member}
	if keep {
		annotations[v1alpha1.KeepVolumeAnnotation] = keeping(c, member)
	}
	if err := k.annotateAll(cmd, c, annotations); err != nil {
		return err
	}
	p := o.page(cmd, k)
	p.line(cell{text: fmt.Sprintf("You requested a new member in the place of member %s of EtcdCluster %s/%s.", member, c.Namespace, c.Name)})
	p.line(cell{text: "A new member joins. When it votes, druid removes " + member + ", and deletes its Pod" +
		claimToo(c, keep || slices.Contains(v1alpha1.MemberNames(c.Annotations[v1alpha1.KeepVolumeAnnotation]), member)) + "."})
	if keep {
		p.line(cell{text: "See the volumes that druid kept: " + k.invoke(c, "kept-volumes")})
	}
	if c.Spec.Replicas == 1 {
		p.line(cell{text: "Until then the cluster has two members, and needs both to serve.", tone: middle})
	}
	p.waits(c)
	p.line(cell{text: "See the progress: " + k.invoke(c, "status")})
	p.line(cell{text: "Withdraw the request: " + k.invoke(c, "replace") + " --cancel"})
	p.line(cell{text: replacePage})
	return w.awaitCluster(cmd, k, p, c, "the replacement of member "+member, "status",
		func(now v1alpha1.EtcdCluster) waitState { return replaceState(now, member) })
}

// claimToo says what happens to the data of a member that was removed. keep says that the user asks for its volume.
func claimToo(c v1alpha1.EtcdCluster, keep bool) string {
	if c.Spec.Storage.Medium != "" { // the data is in the Pod
		return " with its data"
	}
	if keep || c.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenScaled == v1alpha1.RetainPersistentVolumeClaim {
		return ". Its PersistentVolumeClaim stays"
	}
	return " and its PersistentVolumeClaim"
}

// replaceable says why the member cannot be replaced.
func (s selection) replaceable(c v1alpha1.EtcdCluster, member string) error {
	asked, ready := c.Annotations[v1alpha1.ReplaceAnnotation], meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c.DeletionTimestamp != nil:
		return errors.New("the EtcdCluster is being deleted")
	case len(memberNames(c)) == 0:
		return errors.New("its status has no members yet")
	case !slices.Contains(memberNames(c), member):
		return notMember(c, member)
	case c.Spec.Replicas == 0:
		return fmt.Errorf("the EtcdCluster is paused. Resume it first: %s", s.resume(c))
	case ready != nil && ready.Reason == v1alpha1.ReasonQuorumLost:
		return fmt.Errorf("no quorum serves, and without one no member can join. See what to do: %s", s.invoke(c, "status"))
	case asked == member:
		return fmt.Errorf("its replacement is requested already. See the progress: %s", s.invoke(c, "status"))
	case slices.Contains(memberNames(c), asked):
		return fmt.Errorf("the replacement of member %s is requested already. Wait until that member has left, or withdraw the request: %s --cancel",
			asked, s.invoke(c, "replace"))
	default:
		return nil
	}
}

// cancelReplace withdraws the request.
func (o *options) cancelReplace(cmd *cobra.Command, k *kube, c v1alpha1.EtcdCluster, named []string) error {
	asked := c.Annotations[v1alpha1.ReplaceAnnotation]
	switch {
	case asked == "":
		return fmt.Errorf("EtcdCluster %s/%s has no request to replace a member", c.Namespace, c.Name)
	case len(named) > 0 && named[0] != asked:
		return fmt.Errorf("the request of EtcdCluster %s/%s is to replace member %s, and not %s. Nothing was changed", c.Namespace, c.Name, asked, named[0])
	}
	if err := k.annotate(cmd, c, v1alpha1.ReplaceAnnotation, nil); err != nil {
		return err
	}
	p := o.page(cmd, k)
	p.line(cell{text: fmt.Sprintf("You withdrew the request to replace member %s of EtcdCluster %s/%s.", asked, c.Namespace, c.Name)})
	if slices.Contains(memberNames(c), asked) {
		p.line(cell{text: "A new member that does not vote yet leaves. Otherwise druid removes a member that it selects itself. A removal that has begun continues."})
		if slices.Contains(v1alpha1.MemberNames(c.Annotations[v1alpha1.KeepVolumeAnnotation]), asked) && c.Spec.Storage.Medium == "" {
			p.line(cell{text: "Its volume would still be kept: it is in annotation " + v1alpha1.KeepVolumeAnnotation + "."})
		}
	} else {
		p.line(cell{text: "Member " + asked + " had left already, so nothing else changes."})
	}
	p.line(cell{text: "See the progress: " + k.invoke(c, "status")})
	return p.err
}

func (o *options) leaveFirstCommand() *cobra.Command {
	var none bool
	command := o.forCluster(&cobra.Command{
		Use:   "leave-first CLUSTER MEMBER...",
		Short: "Name the members that leave first when druid removes members",
		Long: "Name the members that leave first, in this order, when druid removes members: set the annotation " + v1alpha1.LeaveFirstAnnotation + ".\n" +
			"This alone removes no member. The names replace those that you set before. With --clear, remove the annotation.",
		Example: "  kubectl druid leave-first demo demo-bqdq7 demo-lgmkl\n  kubectl druid leave-first demo --clear",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case none && len(args) != 1:
				return fmt.Errorf("got %d arguments with --clear, want the name of one EtcdCluster", len(args))
			case !none && len(args) < 2:
				return fmt.Errorf("got %d arguments, want the name of one EtcdCluster and of its members", len(args))
			default:
				return nil
			}
		},
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		c, err := k.cluster(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		p := o.page(cmd, k)
		if none {
			if err := k.annotate(cmd, c, v1alpha1.LeaveFirstAnnotation, nil); err != nil {
				return err
			}
			p.line(cell{text: fmt.Sprintf("druid selects which members of EtcdCluster %s/%s leave first.", c.Namespace, c.Name)})
			return p.err
		}
		for _, member := range args[1:] {
			if !slices.Contains(memberNames(c), member) {
				return fmt.Errorf("name the members of EtcdCluster %s/%s that leave first: %w. Nothing was changed", c.Namespace, c.Name, notMember(c, member))
			}
		}
		if err := k.annotate(cmd, c, v1alpha1.LeaveFirstAnnotation, strings.Join(args[1:], ",")); err != nil {
			return err
		}
		p.line(cell{text: fmt.Sprintf("When druid removes members of EtcdCluster %s/%s, these leave first: %s.", c.Namespace, c.Name, strings.Join(args[1:], ", "))})
		p.line(cell{text: "To remove members: " + p.command(fmt.Sprintf("kubectl -n %s scale etcdcluster %s --replicas NUMBER", c.Namespace, c.Name))})
		p.line(cell{text: scalePage})
		return p.err
	})
	command.ValidArgsFunction = o.completeMembers
	command.Flags().BoolVar(&none, "clear", false, "remove the annotation, so that druid selects the members")
	return command
}

// memberNames are the names of the members in the status.
func memberNames(c v1alpha1.EtcdCluster) (names []string) {
	for _, m := range c.Status.Members {
		names = append(names, m.Name)
	}
	return names
}

func notMember(c v1alpha1.EtcdCluster, name string) error {
	return fmt.Errorf("%q is no member of it. Its members are %s", name, or(strings.Join(memberNames(c), ", ")))
}

// annotate sets an annotation of an EtcdCluster, or removes it if the value is nil. It is refused if the EtcdCluster changed since it was
// read.
func (k *kube) annotate(cmd *cobra.Command, c v1alpha1.EtcdCluster, key string, value any) error {
	return k.annotateAll(cmd, c, map[string]any{key: value})
}

// annotateAll is annotate for several annotations.
func (k *kube) annotateAll(cmd *cobra.Command, c v1alpha1.EtcdCluster, annotations map[string]any) error {
	return k.patch(cmd, c, map[string]any{"metadata": map[string]any{"resourceVersion": c.ResourceVersion, "annotations": annotations}})
}

// waits says what prevents druid from acting for the EtcdCluster at all.
func (p *page) waits(c v1alpha1.EtcdCluster) {
	if reason := p.keptOff(c); reason != "" {
		p.line(cell{"It waits: " + reason, middle})
	}
}

// completeMembers completes the name of an EtcdCluster, and then those of its members.
func (o *options) completeMembers(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return o.completeClusters(cmd, args, text)
	}
	k, err := o.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	c, err := k.cluster(cmd.Context(), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, name := range memberNames(c) {
		if !slices.Contains(args[1:], name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
