package plugin

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

func TestNewEtcdClusterStartsWithTheBackup(t *testing.T) {
	s, _ := planning(t)
	out, errs, code := s.run("restore", "demo", "--revision", "47940", "--to-new", "copy")
	if contains(t, out, "# EtcdCluster "+s.namespace+"/copy starts with revision 47940 of EtcdCluster "+s.namespace+"/demo, which stays as it is.\n",
		"# It reads 10 B"); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var created v1alpha1.EtcdCluster
	if err := yaml.UnmarshalStrict([]byte(out), &created); err != nil {
		t.Fatal(err)
	}
	restore := created.Spec.Bootstrap.Restore
	if created.Name != "copy" || restore.From.Name != "demo" || restore.To.Revision != 47940 || created.Spec.Replicas != 3 ||
		created.Spec.Backup == nil || created.Spec.Recovery != nil {
		t.Errorf("got %s", out)
	}
	created.Namespace = s.namespace
	s.setCluster(&created) // the API server accepts it
	for want, step := range map[string]struct {
		args []string
		code int
	}{
		"copy exists already":                      {[]string{"--latest", "--to-new", "copy"}, 1},
		"--to-new is the name of this EtcdCluster": {[]string{"--latest", "--to-new", "demo"}, 1},
		"want at most 50 lower-case letters":       {[]string{"--latest", "--to-new", "Copy"}, 1},
		"cannot name a lineage":                    {[]string{"--latest", "--to-new", "other", "--lineage", string(firstLineage)}, 1},
		"does not hold revision 99999":             {[]string{"--revision", "99999", "--to-new", "other"}, 2},
	} {
		if _, errs, code := s.run(append([]string{"restore", "demo"}, step.args...)...); code != step.code || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %s", step.args, code, errs)
		}
	}
	out, errs, code = s.run("restore", "demo", "--revision", "47940", "--lineage", string(firstLineage), "--to-new", "other", "-o", "json")
	if contains(t, out, `"revision": 47940`); code != 0 || strings.Contains(out, "#") {
		t.Errorf("a revision that both find in the same lineage: exit code %d: %s%s", code, out, errs)
	}
}

// A cluster that lost its quorum, or is paused, can start again elsewhere.
func TestYAMLOfNewEtcdCluster(t *testing.T) {
	for _, name := range []string{"serving", "tls", "own-certificates", "quorum-lost", "paused"} {
		o := situation(t, name)
		o.Cluster.Spec.Recovery = &v1alpha1.RecoverySpec{Policy: v1alpha1.RecoveryManual, Restore: &v1alpha1.RestoreInPlace{Latest: true}}
		o.Cluster.Spec.ClientService = &v1alpha1.ClientServiceSpec{Annotations: map[string]v1alpha1.AnnotationValue{"dns.example.com/name": "demo"}}
		source, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		target := leases.RestoreTarget{Time: situations.Now.Add(-10 * time.Minute)}
		r := selection("").restoringOf(o, view.Of(o, situations.Now), target, "demo-bqdq7", aPlan())
		r.Plan.Notes = []string{"a text\nof others"}
		if name == "paused" {
			r.Member, r.Plan = "", catalog.Plan{}
		}
		var out strings.Builder
		out.WriteString(commented(warnings(r, o.Cluster, "copy")...))
		if err := printData(&out, successor(source, "copy", target), formatYAML); err != nil {
			t.Fatal(err)
		}
		golden.File(t, "testdata/restore/to-new-"+name+".yaml", out.String())
	}
}

// TestRestoreNewWithoutAgentUnchecked: without an agent a new EtcdCluster is printed unchecked.
func TestRestoreNewWithoutAgentUnchecked(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "paused"))
	out, errs, code := s.run("restore", "demo", "--latest", "--to-new", "copy")
	if contains(t, out, "No agent of that cluster could be reached", "kind: EtcdCluster"); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	_, errs, code = s.run("restore", "demo", "--latest", "--to-new", "copy", "--lineage", string(firstLineage))
	if contains(t, errs, "no agent can be reached"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	_, errs, code = s.run("restore", "demo", "--latest")
	if contains(t, errs, "it is paused. Resume it first"); code != 1 {
		t.Errorf("exit code %d", code)
	}
}
