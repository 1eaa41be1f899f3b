package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

const (
	// agentPath and agentConfig are the paths of the agent and of its configuration in its container.
	agentPath   = "/usr/local/bin/agent"
	agentConfig = "/etc/druid/config.yaml"
	// maxListed bounds the answer of an agent, in bytes. A lineage needs about 500, and a year has a few.
	maxListed = 32 << 20
	// agentSaysNone is the exit code of the agent if the store has no backups.
	agentSaysNone = 2

	commandLinePage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/back-up/command-line.md"
)

// backups are those of one EtcdCluster, as an agent lists them.
type backups struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// Member is the one whose agent read the store.
	Member         string            `json:"member"`
	Store          string            `json:"store"`
	Prefix         string            `json:"prefix"`
	Lineages       []catalog.Summary `json:"lineages"`
	UnknownObjects []string          `json:"unknownObjects,omitempty"`
}

func (o *options) backupsCommand() *cobra.Command {
	output := formatTable
	command := o.forCluster(&cobra.Command{
		Use:   "backups CLUSTER",
		Short: "List the backups of an EtcdCluster, and what can be restored",
		Long: "List the backups of an EtcdCluster, and what can be restored. The leader's agent reads the store, or the agent of another member.\n" +
			"So you need no credentials of the store, but create of pods/exec. The exit code is 2 if the store has no backups.",
		Example: "  kubectl druid backups demo\n  kubectl druid backups demo --output json",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if err := checkFormat(output, formatTable, formatWide, formatJSON, formatYAML); err != nil {
			return err
		}
		objects, err := k.objects(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		listed, err := k.backups(cmd.Context(), objects, view.Of(objects, o.now()))
		if err != nil {
			return fmt.Errorf("list the backups of EtcdCluster %s/%s: %w", k.namespace, args[0], err)
		}
		if output == formatJSON || output == formatYAML {
			return printData(cmd.OutOrStdout(), listed, output)
		}
		p := newPage(cmd.OutOrStdout(), o.now())
		p.timeline(listed, output == formatWide)
		return p.err
	})
	bindOutput(command, &output, formatTable, formatWide, formatJSON, formatYAML)
	return command
}

// backups asks one agent after another, until one answers.
func (k *kube) backups(ctx context.Context, o view.Objects, c view.Cluster) (backups, error) {
	if o.Cluster.Spec.Backup == nil {
		return backups{}, errors.New("it has no spec.backup. For backups of EtcdSnapshots with a store of their own, see " + commandLinePage)
	}
	var failed []string
	for _, pod := range agentPods(o, c) {
		found, err := k.askAgent(ctx, pod)
		_, ended := errors.AsType[answer](err)
		switch {
		case err == nil:
			found.Namespace, found.Cluster, found.Member = k.namespace, c.Name, pod
			return found, nil
		case ended || refused(err) || ctx.Err() != nil:
			return backups{}, fmt.Errorf("the agent of member %s: %w", pod, err)
		default: // another agent can be reached perhaps
			failed = append(failed, fmt.Sprintf("member %s: %v", pod, err))
		}
	}
	why := "it has no Pod"
	if len(failed) > 0 {
		why = strings.Join(failed, "; ")
	}
	return backups{}, fmt.Errorf("no agent can be reached: %s. See the Pods: %s. To list the backups without an agent, see %s", why, podsCommand(o.Cluster), commandLinePage)
}

// refused says whether the user may not run commands in Pods. The error of a refused connection has only the text of the API server.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || strings.Contains(err.Error(), "is forbidden: ")
}

// podsCommand lists the Pods of the members.
func podsCommand(c v1alpha1.EtcdCluster) string {
	return fmt.Sprintf("kubectl -n %s get pods -l %s=%s", c.Namespace, leases.LabelCluster, c.Name)
}

// agentPods are the Pods of the cluster in the order in which their agents are asked: the leader, the members that are ready, all others.
func agentPods(o view.Objects, c view.Cluster) (names []string) {
	rank := func(name string) int {
		i := slices.IndexFunc(c.Members, func(m view.Member) bool { return m.Name == name })
		switch {
		case name == c.Leader:
			return 0
		case i >= 0 && c.Members[i].State == string(v1alpha1.MemberReady):
			return 1
		default:
			return 2
		}
	}
	for _, pod := range o.Pods {
		if slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool { return c.Name == containerAgent }) {
			names = append(names, pod.Name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}

// askAgent has the agent in a Pod list the backups.
func (k *kube) askAgent(ctx context.Context, pod string) (found backups, err error) {
	out, errs := &bounded{max: maxListed}, &bounded{max: maxLogLine}
	err = k.exec(ctx, execution{pod, containerAgent, []string{agentPath, "backup", "list", "--agent-config", agentConfig, "--output", formatJSON}},
		remotecommand.StreamOptions{Stdout: out, Stderr: errs})
	if ended, ok := errors.AsType[clientexec.CodeExitError](err); ok {
		return found, answered(errs.String(), ended.Code)
	}
	if err != nil {
		return found, err
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return found, fmt.Errorf("read its answer: %w. Use the plugin of the version of druid", err)
	}
	return found, nil
}

// answer is an error that an agent answered with, so that no other agent is asked.
type answer struct{ error }

func (a answer) Unwrap() error { return a.error }

// answered is the error of an agent, as the agent says it.
func answered(text string, code int) error {
	text = strings.TrimPrefix(strings.TrimSpace(text), "agent backup list: ")
	switch {
	case strings.Contains(text, "unknown flag: --agent-config"):
		text = "its version cannot list backups for the plugin. Upgrade druid, or see " + commandLinePage
	case text == "":
		text = fmt.Sprintf("the command ended with code %d, and said nothing", code)
	}
	if code != agentSaysNone {
		code = 1
	}
	return answer{cli.WithCode(code, errors.New(text))}
}

// bounded is a buffer with a maximum.
type bounded struct {
	bytes.Buffer
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		return 0, fmt.Errorf("the answer is larger than %d bytes", b.max)
	}
	return b.Buffer.Write(p)
}
