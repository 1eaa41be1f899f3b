package manifests

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/manifests/monitoring"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/pages"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// limitPage is the page about the component namespaced.
const limitPage = "../docs/how-to/install/limit-namespaces.md"

// rendered objects by "Kind namespace/name".
type rendered map[string]*unstructured.Unstructured

// kustomize renders the folder with kubectl.
func kustomize(t *testing.T, folder string) rendered {
	t.Helper()
	readManifests(t)
	cmd := exec.CommandContext(t.Context(), kubectl(t), "kustomize", folder)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v: %s", folder, err, &problems)
	}
	if problems.Len() > 0 {
		t.Errorf("kubectl kustomize %s warns: %s", folder, &problems)
	}
	all := rendered{}
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("parse a rendered document: %v\n%s", err, document)
		}
		all[object.GetKind()+" "+strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")] = object
	}
	return all
}

func kubectl(t *testing.T) string {
	t.Helper()
	built, err := binaries.Programs(t.Context(), t.Logf, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return built["kubectl"]
}

// readManifests reads all that kubectl may read, so that the cache of go test sees it.
func readManifests(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && slices.Contains([]string{".yaml", ".json"}, filepath.Ext(path)) {
			_, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// followLimitPage does in a new folder what the page says, and returns the folder with the kustomization.
func followLimitPage(t *testing.T) string {
	t.Helper()
	blocks, err := pages.Read(limitPage)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(blocks, func(b pages.Block) bool { return b.Language == pages.YAML })
	if i < 1 {
		t.Fatalf("%s has no block of YAML after one of commands", limitPage)
	}
	folder, err := filepath.EvalSymlinks(t.TempDir()) // kustomize takes relative paths only
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", blocks[i-1].Text)
	cmd.Dir = folder
	cmd.Env = []string{
		"PATH=" + filepath.Dir(kubectl(t)) + ":" + os.Getenv("PATH"), "HOME=" + folder, "KUBECONFIG=" + filepath.Join(folder, "none"),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s:%d: %v: %s", limitPage, blocks[i-1].Line, err, out)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(folder, "my-druid")
	manifests, err := filepath.Rel(overlay, here)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(blocks[i].Text, "../manifests", manifests)
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// TestKustomizeLimitsNamespaces compares what the page makes with the installation.
func TestKustomizeLimitsNamespaces(t *testing.T) {
	got := kustomize(t, followLimitPage(t))
	want := kustomize(t, installDir)
	for _, name := range []string{"RoleBinding team-a/druid", "RoleBinding team-b/druid"} {
		expectSameRights(t, want["ClusterRoleBinding druid"], got[name])
		delete(got, name)
	}
	delete(want, "ClusterRoleBinding druid")
	var list *unstructured.Unstructured
	for name, object := range got {
		if strings.HasPrefix(name, "ConfigMap druid-system/druid-namespaces-") {
			list = object
			delete(got, name)
		}
	}
	if list == nil {
		t.Fatal("there is no ConfigMap druid-namespaces")
	}
	if diff := cmp.Diff(map[string]any{"namespaces": "team-a,team-b"}, list.Object["data"]); diff != "" {
		t.Errorf("the ConfigMap has other data (-want +got):\n%s", diff)
	}
	container := firstContainer(t, want)
	container["args"] = append(container["args"].([]any), "--namespaces=$(DRUID_NAMESPACES)")
	env, _ := container["env"].([]any)
	container["env"] = append([]any{map[string]any{
		"name":      "DRUID_NAMESPACES",
		"valueFrom": map[string]any{"configMapKeyRef": map[string]any{"name": list.GetName(), "key": "namespaces"}},
	}}, env...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the page installs other objects (-want +got):\n%s", diff)
	}
}

func firstContainer(t *testing.T, all rendered) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedFieldNoCopy(all["Deployment druid-system/druid"].Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	return containers.([]any)[0].(map[string]any)
}

// expectSameRights fails unless both bindings bind the same role to the same user.
func expectSameRights(t *testing.T, want, got *unstructured.Unstructured) {
	t.Helper()
	if want == nil || got == nil {
		t.Fatalf("a binding is missing: %v, %v", want, got)
	}
	for _, field := range []string{"roleRef", "subjects"} {
		if diff := cmp.Diff(want.Object[field], got.Object[field]); diff != "" {
			t.Errorf("%s in %s is another one (-want +got):\n%s", field, got.GetNamespace(), diff)
		}
	}
}

func TestMonitoringIsWhatItsFilesAre(t *testing.T) {
	got := kustomize(t, "monitoring")
	files, err := monitoring.Files()
	if err != nil {
		t.Fatal(err)
	}
	want := rendered{"ConfigMap druid-system/druid-dashboard": {Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": "druid-dashboard", "namespace": "druid-system",
			"labels": map[string]any{"app.kubernetes.io/name": "druid", "grafana_dashboard": "1"},
		},
		"data": map[string]any{"etcd-by-druid.json": files["dashboard.json"]},
	}}}
	for document := range strings.SplitSeq(files["podmonitors.yaml"]+"---\n"+files["prometheusrule.yaml"], "---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		want[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-manifests/monitoring +kustomize):\n%s", diff)
	}
}

// TestAPIServerAcceptsTheKustomizations is about the objects that Kubernetes itself knows.
func TestAPIServerAcceptsTheKustomizations(t *testing.T) {
	config := env.APIServer(t)
	admin := clientAs(t, config, "")
	for _, name := range []string{"druid-system", "team-a", "team-b"} {
		namespace := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
		}}
		if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(namespace), client.FieldOwner("kustomize")); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{followLimitPage(t), "monitoring", "network-policy"} {
		for name, object := range kustomize(t, folder) {
			if strings.HasPrefix(object.GetAPIVersion(), "monitoring.coreos.com/") {
				continue // only the Prometheus Operator knows these
			}
			err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
				client.FieldOwner("kustomize"), client.ForceOwnership, client.DryRunAll)
			if err != nil {
				t.Errorf("%s: apply %s: %v", folder, name, err)
			}
		}
	}
}

// The policy must let Prometheus reach druid, and druid reach the API server.
func TestNetworkPolicyOfDruidIsAboutItsPods(t *testing.T) {
	all := kustomize(t, "network-policy")
	policy := all["NetworkPolicy druid-system/druid"]
	if policy == nil || len(all) != 1 {
		t.Fatalf("there are other objects than one NetworkPolicy: %v", all)
	}
	var typed networkingv1.NetworkPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(policy.Object, &typed, true); err != nil {
		t.Fatal(err)
	}
	deployment := installedDeployment(t)
	if diff := cmp.Diff(deployment.Spec.Selector, &typed.Spec.PodSelector); diff != "" {
		t.Errorf("the policy is about other Pods than those of druid (-Deployment +policy):\n%s", diff)
	}
	port := typed.Spec.Ingress[0].Ports[0].Port.StrVal
	if !slices.ContainsFunc(deployment.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) {
		t.Errorf("druid has no port %s", port)
	}
	egress := map[int32]bool{}
	for _, rule := range typed.Spec.Egress {
		for _, p := range rule.Ports {
			egress[p.Port.IntVal] = len(rule.To) == 0
		}
	}
	// 443 is the port of the Service kubernetes. 6443 is the default of kube-apiserver, 53 that of DNS.
	if diff := cmp.Diff(map[int32]bool{443: true, 6443: true, 53: true}, egress); diff != "" {
		t.Errorf("druid may connect to other ports (-want +got):\n%s", diff)
	}
}
