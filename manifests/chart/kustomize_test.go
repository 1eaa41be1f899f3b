package chart

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

// kustomized returns what kubectl renders from a kustomization with these lines, in which %s stands for the folder manifests.
func kustomized(t *testing.T, lines string) objects {
	t.Helper()
	built, err := binaries.Programs(t.Context(), t.Logf, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.EvalSymlinks(t.TempDir()) // kustomize takes relative paths only
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Rel(folder, here)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(lines, "%s", manifests)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), built["kubectl"], "kustomize", folder)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil || problems.Len() > 0 {
		t.Fatalf("kubectl kustomize: %v: %s", err, &problems)
	}
	return parse(t, string(out))
}

// readKustomizations reads what kubectl reads, so that the cache of go test sees it.
func readKustomizations(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"install", "monitoring", "namespaced", "network-policy"} {
		files, err := filepath.Glob(filepath.Join("..", folder, "*.*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no files: %v", folder, err)
		}
		for _, file := range files {
			read(t, file)
		}
	}
}

// TestKustomizeAndTheChartRenderTheSame sets the same switches in both.
func TestKustomizeAndTheChartRenderTheSame(t *testing.T) {
	readKustomizations(t)
	cases := map[string]struct{ lines, values string }{
		"monitoring": {
			"resources: [%s/install]\ncomponents: [%s/monitoring]",
			"monitoring: {podMonitors: {create: true}, prometheusRule: {create: true}, dashboard: {create: true}}",
		},
		"network policy": {"resources: [%s/install]\ncomponents: [%s/network-policy]", "networkPolicy: {create: true}"},
		"namespaces": {
			"resources: [%s/install]\ncomponents: [%s/namespaced]\n" +
				"configMapGenerator: [{name: druid-namespaces, namespace: druid-system, literals: ['namespaces=team-a,team-b']}]",
			"watchNamespaces: [team-a, team-b]",
		},
		"all components": {
			"resources: [%s/install]\ncomponents: [%s/monitoring, %s/namespaced, %s/network-policy]\n" +
				"configMapGenerator: [{name: druid-namespaces, namespace: druid-system, literals: ['namespaces=team-a,team-b']}]\n" +
				// Prometheus finds the Pods of members in all namespaces, and the chart limits it as it limits druid.
				"patches: [{target: {kind: PodMonitor, name: etcd-members}, " +
				`patch: '[{"op": "replace", "path": "/spec/namespaceSelector", "value": {"matchNames": ["team-a", "team-b"]}}]'}]`,
			"watchNamespaces: [team-a, team-b]\nnetworkPolicy: {create: true}\n" +
				"monitoring: {podMonitors: {create: true}, prometheusRule: {create: true}, dashboard: {create: true}}",
		},
	}
	rendered := map[string]objects{}
	for name, c := range cases {
		rendered[name] = kustomized(t, c.lines)
		delete(rendered[name], "Namespace "+namespace) // the user of the chart creates it
		replaceVariable(t, rendered[name])
	}
	withEachHelm(t, func(t *testing.T, h helm) {
		for name, c := range cases {
			if diff := cmp.Diff(rendered[name], withoutHelm(h.mustRender(t, c.values)), lastLine); diff != "" {
				t.Errorf("%s (-kustomize +chart):\n%s", name, diff)
			}
		}
	})
}

// lastLine takes no notice of how many ends of a line a text has at its end: the template of the dashboard adds one.
var lastLine = cmp.Transformer("lastLine", func(text string) string { return strings.TrimRight(text, "\n") })

// withoutHelm removes what only the chart renders: the annotation that lets Helm leave an object in place, and the RoleBindings in the
// namespaces of druid, which the page of the component creates by a command.
func withoutHelm(all objects) objects {
	for key, object := range all {
		annotations := object.GetAnnotations()
		delete(annotations, "helm.sh/resource-policy")
		object.SetAnnotations(annotations)
		if strings.HasPrefix(key, "RoleBinding team-") {
			delete(all, key)
		}
	}
	return all
}

// replaceVariable puts the list of the ConfigMap into the flag of druid, as Kubernetes does, if there is such a ConfigMap.
func replaceVariable(t *testing.T, all objects) {
	t.Helper()
	for key := range all {
		if !strings.HasPrefix(key, "ConfigMap druid-system/druid-namespaces-") {
			continue
		}
		c := container(t, all)
		env, _ := c["env"].([]any)
		c["env"] = slices.DeleteFunc(env, func(e any) bool { return e.(map[string]any)["name"] == "DRUID_NAMESPACES" })
		args, _ := c["args"].([]any)
		for n, arg := range args {
			args[n] = strings.ReplaceAll(arg.(string), "$(DRUID_NAMESPACES)", fmt.Sprint(all.get(t, key, "data", "namespaces")))
		}
		delete(all, key)
	}
}
