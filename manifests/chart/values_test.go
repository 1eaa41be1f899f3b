package chart

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/druid"
)

const deployment = "Deployment druid-system/druid"

// Each value is in the Deployment where it belongs. want is a path, and the JSON that is there.
func TestValuesOfTheDeployment(t *testing.T) {
	pod := []string{"spec", "template", "spec"}
	cases := map[string]struct {
		values string
		path   []string
		want   string
	}{
		"replicas":       {"replicas: 3", []string{"spec", "replicas"}, "3"},
		"node selector":  {"nodeSelector: {a: b}", append(pod, "nodeSelector"), `{"a":"b"}`},
		"tolerations":    {"tolerations: [{operator: Exists}]", append(pod, "tolerations"), `[{"operator":"Exists"}]`},
		"affinity":       {"affinity: {nodeAffinity: {a: b}}", append(pod, "affinity"), `{"nodeAffinity":{"a":"b"}}`},
		"priority class": {"priorityClassName: high", append(pod, "priorityClassName"), `"high"`},
		"pull secrets":   {"imagePullSecrets: [{name: registry}]", append(pod, "imagePullSecrets"), `[{"name":"registry"}]`},
		"certificate's volume": {"metrics: {secure: true, certificateSecret: s}", append(pod, "volumes"),
			`[{"name":"metrics-certificate","secret":{"secretName":"s"}}]`},
	}
	withEachHelm(t, func(t *testing.T, h helm) {
		for name, c := range cases {
			if got := text(t, h.mustRender(t, c.values).get(t, deployment, c.path...)); got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
		}
	})
}

// container returns the container of druid.
func container(t *testing.T, all objects) map[string]any {
	t.Helper()
	containers, _ := all.get(t, deployment, "spec", "template", "spec", "containers").([]any)
	if len(containers) != 1 {
		t.Fatalf("the Pod has %d containers, want 1", len(containers))
	}
	c, _ := containers[0].(map[string]any)
	return c
}

func TestValuesOfTheContainer(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	cases := map[string]struct {
		values, field string
		want          string
		args          []string
	}{
		"another tag": {"image: {repository: r.example/druid, tag: v1}", "image", `"r.example/druid:v1"`, nil},
		"a digest goes before a tag": {
			"image: {repository: r.example/druid, tag: v1, digest: \"" + digest + "\"}", "image", `"r.example/druid@` + digest + `"`, nil,
		},
		"the agents can have another image": {
			"agentImage: r.example/druid:v0", "image", `"ghcr.io/etcd-druid/druid:dev"`, []string{"--agent-image=r.example/druid:v0"},
		},
		"another repository of etcd": {
			"etcdImageRepository: r.example:5000/etcd", "imagePullPolicy", `"IfNotPresent"`, []string{"--etcd-image-repository=r.example:5000/etcd"},
		},
		"pull policy":    {"image: {pullPolicy: Always}", "imagePullPolicy", `"Always"`, nil},
		"resources":      {"resources: {limits: {memory: 1Gi}}", "resources", `{"limits":{"memory":"1Gi"},"requests":{"cpu":"20m","memory":"64Mi"}}`, nil},
		"log level":      {"logLevel: debug", "name", `"druid"`, []string{"--log-level=debug"}},
		"namespaces":     {"watchNamespaces: [a, b]", "name", `"druid"`, []string{"--namespaces=a,b"}},
		"secure metrics": {"metrics: {secure: true}", "volumeMounts", "null", []string{"--metrics-secure"}},
		"metrics certificate": {"metrics: {secure: true, certificateSecret: s}", "volumeMounts",
			`[{"mountPath":"/metrics-certificate","name":"metrics-certificate","readOnly":true}]`,
			[]string{"--metrics-secure", "--metrics-cert-dir=/metrics-certificate"}},
		"other flags": {"flags: {concurrency: 1000, agent-renew-interval: 1m30s}", "name", `"druid"`,
			[]string{"--concurrency=1000", "--agent-renew-interval=1m30s"}},
	}
	withEachHelm(t, func(t *testing.T, h helm) {
		for name, c := range cases {
			got := container(t, h.mustRender(t, c.values))
			if is := text(t, got[c.field]); is != c.want {
				t.Errorf("%s: %s is %s, want %s", name, c.field, is, c.want)
			}
			args := arguments(t, got)
			for _, arg := range c.args {
				if !slices.Contains(args, arg) {
					t.Errorf("%s: args are %q, want %s among them", name, args, arg)
				}
			}
			parseArguments(t, name, args)
		}
	})
}

func arguments(t *testing.T, container map[string]any) []string {
	t.Helper()
	args, _, err := unstructured.NestedStringSlice(container, "args")
	if err != nil {
		t.Fatal(err)
	}
	return args
}

// parseArguments lets druid read them.
func parseArguments(t *testing.T, name string, args []string) {
	t.Helper()
	o := druid.DefaultOptions()
	flags := pflag.NewFlagSet("druid", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Errorf("%s: druid refuses %q: %v", name, args, err)
	}
}

// fixed are the flags that the templates set themselves, or that the chart leaves as they are because an object depends on them.
var fixed = map[string]string{
	"agent-image":           "agentImage",
	"etcd-image-repository": "etcdImageRepository",
	"namespaces":            "watchNamespaces",
	"log-level":             "logLevel",
	"metrics-secure":        "metrics.secure",
	"metrics-cert-dir":      "metrics.certificateSecret",
	"metrics-address":       "a port of the container",
	"health-address":        "a port of the container",
	"leader-elect":          "two replicas need it",
	"leader-namespace":      "the Role for the election is in the namespace of the release",
}

func TestEveryFlagOfDruidCanBeSet(t *testing.T) {
	var schema struct {
		Properties struct {
			Flags struct {
				Properties map[string]any `json:"properties"`
			} `json:"flags"`
		} `json:"properties"`
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(chartDir, "values.schema.json"))), &schema); err != nil {
		t.Fatal(err)
	}
	o := druid.DefaultOptions()
	set := pflag.NewFlagSet("druid", pflag.ContinueOnError)
	o.AddFlags(set)
	var want []string
	set.VisitAll(func(f *pflag.Flag) {
		if fixed[f.Name] == "" {
			want = append(want, f.Name)
		}
	})
	for name := range fixed {
		if set.Lookup(name) == nil {
			t.Errorf("druid has no flag --%s", name)
		}
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(schema.Properties.Flags.Properties))); diff != "" {
		t.Errorf("the schema has other flags than druid (-druid +schema):\n%s", diff)
	}
}
