package chart

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

// namespace is where the installation is, and release the name of the release.
const (
	namespace = "druid-system"
	release   = "druid"
)

// helm is a real Helm with files of its own.
type helm struct {
	path string
	env  []string
}

// withEachHelm runs the test with Helm 3 and with Helm 4, at the same time.
func withEachHelm(t *testing.T, run func(t *testing.T, h helm)) {
	t.Helper()
	t.Parallel()
	for _, name := range []string{"helm-3", "helm-4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, newHelm(t, name))
		})
	}
}

func newHelm(t *testing.T, name string) helm {
	t.Helper()
	built, err := binaries.Programs(t.Context(), t.Logf, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range charts {
		for _, file := range chartFiles(t, dir) {
			read(t, filepath.Join(dir, file)) // go test's cache sees here what Helm reads
		}
	}
	home := t.TempDir()
	return helm{path: built[name], env: []string{
		"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
		"KUBECONFIG=" + filepath.Join(home, "none"), "PATH=" + os.Getenv("PATH"),
	}}
}

// do runs Helm and returns what it printed. The error has what it printed about it.
func (h helm) do(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), h.path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = h.env, &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w", strings.Join(args, " "), errors.Join(err, errors.New(problems.String())))
	}
	return out.String(), nil
}

func (h helm) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.do(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// render is template of the chart of druid.
func (h helm) render(t *testing.T, in, values string) (objects, error) {
	t.Helper()
	return h.template(t, chartDir, in, values)
}

// template returns the objects that the chart in the folder dir renders with the values, a YAML document, in the namespace.
func (h helm) template(t *testing.T, dir, in, values string) (objects, error) {
	t.Helper()
	out, err := h.do(t, "template", release, dir, "--namespace", in, "--values", valuesFile(t, values))
	if err != nil {
		return nil, err
	}
	return parse(t, out), nil
}

func (h helm) mustRender(t *testing.T, values string) objects {
	t.Helper()
	all, err := h.render(t, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func valuesFile(t *testing.T, values string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// objects by "Kind namespace/name".
type objects map[string]*unstructured.Unstructured

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}

// parse returns the objects of a stream of YAML documents. Two with the same key fail the test.
func parse(t *testing.T, stream string) objects {
	t.Helper()
	all := objects{}
	for document := range strings.SplitSeq("\n"+stream, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("parse a document: %v\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		if all[key(object)] != nil {
			t.Fatalf("%s is there twice", key(object))
		}
		all[key(object)] = object
	}
	return all
}

// get returns a part of an object, or nil.
func (o objects) get(t *testing.T, key string, path ...string) any {
	t.Helper()
	object := o[key]
	if object == nil {
		t.Fatalf("the chart renders no %s", key)
	}
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return value
}
