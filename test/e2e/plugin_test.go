package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/plugin"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// pluginOf runs kubectl druid for one cluster as a user does, with the kubeconfig of an administrator.
type pluginOf struct{ *harness.Cluster }

func (p pluginOf) run(ctx context.Context, input string, args ...string) (stdout, stderr string, code int) {
	root := plugin.NewCommand()
	var out, errs bytes.Buffer
	root.SetIn(strings.NewReader(input))
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(slices.Insert(args, 1, "--kubeconfig", rig.Lab.KubeconfigPath(), "--namespace", p.Namespace))
	code = cli.Main(ctx, root, slog.New(slog.DiscardHandler))
	return out.String(), errs.String(), code
}

// prints waits until the command ends with the code and prints all the words.
func (p pluginOf) prints(t *testing.T, code int, args []string, words ...string) {
	t.Helper()
	harness.Eventually(t, healWithin, "kubectl druid "+strings.Join(args, " "), func(ctx context.Context) error {
		stdout, stderr, got := p.run(ctx, "", slices.Clone(args)...)
		for _, word := range words {
			if !strings.Contains(stdout, word) {
				return fmt.Errorf("no %q in\n%s%s", word, stdout, stderr)
			}
		}
		if got != code {
			return fmt.Errorf("exit code %d, want %d\n%s%s", got, code, stdout, stderr)
		}
		return nil
	})
}

// The plugin sees a cluster with TLS in health and out of it, runs the real etcdctl in it, and pauses and resumes it.
func TestKubectlPluginShowsAndOperatesACluster(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.TLS(time.Hour))
	view := c.AwaitMembers(t, 3, formWithin)
	p := pluginOf{c}
	p.prints(t, 0, []string{"status", c.Name}, "Serving", "3/3 members ready", view.Leader(), "Nothing to do.")
	p.prints(t, 0, []string{"get"}, c.Name, "Serving")

	for _, step := range []struct{ input, args, want string }{
		{"from a pipe", "etcdctl " + c.Name + " --stdin -- put greeting", "OK"},
		{"not read", "etcdctl " + c.Name + " --member " + view.Follower() + " -- get greeting --print-value-only", "from a pipe"},
	} {
		stdout, stderr, code := p.run(t.Context(), step.input, strings.Fields(step.args)...)
		if code != 0 || strings.TrimSpace(stdout) != step.want {
			t.Errorf("kubectl druid %s: exit code %d, printed %q %q, want %q", step.args, code, stdout, stderr, step.want)
		}
	}
	if _, stderr, code := p.run(t.Context(), "", "etcdctl", c.Name, "--", "no-such-command"); code != 1 && code != 128 || stderr == "" {
		t.Errorf("a command that etcdctl does not have: exit code %d, %q", code, stderr)
	}
	p.prints(t, 0, []string{"logs", c.Name, "--since", "1h"}, view.Leader()+" etcd", view.Follower()+" agent", "ready to serve client requests")
	p.prints(t, 0, []string{"connect", c.Name}, c.Name+"-connection", "umask 077")

	hold := c.HoldDown(t, view.Follower())
	p.prints(t, 2, []string{"status", c.Name}, "MembersNotReady", "2/3 members ready", view.Follower())
	p.prints(t, 0, []string{"why", c.Name}, "AllMembersReady", view.Follower())
	hold.Release(t)
	p.prints(t, 0, []string{"status", c.Name}, "Serving", "3/3 members ready")

	for _, step := range []struct {
		state string
		args  []string
	}{{"Paused", []string{"pause", c.Name}}, {"Serving", []string{"resume", c.Name, "--replicas", "3"}}} {
		if stdout, stderr, code := p.run(t.Context(), "", step.args...); code != 0 {
			t.Fatalf("kubectl druid %v: exit code %d, %s%s", step.args, code, stdout, stderr)
		}
		state := step.state
		harness.Eventually(t, scaleWithin, "the cluster is "+state, func(ctx context.Context) error {
			if stdout, _, code := p.run(ctx, "", "get"); code != 0 || !strings.Contains(stdout, state) {
				return fmt.Errorf("exit code %d\n%s", code, stdout)
			}
			return nil
		})
	}
}
