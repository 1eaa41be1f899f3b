package chart

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const samplesDir = "../../docs/samples"

// keepAnnotation lets Helm leave an object in place.
const keepAnnotation = "helm.sh/resource-policy"

func TestEachSampleCanBeWrittenAsValues(t *testing.T) {
	withEachHelm(t, func(t *testing.T, h helm) {
		for name, sample := range samples(t) {
			values, want := asValues(t, sample)
			got, err := h.template(t, clusterDir, namespace, values)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if diff := cmp.Diff(objects{key(want): want}, got); diff != "" {
				t.Errorf("%s (-sample +chart):\n%s", name, diff)
			}
		}
	})
}

// samples returns the EtcdClusters of the samples, by file.
func samples(t *testing.T) objects {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(samplesDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	clusters := objects{}
	for _, path := range paths {
		sample := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(read(t, path)), &sample.Object); err != nil {
			t.Fatalf("parse %s: %v", path, err)
		}
		if sample.GetKind() == "EtcdCluster" {
			clusters[filepath.Base(path)] = sample
		}
	}
	if len(clusters) == 0 {
		t.Fatalf("%s has no EtcdCluster", samplesDir)
	}
	return clusters
}

// asValues returns the values for the sample, and what the chart renders for them.
func asValues(t *testing.T, sample *unstructured.Unstructured) (string, *unstructured.Unstructured) {
	t.Helper()
	values, err := yaml.Marshal(map[string]any{"name": sample.GetName(), "spec": sample.Object["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	want := sample.DeepCopy()
	want.SetNamespace(namespace)
	want.SetAnnotations(map[string]string{keepAnnotation: "keep"})
	return string(values), want
}

func TestValuesOfTheEtcdCluster(t *testing.T) {
	const demo = "EtcdCluster druid-system/druid"
	cases := map[string]struct {
		values, key string
		path        []string
		want        string
	}{
		"the name of the release": {"{}", demo, []string{"metadata", "name"}, `"druid"`},
		"another name":            {"name: other", "EtcdCluster druid-system/other", []string{"metadata", "name"}, `"other"`},
		"the spec by default":     {"{}", demo, []string{"spec"}, `{"replicas":3,"storage":{"size":"1Gi"}}`},
		"kept by default":         {"{}", demo, []string{"metadata", "annotations"}, `{"helm.sh/resource-policy":"keep"}`},
		"not kept":                {"keep: false", demo, []string{"metadata", "annotations"}, "null"},
		"labels":                  {"labels: {a: b}", demo, []string{"metadata", "labels"}, `{"a":"b"}`},
		"annotations":             {"annotations: {a: 'true'}", demo, []string{"metadata", "annotations"}, `{"a":"true","helm.sh/resource-policy":"keep"}`},
		"a number of bytes":       {"spec: {etcd: {quotaBackendBytes: 1073741824}}", demo, []string{"spec", "etcd"}, `{"quotaBackendBytes":1073741824}`},
		"part of a chart":         {"{enabled: true, global: {a: b}}", demo, []string{"metadata", "name"}, `"druid"`},
		"a snapshot of a cluster": {
			"{name: other, snapshots: [{name: s, spec: {type: Full}}]}", "EtcdSnapshot druid-system/s",
			[]string{"spec"}, `{"clusterRef":{"name":"other"},"type":"Full"}`,
		},
		"the labels of a snapshot": {
			"snapshots: [{name: '1', labels: {a: b}, annotations: {c: d}}]", "EtcdSnapshot druid-system/1",
			[]string{"metadata"}, `{"annotations":{"c":"d"},"labels":{"a":"b"},"name":"1","namespace":"druid-system"}`,
		},
	}
	withEachHelm(t, func(t *testing.T, h helm) {
		for name, c := range cases {
			all, err := h.template(t, clusterDir, namespace, c.values)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if got := text(t, all.get(t, c.key, c.path...)); got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
		}
	})
}

// TestClusterChartRefusesWrongValues: wrong values of the EtcdCluster are refused.
// The error has the path of the value.
func TestClusterChartRefusesWrongValues(t *testing.T) {
	cases := map[string]struct{ values, path, named string }{
		"a misspelt value":              {"replicas: 3", "", "replicas"},
		"a misspelt field":              {"spec: {replica: 3}", "spec", "replica"},
		"a misspelt field further down": {"spec: {backup: {store: {s3: {buckets: b}}}}", "s3", "buckets"},
		"a number as a word":            {"spec: {replicas: three}", "replicas", "integer"},
		"a switch as a word":            {"keep: 'no'", "keep", "bool"},
		"too many members":              {"spec: {replicas: 11}", "replicas", "9"},
		"a size that is none":           {"spec: {storage: {size: 1GB}}", "size", "pattern"},
		"a word that is none":           {"spec: {storage: {medium: Tape}}", "medium", "Memory"},
		"no storage":                    {"spec: {storage: null}", "spec", "storage"},
		"a name of a DNS domain":        {"name: a.b", "name", "pattern"},
		"a label that is no text":       {"labels: {a: 1}", "labels", "string"},
		"a status":                      {"status: {}", "", "status"},
		"a snapshot without a name":     {"snapshots: [{}]", "snapshots", "name"},
		"a snapshot of another cluster": {"snapshots: [{name: s, spec: {clusterRef: {name: a}}}]", "spec", "clusterRef"},
		"a misspelt field of one":       {"snapshots: [{name: s, spec: {typ: Full}}]", "spec", "typ"},
	}
	withEachHelm(t, func(t *testing.T, h helm) {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			c := cases[name]
			_, err := h.template(t, clusterDir, namespace, c.values)
			if err == nil {
				t.Errorf("%s: Helm accepts %s", name, c.values)
				continue
			}
			_, about, _ := strings.Cut(err.Error(), "exit status")
			for _, word := range []string{"schema", c.path, c.named} {
				if !strings.Contains(about, word) {
					t.Errorf("%s: the error does not have %q: %v", name, word, err)
				}
			}
		}
	})
}
