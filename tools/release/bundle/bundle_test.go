package bundle

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const repoDir = "../../.."

func source(t *testing.T) Source {
	t.Helper()
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(repoDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	return Source{
		Install: read("manifests/install/install.yaml"),
		Samples: [][]byte{read("docs/samples/demo.yaml"), read("docs/samples/snapshot.yaml")},
		Icon:    read("internal/webui/assets/icon.svg"), Version: "0.1.0-rc.1", Kubernetes: "1.32.0", Architectures: []string{"amd64", "arm64"},
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// made returns the files of the bundle by name, and the objects that it cannot contain.
func made(t *testing.T, s Source) (map[string][]byte, []byte) {
	t.Helper()
	files, besides, err := Make(s)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, f := range files {
		all[f.Name] = f.Content
	}
	return all, besides
}

// written writes the files and returns the folder of the bundle.
func written(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "bundle")
}

const csvFile = "bundle/manifests/druid.clusterserviceversion.yaml"

func TestTheBundleIsValid(t *testing.T) {
	for _, version := range []string{"0.1.0-rc.1", "0.1.0"} {
		s := source(t)
		s.Version = version
		files, _ := made(t, s)
		if err := Check(written(t, files)); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

// Each case changes one thing of the valid bundle.
func TestABrokenBundleIsRefused(t *testing.T) {
	replaced := func(file, old, with string) func(t *testing.T, files map[string][]byte) {
		return func(t *testing.T, files map[string][]byte) {
			t.Helper()
			if !bytes.Contains(files[file], []byte(old)) {
				t.Fatalf("%s has no %q", file, old)
			}
			files[file] = bytes.Replace(files[file], []byte(old), []byte(with), 1)
		}
	}
	removed := func(file string) func(t *testing.T, files map[string][]byte) {
		return func(_ *testing.T, files map[string][]byte) { delete(files, file) }
	}
	cases := map[string]struct {
		change func(t *testing.T, files map[string][]byte)
		want   string
	}{
		"a CRD is missing":             {removed("bundle/manifests/etcd.druid.dev_etcdsnapshots.yaml"), "EtcdSnapshot"},
		"the annotations are missing":  {removed("bundle/metadata/annotations.yaml"), "annotations"},
		"a channel without convention": {replaced("bundle/metadata/annotations.yaml", "channels.v1: candidate", "channels.v1: newest"), "newest"},
		"a sample of another kind":     {replaced(csvFile, `"kind": "EtcdSnapshot"`, `"kind": "EtcdBackup"`), "EtcdBackup"},
		"no oldest Kubernetes":         {replaced(csvFile, "  minKubeVersion: 1.32.0\n", ""), "minKubeVersion"},
		"a removed version of an API": {replaced("bundle/manifests/druid.poddisruptionbudget.yaml", "policy/v1", "policy/v1beta1"),
			"deprecated and removed in v1.25"},
		"no provider":             {replaced(csvFile, "name: The druid authors", `name: ""`), "Provider"},
		"an unknown capability":   {replaced(csvFile, "capabilities: Deep Insights", "capabilities: Everything"), "Everything"},
		"no description of a CRD": {replaced(csvFile, "description: EtcdCluster is", "summary: EtcdCluster is"), "empty description"},
		"an account of its own": {func(_ *testing.T, files map[string][]byte) {
			files["bundle/manifests/account.yaml"] = []byte("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: druid}\n")
		}, "service account druid"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			files, _ := made(t, source(t))
			c.change(t, files)
			if err := Check(written(t, files)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error about %q, got %v", c.want, err)
			}
		})
	}
}

// tree is an object as YAML has it.
type tree = map[string]any

func parsed(t *testing.T, text []byte) tree {
	t.Helper()
	var object tree
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return object
}

// at returns the field at a path.
func at(t *testing.T, object any, path ...string) any {
	t.Helper()
	for _, name := range path {
		fields, _ := object.(tree)
		if object = fields[name]; object == nil {
			t.Fatalf("there is no field %s", strings.Join(path, "."))
		}
	}
	return object
}

// objects are those of YAML with several documents, by kind and name.
func objects(t *testing.T, text []byte) map[string]tree {
	t.Helper()
	all := map[string]tree{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if object := parsed(t, document); object != nil {
			all[object["kind"].(string)+" "+at(t, object, "metadata", "name").(string)] = object
		}
	}
	return all
}

// TestTheBundleInstallsTheInstallation looks for each object of install.yaml in the bundle, without the code that makes it.
func TestTheBundleInstallsTheInstallation(t *testing.T) {
	s := source(t)
	install := objects(t, s.Install)
	files, besides := made(t, s)
	csv := parsed(t, files[csvFile])
	spec := at(t, csv, "spec", "install", "spec").(tree)
	got := map[string]any{}
	for name, object := range objects(t, besides) {
		got[name] = object
	}
	for name, content := range files {
		if strings.HasPrefix(name, "bundle/manifests/") && name != csvFile {
			object := parsed(t, content)
			got[object["kind"].(string)+" "+at(t, object, "metadata", "name").(string)] = object
		}
	}
	want := map[string]any{}
	var namespaced, cluster []any
	for _, name := range slices.Sorted(maps.Keys(install)) {
		object := install[name]
		granted := func() tree {
			return tree{"serviceAccountName": "druid", "rules": object["rules"]}
		}
		switch kind, _, _ := strings.Cut(name, " "); {
		case name == "ClusterRole druid-cluster":
			cluster = append(cluster, granted())
		case kind == "ClusterRole" || kind == "Role":
			namespaced = append(namespaced, granted())
		case kind == "PodDisruptionBudget":
			delete(object["metadata"].(tree), "namespace")
			want[name] = object
		case slices.Contains([]string{"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, kind):
			want[name] = object
		case !slices.Contains([]string{"Namespace", "ServiceAccount", "ClusterRoleBinding", "RoleBinding", "Deployment"}, kind):
			t.Errorf("the test knows no place for %s", name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the objects differ (-install.yaml +bundle):\n%s", diff)
	}
	if diff := cmp.Diff(namespaced, spec["permissions"]); diff != "" {
		t.Errorf("the permissions in namespaces differ (-install.yaml +bundle):\n%s", diff)
	}
	if diff := cmp.Diff(cluster, spec["clusterPermissions"]); diff != "" {
		t.Errorf("the permissions for the cluster differ (-install.yaml +bundle):\n%s", diff)
	}
	expectDeployment(t, install["Deployment druid"], spec["deployments"].([]any))
}

// expectDeployment compares the Deployments. That of the bundle works in the namespaces of its OperatorGroup.
func expectDeployment(t *testing.T, want tree, got []any) {
	t.Helper()
	container := at(t, want, "spec", "template", "spec", "containers").([]any)[0].(tree)
	container["args"] = append(container["args"].([]any), "--namespaces=$(DRUID_NAMESPACES)")
	container["env"] = append(container["env"].([]any), tree{
		"name": "DRUID_NAMESPACES", "valueFrom": tree{"fieldRef": tree{"fieldPath": "metadata.annotations['olm.targetNamespaces']"}},
	})
	all := []any{tree{"name": "druid", "label": at(t, want, "metadata", "labels"), "spec": withStrategy(want["spec"].(tree))}}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("the Deployment differs (-install.yaml +bundle):\n%s", diff)
	}
}

// withStrategy adds the fields that Kubernetes writes although they are empty.
func withStrategy(spec tree) tree {
	spec["strategy"] = tree{}
	return spec
}

func TestTheBundleHasTheSameBytesEachTime(t *testing.T) {
	first, besides := made(t, source(t))
	for range 5 { // the order of a map differs among them
		again, others := made(t, source(t))
		if diff := cmp.Diff(first, again); diff != "" || !bytes.Equal(besides, others) {
			t.Fatalf("the bundle has other bytes:\n%s", diff)
		}
	}
}

func TestAnInstallationWithoutAPlaceFails(t *testing.T) {
	cases := map[string]struct{ old, with, want string }{
		"another kind": {"kind: PodDisruptionBudget", "kind: NetworkPolicy", "no place for this kind"},
		"a role without subject": {"kind: RoleBinding\nmetadata:\n  name: druid-leader-election",
			"kind: ValidatingAdmissionPolicy\nmetadata:\n  name: x", "is not bound"},
		"another account":  {"serviceAccountName: druid", "serviceAccountName: default", `uses the ServiceAccount "default"`},
		"fixed namespaces": {"- --health-address=:8081", "- --namespaces=team-a", "OLM chooses the namespaces"},
		"another subject": {"  - kind: ServiceAccount\n    name: druid\n", "  - kind: ServiceAccount\n    name: other\n",
			"not for the ServiceAccount druid"},
		"a field that Kubernetes does not know": {"  replicas: 2\n", "  replica: 2\n", `unknown field "replica"`},
	}
	for name, c := range cases {
		s := source(t)
		if !bytes.Contains(s.Install, []byte(c.old)) {
			t.Fatalf("%s: the installation has no %q", name, c.old)
		}
		s.Install = bytes.Replace(s.Install, []byte(c.old), []byte(c.with), 1)
		if _, _, err := Make(s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want an error with %q, got %v", name, c.want, err)
		}
	}
}
