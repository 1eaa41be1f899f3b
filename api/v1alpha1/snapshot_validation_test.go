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
	of, elsewhere := map[string]any{"name": "demo"}, map[string]any{"bucket": "other"}
	for want, spec := range map[string]map[string]any{
		"spec.clusterRef: Required value":                              {"type": "Full"},
		"spec.clusterRef.name in body should be at least 1 chars":      {"clusterRef": map[string]any{"name": ""}},
		"Unsupported value: \"Half\"":                                  {"clusterRef": of, "type": "Half"},
		"should be greater than or equal to 0":                         {"clusterRef": of, "ttlSecondsAfterFinished": int64(-1)},
		"final needs type Full: a Delta is useless":                    {"clusterRef": of, "type": "Delta", "final": true},
		"verify needs type Full: a Delta cannot":                       {"clusterRef": of, "type": "Delta", "verify": true},
		"verify must not be combined with store:":                      {"clusterRef": of, "store": elsewhere, "verify": true},
		"deletionPolicy Delete needs type Full: later backups":         {"clusterRef": of, "type": "Delta", "deletionPolicy": "Delete"},
		"deletionPolicy Delete must not be combined with final":        {"clusterRef": of, "final": true, "deletionPolicy": "Delete"},
		"deletionPolicy Delete must not be combined with store":        {"clusterRef": of, "store": elsewhere, "deletionPolicy": "Delete"},
		"Unsupported value: \"Keep\"":                                  {"clusterRef": of, "deletionPolicy": "Keep"},
		"store needs type Full: a Delta is useless":                    {"clusterRef": of, "type": "Delta", "store": elsewhere},
		"final must not be combined with store:":                       {"clusterRef": of, "final": true, "store": elsewhere},
		"spec.store.bucket: Required value":                            {"clusterRef": of, "store": map[string]any{"prefix": "a"}},
		"bucket must be the name of a bucket":                          {"clusterRef": of, "store": map[string]any{"bucket": "a/b/c"}},
		"prefix must be words":                                         {"clusterRef": of, "store": map[string]any{"bucket": "other", "prefix": "/a"}},
		"endpoint must be a URL":                                       {"clusterRef": of, "store": map[string]any{"bucket": "other", "endpoint": "s3.example.com"}},
		"unknown field \"spec.store.credentialsSecretRef\"":            {"clusterRef": of, "store": map[string]any{"bucket": "other", "credentialsSecretRef": of}},
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
		"a full that goes with it": {"clusterRef": of, "final": false, "deletionPolicy": "Delete"},
		"a delta that stays":       {"clusterRef": of, "type": "Delta", "deletionPolicy": "Retain"},
		"another bucket":           {"clusterRef": of, "final": false, "deletionPolicy": "Retain", "store": elsewhere},
		"all of another bucket": {"clusterRef": of, "store": map[string]any{
			"bucket": "other", "prefix": "etcd/prod", "region": "eu-central-1", "endpoint": "https://s3.example.com:9000", "forcePathStyle": true,
		}},
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
	if policy, _, _ := unstructured.NestedString(made.Object, "spec", "deletionPolicy"); policy != "Retain" {
		t.Errorf("deletionPolicy is %q, want Retain", policy)
	}
	for field, value := range map[string]any{"type": "Delta", "store": elsewhere, "final": true, "verify": true, "ttlSecondsAfterFinished": int64(5), "clusterRef": map[string]any{"name": "other"}} {
		changed := made.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, value, "spec", field); err != nil {
			t.Fatal(err)
		}
		if _, err := snapshots.Update(t.Context(), changed, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "spec must not change") {
			t.Errorf("change of %s: got %v, want it refused", field, err)
		}
	}
	for _, policy := range []string{"Delete", "Retain"} {
		if err := unstructured.SetNestedField(made.Object, policy, "spec", "deletionPolicy"); err != nil {
			t.Fatal(err)
		}
		if made, err = snapshots.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("change of deletionPolicy to %s: %v", policy, err)
		}
	}
}
