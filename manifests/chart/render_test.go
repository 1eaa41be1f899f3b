package chart

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/manifests/monitoring"
)

func TestLintFindsNothing(t *testing.T) {
	withEachHelm(t, func(t *testing.T, h helm) {
		for _, dir := range charts {
			h.must(t, "lint", "--strict", dir)
		}
	})
}

// install returns the objects of the installation, without its Namespace: the user creates that of a release.
func install(t *testing.T) objects {
	t.Helper()
	all := parse(t, read(t, filepath.Join(installDir, "install.yaml")))
	if all["Namespace "+namespace] == nil {
		t.Fatal("the installation has no Namespace")
	}
	delete(all, "Namespace "+namespace)
	return all
}

func TestTheDefaultsRenderTheInstallation(t *testing.T) {
	withEachHelm(t, func(t *testing.T, h helm) {
		got := h.mustRender(t, "")
		for name, object := range got {
			if object.GetKind() != "CustomResourceDefinition" {
				continue
			}
			annotations := object.GetAnnotations()
			if annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("Helm would delete %s", name)
			}
			delete(annotations, "helm.sh/resource-policy")
			object.SetAnnotations(annotations)
		}
		if diff := cmp.Diff(install(t), got); diff != "" {
			t.Errorf("the chart renders other objects than the installation (-installation +chart):\n%s", diff)
		}
	})
}

// TestChartObjectsInReleaseNamespace: all objects are in the namespace of the release.
func TestChartObjectsInReleaseNamespace(t *testing.T) {
	const everything = "{monitoring: {podMonitors: {create: true}, prometheusRule: {create: true}, dashboard: {create: true}}, networkPolicy: " +
		"{create: true}, rbac: {aggregate: true}}"
	withEachHelm(t, func(t *testing.T, h helm) {
		// A name of digits alone is a number in YAML unless it is quoted.
		all, err := h.render(t, "1234", everything)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for name := range h.mustRender(t, everything) {
			want = append(want, strings.Replace(name, " "+namespace+"/", " 1234/", 1))
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(all))); diff != "" {
			t.Errorf("the objects in another namespace (-want +got):\n%s", diff)
		}
		for name, object := range all {
			if strings.Contains(text(t, object), namespace) {
				t.Errorf("%s names the namespace %s", name, namespace)
			}
		}
		if user := all.get(t, "ValidatingAdmissionPolicy druid-secrets", "spec", "matchConditions"); !strings.Contains(text(t, user),
			"system:serviceaccount:1234:druid") {
			t.Errorf("the policy is about another user: %v", user)
		}
	})
}

func text(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestSwitches(t *testing.T) {
	definitions := []string{"CustomResourceDefinition etcdclusters.etcd.druid.dev", "CustomResourceDefinition etcdsnapshots.etcd.druid.dev"}
	cases := map[string]struct {
		values       string
		fewer, added []string
	}{
		"no definitions":  {"crds: {install: false}", definitions, nil},
		"one replica":     {"replicas: 1", []string{"PodDisruptionBudget druid-system/druid"}, nil},
		"some namespaces": {"watchNamespaces: [a, b]", []string{"ClusterRoleBinding druid"}, []string{"RoleBinding a/druid", "RoleBinding b/druid"}},
		"roles for users": {"rbac: {aggregate: true}", nil, []string{"ClusterRole druid-view", "ClusterRole druid-edit"}},
		"monitors": {"monitoring: {podMonitors: {create: true}}", nil,
			[]string{"PodMonitor druid-system/druid", "PodMonitor druid-system/etcd-members"}},
		"rules":                    {"monitoring: {prometheusRule: {create: true}}", nil, []string{"PrometheusRule druid-system/druid"}},
		"dashboard":                {"monitoring: {dashboard: {create: true}}", nil, []string{"ConfigMap druid-system/druid-dashboard"}},
		"network policy":           {"networkPolicy: {create: true}", nil, []string{"NetworkPolicy druid-system/druid"}},
		"used by another chart":    {"global: {a: b}", nil, nil},
		"secure metrics, no files": {"metrics: {secure: true}", nil, nil},
	}
	all := slices.Collect(maps.Keys(install(t)))
	withEachHelm(t, func(t *testing.T, h helm) {
		for name, c := range cases {
			want := slices.DeleteFunc(slices.Concat(all, c.added), func(key string) bool { return slices.Contains(c.fewer, key) })
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(h.mustRender(t, c.values)))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

func TestMonitoringIsThatOfTheInstallation(t *testing.T) {
	const values = "monitoring: {podMonitors: {create: true}, prometheusRule: {create: true}, dashboard: {create: true}}"
	files, err := monitoring.Files()
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, files["podmonitors.yaml"]+"---\n"+files["prometheusrule.yaml"])
	withEachHelm(t, func(t *testing.T, h helm) {
		got := h.mustRender(t, values)
		for name, object := range want {
			if diff := cmp.Diff(object, got[name]); diff != "" {
				t.Errorf("%s (-manifests/monitoring +chart):\n%s", name, diff)
			}
		}
		dashboard := got.get(t, "ConfigMap druid-system/druid-dashboard", "data", "etcd-by-druid.json")
		if diff := cmp.Diff(strings.TrimSpace(files["dashboard.json"]), strings.TrimSpace(dashboard.(string))); diff != "" {
			t.Errorf("the dashboard (-manifests/monitoring +chart):\n%s", diff)
		}
	})
}

func TestMonitoringFollowsItsValues(t *testing.T) {
	const values = `
watchNamespaces: [a, b]
metrics: {secure: true}
monitoring:
  podMonitors: {create: true, labels: {team: x}, druidEndpoint: {tlsConfig: {insecureSkipVerify: true}}}
  prometheusRule: {create: true, labels: {team: x}}
  dashboard: {create: true, labels: {team: x}, annotations: {folder: etcd}}
`
	withEachHelm(t, func(t *testing.T, h helm) {
		got := h.mustRender(t, values)
		for _, name := range []string{"PodMonitor druid-system/druid", "PodMonitor druid-system/etcd-members", "PrometheusRule druid-system/druid"} {
			if labels := text(t, got.get(t, name, "metadata", "labels")); labels != `{"app.kubernetes.io/name":"druid","team":"x"}` {
				t.Errorf("%s has the labels %s", name, labels)
			}
		}
		for _, c := range []struct {
			key  string
			path []string
			want string
		}{
			{"ConfigMap druid-system/druid-dashboard", []string{"metadata", "labels"}, `{"app.kubernetes.io/name":"druid","grafana_dashboard":"1","team":"x"}`},
			{"ConfigMap druid-system/druid-dashboard", []string{"metadata", "annotations"}, `{"folder":"etcd"}`},
			{"PodMonitor druid-system/druid", []string{"spec", "podMetricsEndpoints"}, `[{"port":"metrics","scheme":"https","tlsConfig":{"insecureSkipVerify":true}}]`},
			{"PodMonitor druid-system/etcd-members", []string{"spec", "namespaceSelector"}, `{"matchNames":["a","b"]}`},
		} {
			if is := text(t, got.get(t, c.key, c.path...)); is != c.want {
				t.Errorf("%s: %v is %s, want %s", c.key, c.path, is, c.want)
			}
		}
	})
}

// The error names the value: a misspelt name is no silent default.
func TestWrongValuesAreRefused(t *testing.T) {
	cases := map[string]struct{ values, named string }{
		"a misspelt value":                   {"replica: 3", "replica"},
		"a misspelt value of a group":        {"image: {repo: x}", "repo"},
		"a misspelt resource":                {"resources: {limit: {}}", "limit"},
		"no replica":                         {"replicas: 0", "replicas"},
		"replicas as a word":                 {"replicas: three", "replicas"},
		"an unknown level":                   {"logLevel: loud", "logLevel"},
		"no namespace":                       {"watchNamespaces: [A_B]", "watchNamespaces"},
		"a namespace twice":                  {"watchNamespaces: [a, a]", "watchNamespaces"},
		"no digest":                          {"image: {digest: abc}", "digest"},
		"a repository with a tag":            {"image: {repository: 'registry.example.com/druid:v1'}", "repository"},
		"a tag with its colon":               {"image: {tag: ':v1'}", "tag"},
		"an unknown flag":                    {"flags: {renew: 1s}", "renew"},
		"a flag that has a value of its own": {"flags: {namespaces: a}", "namespaces"},
		"no duration":                        {"flags: {agent-renew-interval: 60}", "agent-renew-interval"},
		"too many at once":                   {"flags: {concurrency: 1001}", "concurrency"},
		"a certificate without HTTPS":        {"metrics: {certificateSecret: s}", "secure"},
		"a switch as a word":                 {"crds: {install: 'no'}", "install"},
		"a label that is no text":            {"monitoring: {dashboard: {labels: {grafana_dashboard: 1}}}", "grafana_dashboard"},
	}
	withEachHelm(t, func(t *testing.T, h helm) {
		for name, c := range cases {
			if _, err := h.render(t, namespace, c.values); err == nil {
				t.Errorf("%s: Helm accepts %s", name, c.values)
			} else if _, about, _ := strings.Cut(err.Error(), "exit status"); !strings.Contains(about, c.named) || !strings.Contains(about, "schema") {
				t.Errorf("%s: the error does not name %s: %v", name, c.named, err)
			}
		}
	})
}
