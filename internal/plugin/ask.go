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
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

const (
	// agentPath and agentConfig are the paths of the agent and of its configuration in its container.
	agentPath   = "/usr/local/bin/agent"
	agentConfig = "/etc/druid/config.yaml"
	// maxAnswer bounds the answer of an agent, in bytes. A lineage needs about 500, and a year has a few. A plan needs about 250 for each
	// delta backup after a full one, and a day has 8640 of them with a period of 10 seconds.
	maxAnswer = 32 << 20
	// agentSaysNo is the exit code of the agent if the store has no backups, or none that leads to a target.
	agentSaysNo = 2
)

// agentReads is what a command waits for while an agent reads a store. With many objects, this takes minutes.
const agentReads = "an agent that reads the backups"

// awaited returns the result of work, and shows meanwhile what the command waits for.
func awaited[T any](cmd *cobra.Command, what string, work func() (T, error)) (result T, err error) {
	err = cli.NewProgress(cmd.ErrOrStderr()).During(what, func() (err error) {
		result, err = work()
		return err
	})
	return result, err
}

// askAgents asks one agent after another about the backups, until one answers, and returns its member. The answer is JSON.
func (k *kube) askAgents(ctx context.Context, o view.Objects, c view.Cluster, question []string, into any) (member string, err error) {
	if o.Cluster.Spec.Backup == nil {
		return "", errors.New("it has no spec.backup. For backups of EtcdSnapshots with a store of their own, see " + commandLinePage)
	}
	var failed []string
	for _, pod := range agentPods(o, c) {
		err := k.askAgent(ctx, pod, question, into)
		_, ended := errors.AsType[answer](err)
		switch {
		case err == nil:
			return pod, nil
		case ended || refused(err) || ctx.Err() != nil:
			return "", fmt.Errorf("the agent of member %s: %w", pod, err)
		default: // another agent can be reached perhaps
			failed = append(failed, fmt.Sprintf("member %s: %v", pod, err))
		}
	}
	why := "it has no Pod. See the Pods: " + k.podsCommand(o.Cluster)
	switch {
	case len(failed) > 0:
		why = strings.Join(failed, "; ") + ". See the Pods: " + k.podsCommand(o.Cluster)
	case c.State == view.StatePaused:
		why = "it is paused. To resume it: " + k.resume(o.Cluster)
	}
	return "", fmt.Errorf("%w: %s. To list the backups without an agent, see %s", errNoAgent, why, commandLinePage)
}

// refused says whether the user may not run commands in Pods. The error of a refused connection has only the text of the API server.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || strings.Contains(err.Error(), "is forbidden: ")
}

// podsCommand lists the Pods of the members.
func (s selection) podsCommand(c v1alpha1.EtcdCluster) string {
	return s.command(fmt.Sprintf("kubectl -n %s get pods -l %s=%s", c.Namespace, leases.LabelCluster, c.Name))
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

// errNoAgent says that the question came to no agent.
var errNoAgent = errors.New("no agent can be reached")

// askAgent runs a command of the agent in a Pod, and reads its answer.
func (k *kube) askAgent(ctx context.Context, pod string, question []string, into any) error {
	out, errs := &bounded{max: maxAnswer}, &bounded{max: maxLogLine}
	err := k.exec(ctx, execution{pod, containerAgent, append([]string{agentPath}, question...)}, remotecommand.StreamOptions{Stdout: out, Stderr: errs})
	if ended, ok := errors.AsType[clientexec.CodeExitError](err); ok {
		return answered(errs.String(), ended.Code)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		return fmt.Errorf("read its answer: %w. Use the plugin of the version of druid", err)
	}
	return nil
}

// answer is an error that an agent answered with, so that no other agent is asked.
type answer struct{ error }

func (a answer) Unwrap() error { return a.error }

// answered is the error of an agent, as the agent says it.
func answered(text string, code int) error {
	text = strings.TrimSpace(text)
	if command, said, found := strings.Cut(text, ": "); found && strings.HasPrefix(command, "agent ") {
		text = said
	}
	switch {
	case strings.Contains(text, "unknown flag: --agent-config"):
		text = "its version cannot read backups for the plugin. Upgrade druid, or see " + commandLinePage
	case strings.Contains(text, `unknown command "step-down"`):
		text = "its version cannot move the leadership for the plugin. Upgrade druid, or run etcdctl move-leader with kubectl druid etcdctl"
	case text == "":
		text = fmt.Sprintf("the command ended with code %d, and said nothing", code)
	}
	if code != agentSaysNo {
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
