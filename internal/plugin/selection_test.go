package plugin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/situations"
)

// TestPrintedCommandKeepsKubernetes: a printed command acts on the same Kubernetes.
func TestPrintedCommandKeepsKubernetes(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	file, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	file.Contexts["of prod"], file.CurrentContext = file.Contexts["test"], ""
	if err := clientcmd.WriteToFile(*file, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--context", "of prod", "--cluster", "test", "--user", "test", "--server", s.config.Host}
	prefix := "kubectl druid --kubeconfig " + s.kubeconfig + " --context 'of prod' --cluster test --user test --server " + s.config.Host + " -n " + s.namespace
	for _, step := range []struct {
		want string
		args []string
	}{
		{" upgrade demo 3.7.3 --apply", []string{"upgrade", "demo", "3.7.3"}},
		{" upgrade demo 3.6.16 --apply", []string{"upgrade", "demo", "3.7.3", "--apply"}},
		{" hands-off demo --end", []string{"hands-off", "demo", "--reason", "a copy"}},
		{" hands-off demo --end", []string{"upgrade", "demo", "3.6.17"}},
	} {
		out, errs, code := s.run(append(step.args, flags...)...)
		if contains(t, out, prefix+step.want); code == 1 {
			t.Errorf("%v: %s", step.args, errs)
		}
	}
}

// TestNextStepsKeepKubernetes: next steps as data act on the same Kubernetes.
func TestNextStepsKeepKubernetes(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "quorum-lost-with-a-plan"))
	want := "kubectl druid --kubeconfig " + s.kubeconfig + " --context test -n " + s.namespace + " recover demo"
	for _, args := range [][]string{{"status", "demo"}, {"status", "demo", "-o", "json"}, {"status", "demo", "-o", "yaml"}, {"get", "-o", "json"}} {
		out, errs, code := s.run(append(args, "--context", "test")...)
		if n := strings.Count(strings.Join(strings.Fields(out), " "), want); n != 1 || code != codeNotWell {
			t.Errorf("%v: exit code %d, %q is printed %d times:\n%s%s", args, code, want, n, out, errs)
		}
	}
	k := &kube{dynamic: s.dynamic, typed: s.typed, namespace: s.namespace, selection: " --context test"}
	c, err := webSource{k, false, func() time.Time { return situations.Now }}.Cluster(t.Context(), s.namespace, "demo")
	if err != nil || !slices.ContainsFunc(c.Next, func(step view.Step) bool { return strings.HasPrefix(step.Command, "kubectl druid --context test ") }) {
		t.Errorf("the web page prints %v, %v", c.Next, err)
	}
}

func TestACommandOfTheViewGetsTheFlags(t *testing.T) {
	s := selection(" --context prod")
	for text, want := range map[string]string{
		"kubectl druid -n a recover demo": "kubectl druid --context prod -n a recover demo",
		"kubectl -n a get pods":           "kubectl --context prod -n a get pods",
		"Wait.":                           "Wait.",
	} {
		if got := s.command(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got := quoted("it's"); got != `'it'\''s'` {
		t.Error(got)
	}
}
