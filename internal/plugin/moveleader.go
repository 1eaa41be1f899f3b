package plugin

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

// agentTLSDir has the Secret for the client port in the container of the agent.
const agentTLSDir = "/run/druid/secrets/client"

// movedTo is the answer of the agent: the member that leads then.
type movedTo struct {
	Member   string `json:"member"`
	MemberID string `json:"memberID"`
}

func (o *options) moveLeaderCommand() *cobra.Command {
	command := o.forCluster(&cobra.Command{
		Use:   "move-leader CLUSTER [MEMBER]",
		Short: "Move the leadership to another member",
		Long: "Move the raft leadership of an EtcdCluster to a named member, or without a name to the voter with the longest log.\n" +
			"The leader's agent does it, so you need create of pods/exec. Writes wait for less than an election timeout. druid is not involved.",
		Example: "  kubectl druid move-leader demo\n  kubectl druid move-leader demo demo-lgmkl",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return fmt.Errorf("got %d arguments, want the name of one EtcdCluster, and perhaps of one of its members", len(args))
		},
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		objects, err := k.objects(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		c, target := view.Of(objects, o.now()), ""
		if len(args) == 2 {
			target = args[1]
		}
		doing := fmt.Sprintf("move the leadership of EtcdCluster %s/%s", k.namespace, args[0])
		if err := k.movable(objects.Cluster, c, target); err != nil {
			return fmt.Errorf("%s: %w. Nothing was changed", doing, err)
		}
		var to movedTo
		if err := k.askAgent(cmd.Context(), c.Leader, stepDown(objects.Cluster, target), &to); err != nil {
			return fmt.Errorf("%s: the agent of member %s: %w. See who leads: %s", doing, c.Leader, err, k.invoke(objects.Cluster, "status"))
		}
		p := o.page(cmd, k)
		p.movedLeader(objects.Cluster, c.Leader, to)
		return p.err
	})
	command.ValidArgsFunction = o.completeMembers
	return command
}

// movedLeader prints who leads now.
func (p *page) movedLeader(c v1alpha1.EtcdCluster, from string, to movedTo) {
	p.line(cell{text: fmt.Sprintf("The leadership of EtcdCluster %s/%s moved from member %s to member %s.", c.Namespace, c.Name, from, or(to.Member))})
	p.line(cell{text: "The agents report it within 15 seconds: " + p.invoke(c, "status")})
}

// movable says why the leadership cannot move to the member, or to any if it has no name.
func (s selection) movable(c v1alpha1.EtcdCluster, v view.Cluster, target string) error {
	switch {
	case c.Spec.Replicas == 0:
		return fmt.Errorf("it is paused, so no member leads. Resume it first: %s", s.resume(c))
	case v.Leader == "":
		return fmt.Errorf("no member reports that it leads. See the members: %s", s.invoke(c, "status"))
	case target == "":
		if !slices.ContainsFunc(v.Members, func(m view.Member) bool { return m.Name != v.Leader && cannotLead(m) == nil }) {
			return errors.New("no other member votes and is ready")
		}
		return nil
	}
	i := slices.IndexFunc(v.Members, func(m view.Member) bool { return m.Name == target })
	switch {
	case i < 0:
		return notMember(c, target)
	case target == v.Leader:
		return fmt.Errorf("member %s leads already", target)
	default:
		return cannotLead(v.Members[i])
	}
}

// cannotLead says why a member cannot take the leadership. The leader's agent checks it again with etcd.
func cannotLead(m view.Member) error {
	switch {
	case m.Role == string(leases.RoleLearner):
		return fmt.Errorf("member %s is a learner, which does not vote", m.Name)
	case m.State != string(v1alpha1.MemberReady):
		return fmt.Errorf("member %s is %s: %s", m.Name, or(m.State), or(strings.TrimSuffix(m.Message, ".")))
	default:
		return nil
	}
}

// stepDown is the command of the agent. It dials members as the agent does.
func stepDown(c v1alpha1.EtcdCluster, target string) []string {
	command := []string{"step-down"}
	if target != "" {
		command = append(command, "--to", target)
	}
	if !usesTLS(c) || len(c.Status.Endpoints) == 0 {
		return command
	}
	endpoint, err := url.Parse(c.Status.Endpoints[0])
	if err != nil {
		return command // druid writes URLs
	}
	command = append(command, "--tls-dir", agentTLSDir, "--tls-name", strings.TrimSuffix(endpoint.Hostname(), "."))
	if c.Status.TLS.Client.Stage == v1alpha1.TLSStageBoth {
		command = append(command, "--client-plaintext")
	}
	return command
}
