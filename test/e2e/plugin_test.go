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

// TestKubectlPluginOperatesCluster: kubectl plugin shows and operates a cluster.
// The plugin sees a cluster with TLS and backups in health and out of it, runs the real etcdctl and agents in it, requests what druid and
// the agents carry out, and pauses and resumes it.
func TestKubectlPluginOperatesCluster(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, harness.TLS(time.Hour), backedUp(s3.Store(bucket)), withPlantedSecrets)
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
	awaitBackups(t, c)
	p.readsAndRequestsRestores(t)
	p.movesTheLeadership(t, view)
	p.asksFirst(t, view)
	p.reportsAndChecks(t, view)

	held := view.Follower()
	hold := c.HoldDown(t, held)
	p.prints(t, 2, []string{"status", c.Name}, "MembersNotReady", "2/3 members ready", held)
	p.prints(t, 0, []string{"why", c.Name}, "AllMembersReady", held)
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

// readsAndRequestsRestores has the agents read the store, and druid plan a restore that is withdrawn.
func (p pluginOf) readsAndRequestsRestores(t *testing.T) {
	t.Helper()
	p.prints(t, 0, []string{"backups", p.Name}, "1 lineage", "the agent of member "+p.Name)
	p.prints(t, 0, []string{"restore", p.Name, "--latest"}, "Nothing was changed", "the newest state", "the agent of member "+p.Name, "latest: true")
	p.prints(t, 0, []string{"restore", p.Name, "--latest", "--to-new", "copy"}, "kind: EtcdCluster", "name: copy", "name: "+p.Name)
	if _, stderr, code := p.run(t.Context(), "", "restore", p.Name, "--revision", "999999999"); code != 2 ||
		!strings.Contains(stderr, "does not hold revision 999999999") {
		t.Errorf("a revision that no backup has: exit code %d, %s", code, stderr)
	}
	// druid writes the status meanwhile, so that the first requests can be refused.
	requested := false
	harness.Eventually(t, healWithin, "a restore is requested", func(ctx context.Context) error {
		stdout, stderr, code := p.run(ctx, "", "restore", p.Name, "--latest", "--apply")
		requested = requested || code == 0 || strings.Contains(stderr, "requests this already")
		if !requested {
			return fmt.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
		return nil
	})
	p.prints(t, 0, []string{"recover", p.Name}, "Recovery: Proposed", "the newest state", "--approve ")
	p.prints(t, 0, []string{"restore", p.Name, "--cancel"}, "You withdrew the restore", "continues with its present data")
	p.prints(t, 0, []string{"status", p.Name}, "Serving", "3/3 members ready", "Nothing to do.")
}

// movesTheLeadership moves it to a follower and back.
func (p pluginOf) movesTheLeadership(t *testing.T, view harness.View) {
	t.Helper()
	from, to := view.Leader(), view.Follower()
	for _, step := range [][2]string{{from, to}, {to, from}} {
		p.prints(t, 0, []string{"move-leader", p.Name, step[1]}, "moved from member "+step[0]+" to member "+step[1])
		p.prints(t, 0, []string{"status", p.Name}, "Leader       "+step[1])
	}
	if _, stderr, code := p.run(t.Context(), "", "move-leader", p.Name, from); code != 1 || !strings.Contains(stderr, from+" leads already") {
		t.Errorf("to the leader: exit code %d, %s", code, stderr)
	}
}

// asksFirst previews an upgrade, names a member that leaves first, and keeps druid off the cluster for a while.
func (p pluginOf) asksFirst(t *testing.T, view harness.View) {
	t.Helper()
	p.prints(t, 2, []string{"upgrade", p.Name, "3.4.0"}, "Nothing was changed", "✖ refused", "druid supports etcd 3.")
	if _, stderr, code := p.run(t.Context(), "", "upgrade", p.Name, "3.4.0", "--apply"); code != 1 || !strings.Contains(stderr, "Nothing was changed") {
		t.Errorf("an upgrade that etcd does not support: exit code %d, %s", code, stderr)
	}
	first := view.Follower()
	p.prints(t, 0, []string{"leave-first", p.Name, first}, "these leave first: "+first)
	p.prints(t, 0, []string{"leave-first", p.Name, "--clear"}, "druid selects")
	p.prints(t, 0, []string{"hands-off", p.Name, "--reason", "a story"}, "druid is to take no action", "a story")
	p.prints(t, 2, []string{"status", p.Name}, "HandsOff")
	p.prints(t, 0, []string{"hands-off", p.Name, "--end"}, "The reason was: a story.")
	p.prints(t, 0, []string{"status", p.Name}, "Serving")
}

// reportsAndChecks writes a report, and checks the installation of the rig. Some of its checks can fail: a rig is no product.
func (p pluginOf) reportsAndChecks(t *testing.T, view harness.View) {
	t.Helper()
	p.reportsWithoutSecret(t, view)
	stdout, stderr, code := p.run(t.Context(), "", "check", p.Name)
	if code > 1 || !strings.Contains(stdout, "EtcdCluster "+p.Name) || !strings.Contains(stdout, "Leader of druid") {
		t.Errorf("check: exit code %d, %s%s", code, stdout, stderr)
	}
}
