package v1alpha1_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
)

func etcdSnapshot(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "EtcdSnapshot", "metadata": map[string]any{"name": "a"}, "spec": spec,
	}}
}

func TestEtcdSnapshotsOnARealServer(t *testing.T) {
	config := env.APIServer(t)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	snapshots := client.Resource(v1alpha1.GroupVersion.WithResource("etcdsnapshots")).Namespace(env.Namespace(t, config))
	of := map[string]any{"name": "demo"}
	for want, spec := range map[string]map[string]any{
		"spec.clusterRef: Required value":                              {"type": "Full"},
		"spec.clusterRef.name in body should be at least 1 chars":      {"clusterRef": map[string]any{"name": ""}},
		"Unsupported value: \"Half\"":                                  {"clusterRef": of, "type": "Half"},
		"should be greater than or equal to 0":                         {"clusterRef": of, "ttlSecondsAfterFinished": int64(-1)},
		"final is of a backup of type Full":                            {"clusterRef": of, "type": "Delta", "final": true},
		"verify is of a backup of type Full":                           {"clusterRef": of, "type": "Delta", "verify": true},
		"unknown field \"spec.namespace\"":                             {"clusterRef": of, "namespace": "other"},
		"unknown field \"spec.clusterRef.namespace\"":                  {"clusterRef": map[string]any{"name": "demo", "namespace": "other"}},
		"spec.ttlSecondsAfterFinished in body must be of type integer": {"clusterRef": of, "ttlSecondsAfterFinished": "1h"},
	} {
		if _, err := snapshots.Create(t.Context(), etcdSnapshot(spec), dryRunStrict()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s", spec, err, want)
		}
	}
	for name, spec := range map[string]map[string]any{
		"final of the default type": {"clusterRef": of, "final": true}, "final and verified": {"clusterRef": of, "final": true, "verify": true}, "not final": {"clusterRef": of, "type": "Delta", "final": false},
	} {
		if _, err := snapshots.Create(t.Context(), etcdSnapshot(spec), dryRunStrict()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	made, err := snapshots.Create(t.Context(), etcdSnapshot(map[string]any{"clusterRef": of}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kind, _, _ := unstructured.NestedString(made.Object, "spec", "type"); kind != "Full" {
		t.Errorf("type is %q, want Full", kind)
	}
	for field, value := range map[string]any{"type": "Delta", "final": true, "verify": true, "ttlSecondsAfterFinished": int64(5), "clusterRef": map[string]any{"name": "other"}} {
		changed := made.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, value, "spec", field); err != nil {
			t.Fatal(err)
		}
		if _, err := snapshots.Update(t.Context(), changed, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "spec must not change") {
			t.Errorf("change of %s: got %v, want it refused", field, err)
		}
	}
}
