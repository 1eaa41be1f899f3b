package plugin

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// TestMoveLeaderSituations: whether the leadership can move, in each situation.
func TestMoveLeaderSituations(t *testing.T) {
	var out strings.Builder
	for _, s := range situations.All() {
		for _, target := range []string{"", "demo-sx47z"} {
			said := "possible"
			if err := selection("").movable(s.Objects.Cluster, view.Of(s.Objects, situations.Now), target); err != nil {
				said = err.Error()
			}
			out.WriteString(strings.TrimSpace(s.Name+" "+target) + ": " + said + "\n")
		}
	}
	golden.File(t, "testdata/move-leader/situations.txt", out.String())
}

func TestOnlyAReadyVoterTakesTheLeadership(t *testing.T) {
	o := situation(t, "serving")
	for want, change := range map[string]func(*view.Cluster) string{
		"member demo-bqdq7 leads already":        func(*view.Cluster) string { return "demo-bqdq7" },
		"\"demo-aaaaa\" is no member of it. Its": func(*view.Cluster) string { return "demo-aaaaa" },
		"member demo-lgmkl is a learner":         func(v *view.Cluster) string { v.Members[1].Role = string(leases.RoleLearner); return "demo-lgmkl" },
		"no member reports that it leads":        func(v *view.Cluster) string { v.Leader = ""; return "" },
		"no other member votes and is ready": func(v *view.Cluster) string {
			v.Members[1].Role, v.Members[2].State = string(leases.RoleLearner), string(v1alpha1.MemberNotReady)
			return ""
		},
	} {
		v := view.Of(o, situations.Now)
		target := change(&v)
		if err := selection("").movable(o.Cluster, v, target); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	v := view.Of(o, situations.Now)
	v.Members[1].State, v.Members[1].Message = string(v1alpha1.MemberNotReady), "Its disk is full."
	if err := selection("").movable(o.Cluster, v, "demo-lgmkl"); err == nil || err.Error() != "member demo-lgmkl is NotReady: Its disk is full" {
		t.Errorf("to a member that is not ready: %v", err)
	}
}

// The command of the agent runs in the Pod of the leader.
func TestTheLeadersAgentMovesTheLeadership(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	s.put(onNode(situation(t, "serving"), name))
	var ran []string
	n.program = func(command []string, stdout, _ io.Writer) int {
		ran = command
		_, _ = io.WriteString(stdout, `{"member":"demo-lgmkl","memberID":"3528ddf74efa69b3"}`)
		return 0
	}
	out, errs, code := s.run("move-leader", "demo", "demo-lgmkl")
	if code != 0 || !slices.Equal(ran, []string{agentPath, "step-down", "--to", "demo-lgmkl"}) {
		t.Errorf("exit code %d, ran %v: %s", code, ran, errs)
	}
	golden.File(t, "testdata/move-leader/moved.txt", s.neutral(out))
	n.mu.Lock()
	pod := n.ran[0].Path
	n.mu.Unlock()
	if pod != "/exec/"+s.namespace+"/demo-bqdq7/agent" {
		t.Errorf("it ran in %s", pod)
	}
	ran = nil
	for want, args := range map[string][]string{
		"leads already. Nothing was changed":                      {"demo", "demo-bqdq7"},
		"is no member of it":                                      {"demo", "demo-aaaaa"},
		"want the name of one EtcdCluster, and perhaps of one of": {"demo", "demo-lgmkl", "demo-sx47z"},
	} {
		if _, errs, code := s.run(append([]string{"move-leader"}, args...)...); code != 1 || !strings.Contains(errs, want) || ran != nil {
			t.Errorf("%v: exit code %d, %s, ran %v", args, code, errs, ran)
		}
	}
	for want, text := range map[string]string{
		"demo-bqdq7: the member of this Pod does not lead. ": "agent step-down: the member of this Pod does not lead. Run the command in the Pod of the leader\n",
		"cannot move the leadership for the plugin. Upgrade": "agent: unknown command \"step-down\" for \"agent\"\n",
	} {
		n.program = func(_ []string, _, stderr io.Writer) int { _, _ = io.WriteString(stderr, text); return 1 }
		if _, errs, code := s.run("move-leader", "demo"); code != 1 || !strings.Contains(errs, want) || !strings.Contains(errs, "See who leads") {
			t.Errorf("%s: exit code %d, %s", want, code, errs)
		}
	}
	s.grant("viewer", viewing...)
	s.eventually(func() bool {
		_, errs, _ = s.run("move-leader", "demo", "--as", "viewer")
		return strings.Contains(errs, "pods/exec")
	})
	out, _, _ = s.run("__complete", "move-leader", "--kubeconfig", s.kubeconfig, "demo", "")
	contains(t, out, "demo-lgmkl\ndemo-sx47z\n:4")
}

// The paths and names are those with which the agent dials members.
func TestTheAgentStepsDownWithItsCertificates(t *testing.T) {
	if agentTLSDir != config.TLSSource+"/client" {
		t.Errorf("the Secret is in %s", config.TLSSource)
	}
	c := situation(t, "tls").Cluster
	want := "step-down --to demo-lgmkl --tls-dir " + agentTLSDir + " --tls-name demo-client.default.svc"
	if got := strings.Join(stepDown(c, "demo-lgmkl"), " "); got != want {
		t.Errorf("got %s", got)
	}
	c.Status.TLS.Client.Stage = v1alpha1.TLSStageBoth
	if got := strings.Join(stepDown(c, "demo-lgmkl"), " "); got != want+" --client-plaintext" {
		t.Errorf("while TLS is turned on: %s", got)
	}
}
