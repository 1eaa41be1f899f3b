package manifests

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/test/golden"
)

const installDir = "install"

// kustomization is all that the install uses of kustomize. The strict parser refuses the rest, so that joining the files
// is the whole render.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
}

func TestGoldenInstallIsTheRenderOfItsParts(t *testing.T) {
	parts := installParts(t)
	render := "# Generated from the files that kustomization.yaml names: change those.\n---\n" + strings.Join(parts, "---\n")
	golden.File(t, filepath.Join(installDir, "install.yaml"), render)
}

func TestEveryPartOfTheInstallIsNamed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(installDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	named := append(installKustomization(t).Resources, "kustomization.yaml", "install.yaml")
	for _, file := range files {
		if !slices.Contains(named, filepath.Base(file)) {
			t.Errorf("%s is not in kustomization.yaml: it would not be installed", file)
		}
	}
}

// druid gives the agents the image of its own Pod. Tools that replace the image of a container know nothing of a second name in a flag.
func TestInstallNamesTheImageOnce(t *testing.T) {
	if found := strings.Count(readInstall(t, "install.yaml"), "ghcr.io/etcd-druid/druid:"); found != 1 {
		t.Errorf("the install names the image of druid %d times, want once", found)
	}
	fields := map[string]string{}
	for _, e := range installedDeployment(t).Spec.Template.Spec.Containers[0].Env {
		fields[e.Name] = e.ValueFrom.FieldRef.FieldPath
	}
	if want := map[string]string{"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}; !maps.Equal(fields, want) {
		t.Errorf("the variables are %v, want %v", fields, want)
	}
}

func installKustomization(t testing.TB) kustomization {
	t.Helper()
	var k kustomization
	if err := yaml.UnmarshalStrict([]byte(readInstall(t, "kustomization.yaml")), &k); err != nil {
		t.Fatalf("parse kustomization.yaml: %v", err)
	}
	return k
}

func installParts(t testing.TB) []string {
	t.Helper()
	var parts []string
	for _, name := range installKustomization(t).Resources {
		parts = append(parts, strings.TrimPrefix(readInstall(t, name), "---\n"))
	}
	return parts
}

// installObjects are the objects of the install in the order of their application.
func installObjects(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(strings.Join(installParts(t), "---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("parse a document of the install: %v", err)
		}
		all = append(all, object)
	}
	return all
}

func installedDeployment(t testing.TB) appsv1.Deployment {
	t.Helper()
	document, _, _ := strings.Cut(readInstall(t, "deployment.yaml"), "\n---\n")
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(document), &deployment); err != nil {
		t.Fatalf("parse the Deployment: %v", err)
	}
	return deployment
}

func readInstall(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(installDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
