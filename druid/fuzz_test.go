package druid

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/env"
)

// asks is an API server, which knows what a user can write.
type asks struct {
	client    dynamic.Interface
	namespace string
}

// asksVariable is where a process that fuzzes says how its workers reach its API server. A worker starts none: a server would outlive a
// worker that fails, and keep its pipes open.
const asksVariable = "DRUID_TEST_API_SERVER"

func newAsks(f *testing.F) asks {
	f.Helper()
	var at struct {
		Host, Namespace string
		TLS             rest.TLSClientConfig
	}
	if given := os.Getenv(asksVariable); given != "" {
		if err := json.Unmarshal([]byte(given), &at); err != nil {
			f.Fatal(err)
		}
	} else {
		config := env.APIServer(f)
		at.Host, at.TLS, at.Namespace = config.Host, config.TLSClientConfig, env.Namespace(f, config)
		raw, err := json.Marshal(at)
		if err != nil {
			f.Fatal(err)
		}
		f.Setenv(asksVariable, string(raw))
	}
	c, err := dynamic.NewForConfig(&rest.Config{Host: at.Host, TLSClientConfig: at.TLS, QPS: -1})
	if err != nil {
		f.Fatal(err)
	}
	return asks{c, at.Namespace}
}

// decode decodes an object into typed. It returns false for what has an unknown field or a wrong type.
func decode(raw []byte, typed any) bool {
	strict, err := kjson.UnmarshalStrict(raw, typed)
	return err == nil && len(strict) == 0
}

// accepts says whether the API server would store the object. typed is then what it would store: with defaults, and without a status.
func (a asks) accepts(t testing.TB, resource string, raw []byte, typed any) bool {
	t.Helper()
	object := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return false
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		return false
	}
	metadata["namespace"] = a.namespace
	delete(metadata, "resourceVersion")
	stored, err := a.client.Resource(v1alpha1.GroupVersion.WithResource(resource)).Namespace(a.namespace).Create(
		t.Context(), &unstructured.Unstructured{Object: object},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict},
	)
	if err != nil {
		return false
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, typed); err != nil {
		t.Errorf("the API server accepts it, and druid cannot decode it: %v\n%s", err, raw)
		return false
	}
	return true
}

// samples are the objects of a kind that the documentation has, and one for each of the specs.
func samples(f *testing.F, kind string, specs ...string) (all []string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("..", "docs", "samples", "*.yaml"))
	if err != nil || len(files) == 0 {
		f.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if raw, err = yaml.YAMLToJSON(raw); err != nil {
			f.Fatal(err)
		}
		if strings.Contains(string(raw), `"kind":"`+kind+`"`) {
			all = append(all, string(raw))
		}
	}
	for _, spec := range specs {
		all = append(all, `{"apiVersion":"etcd.druid.dev/v1alpha1","kind":"`+kind+`","metadata":{},`+spec+`}`)
	}
	return all
}

// named is merged into each sample.
const named = `{"metadata":{"name":"demo","generateName":null,"namespace":"default","uid":"11111111-2222-3333-4444-555555555555"}}`

// merged returns an object with JSON merge patches (RFC 7396), or nil if one is not JSON.
func merged(object string, patches ...string) []byte {
	var whole any
	for _, text := range append([]string{object}, patches...) {
		var part any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &part); err != nil {
			return nil
		}
		whole = merge(whole, part)
	}
	raw, err := json.Marshal(whole)
	if err != nil {
		return nil
	}
	return raw
}

func merge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(object, key)
		} else {
			object[key] = merge(object[key], value)
		}
	}
	return object
}

// patches are what the fuzzer begins with.
var patches = []string{
	`{}`, `{"spec":{"replicas":-1}}`, `{"spec":{"storage":{"size":"1e40Gi"}}}`, `{"spec":{"etcd":{"quotaBackendBytes":"-1","heartbeatInterval":"-3h"}}}`,
	`{"spec":{"backup":{"full":{"schedule":"@every 1s","timeZone":"Local"},"delta":{"period":"0s"}}}}`, `{"spec":{"backup":{"full":{"timeZone":"A"}}}}`,
	`{"spec":{"version":"3.6.999999999999999999"}}`,
	`{"spec":{"tls":{"client":{"auto":{"leafLifetime":"1ns","caLifetime":"2562047h47m16.854775807s"}}}}}`,
	`{"spec":{"tls":{"client":{},"peer":{}}}}`, `{"metadata":{"annotations":{"etcd.druid.dev/leave-first":",,"}}}`,
	`{"spec":{"bootstrap":{"restore":{"from":{"name":"other"},"to":{"revision":9223372036854775807}}}}}`,
	`{"status":{"formerTLS":"{","spec":"{","clusterID":"x"}}`,
	`{"spec":{"store":{"s3":{"endpoint":"https://[::1]:0/%zz","prefix":"/../"}}}}`, `{"spec":{"additionalMetadata":{"labels":{"app.kubernetes.io/name":"x"}}}}`,
}

// seed adds each patch of each sample. The API server must accept the first sample, which is of the documentation, or no target would find
// out what it accepts.
func seed[T any](f *testing.F, server asks, resource string, samples []string) {
	f.Helper()
	if raw := merged(samples[0], named); !server.accepts(f, resource, raw, new(T)) {
		f.Fatalf("the API server does not accept %s", raw)
	}
	for i := range samples {
		for _, patch := range patches {
			f.Add(byte(i), patch)
		}
	}
}

// clusterSpecs have the fields of an EtcdCluster that no sample has.
var clusterSpecs = []string{
	`"spec":{"replicas":1,"version":"3.5.33","storage":{"size":"1Gi","medium":"Memory"},"resources":{"limits":{"memory":"4Gi"}},` +
		`"tls":{"client":{"secretRef":{"name":"own","clientName":"agents"}},"peer":{"secretRef":{"name":"own"}}}}`,
	`"spec":{"replicas":5,"version":"3.6.16","storage":{"size":"1Gi","medium":"Disk"},"etcd":{"quotaBackendBytes":"2Gi",` +
		`"autoCompactionMode":"Periodic","autoCompactionRetention":"1h30m","snapshotCount":10000,"heartbeatInterval":"200ms","electionTimeout":"1.5s"}}`,
	`"spec":{"replicas":3,"storage":{"size":"1Gi"},"tls":{"client":{"certManager":{"issuerRef":{"name":"ca"}},"mode":"Server",` +
		`"extraSANs":["etcd.example.com","192.0.2.1"]},"peer":{"certManager":{"issuerRef":{"name":"ca","kind":"ClusterIssuer"}}}}}`,
	`"spec":{"replicas":3,"storage":{"size":"1Gi"},"tls":{"client":{"auto":{}},"peer":{"auto":{}}},"auth":{"enabled":true,` +
		`"users":[{"name":"app","roles":["app"]}],"roles":[{"name":"app","permissions":[{"key":"/a/","prefix":true,"type":"ReadWrite"}]}],` +
		`"passwordsSecretRef":{"name":"passwords"}}}`,
	`"spec":{"replicas":3,"storage":{"size":"1Gi"},"bootstrap":{"join":{"endpoints":["https://etcd-0.old:2379"],` +
		`"tls":{"secretRef":{"name":"old"}},"removeExternalMembers":true}}}`,
	`"spec":{"replicas":3,"storage":{"size":"1Gi"},"env":[{"name":"GOGC","value":"$(X)"}],"nodeSelector":{"disk":"fast"},` +
		`"additionalMetadata":{"labels":{"a":"b"},"annotations":{"c":"d"}},"networkPolicy":{"clients":[{"podSelector":{}}],"metrics":[]},` +
		`"leaderService":{"enabled":true},"clientService":{"type":"LoadBalancer"},"defragmentation":{"schedule":"0 3 * * ` +
		`*","timeZone":"Europe/Berlin","window":"2h"}},"status":{"clusterID":"00000000000000ab","epoch":1,"members":[{"name":"demo-aaaaa","version":"3.6.16"}]}`,
	`"spec":{"replicas":3,"storage":{"size":"1Gi"},"backup":{"store":{"directory":{"claimName":"c"}},"full":{"schedule":"@daily"},` +
		`"encryption":{"keySecretRef":{"name":"k"}}}}`,
}

// snapshotSpecs have the fields of an EtcdSnapshot that no sample has.
var snapshotSpecs = []string{
	`"spec":{"clusterRef":{"name":"demo"},"type":"Full","store":{"s3":{"bucket":"bucket","prefix":"p","region":"eu-central-1",` +
		`"endpoint":"https://s3.example.com","credentialsSecretRef":{"name":"c"},"caSecretRef":{"name":"ca","key":"ca.crt"}}},` +
		`"encryption":{"keySecretRef":{"name":"k"}}}`,
	`"spec":{"clusterRef":{"name":"demo"},"type":"Full","store":{"directory":{"hostPath":"/srv/backups"}}}`,
}

// FuzzEtcdCluster: whatever a user writes, druid renders it or reports what is wrong. What the API server accepts, druid renders, twice
// the same.
func FuzzEtcdCluster(f *testing.F) {
	objects, server := samples(f, "EtcdCluster", clusterSpecs...), newAsks(f)
	seed[v1alpha1.EtcdCluster](f, server, "etcdclusters", objects)
	f.Fuzz(func(t *testing.T, of byte, patch string) {
		raw := merged(objects[int(of)%len(objects)], named, patch)
		var one v1alpha1.EtcdCluster
		if !decode(raw, &one) {
			return
		}
		before := one.DeepCopy()
		first, err := render(&one)
		if !reflect.DeepEqual(before, &one) {
			t.Errorf("druid changes the object that it read:\n%s", raw)
		}
		if second, _ := render(before); first != second {
			t.Errorf("it is rendered twice, and differs:\n%s\n%s", first, second)
		}
		var stored v1alpha1.EtcdCluster
		if err == nil || !server.accepts(t, "etcdclusters", raw, &stored) {
			return
		}
		if _, err := render(&stored); err != nil {
			t.Errorf("the API server accepts it, and druid does not render it: %v\n%s", err, raw)
		}
	})
}

// FuzzEtcdSnapshot is FuzzEtcdCluster for the Pod of an EtcdSnapshot with a store of its own.
func FuzzEtcdSnapshot(f *testing.F) {
	objects, server := samples(f, "EtcdSnapshot", snapshotSpecs...), newAsks(f)
	seed[v1alpha1.EtcdSnapshot](f, server, "etcdsnapshots", objects)
	cluster := &v1alpha1.EtcdCluster{}
	cluster.Name, cluster.Namespace, cluster.UID = "demo", "default", "u"
	f.Fuzz(func(t *testing.T, of byte, patch string) {
		raw := merged(objects[int(of)%len(objects)], named, patch)
		var one, stored v1alpha1.EtcdSnapshot
		if !decode(raw, &one) {
			return
		}
		first, err := renderSnapshot(cluster, &one)
		if second, _ := renderSnapshot(cluster, one.DeepCopy()); first != second {
			t.Errorf("it is rendered twice, and differs:\n%s\n%s", first, second)
		}
		if err == nil || !server.accepts(t, "etcdsnapshots", raw, &stored) {
			return
		}
		if _, err := renderSnapshot(cluster, &stored); err != nil {
			t.Errorf("the API server accepts it, and druid does not render it: %v\n%s", err, raw)
		}
	})
}

// renderSnapshot returns the Pods of an EtcdSnapshot as JSON, and the first error. Without a store, agents save it.
func renderSnapshot(cluster *v1alpha1.EtcdCluster, snapshot *v1alpha1.EtcdSnapshot) (string, error) {
	if snapshot.Spec.Store == nil {
		return "", nil
	}
	var all []*corev1.Pod
	for _, run := range []manifests.SnapshotRun{{Within: manifests.SnapshotTimeout}, {Drop: "key", Within: manifests.SnapshotTimeout}} {
		pod, err := manifests.SnapshotPod(cluster, snapshot, run, manifests.Options{AgentImage: "agent"})
		if err != nil {
			return "", err
		}
		all = append(all, pod)
	}
	raw, err := json.Marshal(all)
	return string(raw), err
}

// withKnownTimes returns the cluster with the default schedules. The CRD knows neither cron nor the IANA names: of other schedules, a
// condition says what is wrong, and druid renders the default.
func withKnownTimes(cluster *v1alpha1.EtcdCluster) *v1alpha1.EtcdCluster {
	cluster = cluster.DeepCopy()
	if backup := cluster.Spec.Backup; backup != nil {
		backup.Full.Schedule, backup.Full.TimeZone, backup.Verify = manifests.DefaultSchedule, "", v1alpha1.BackupVerification{}
	}
	return cluster
}

// render returns all that druid makes of an EtcdCluster before it looks at anything else, as JSON, and the first error.
func render(cluster *v1alpha1.EtcdCluster) (string, error) {
	var all []any
	var first error
	add := func(object any, err error) {
		all = append(all, object)
		if err != nil {
			all = append(all, err.Error())
			if first == nil {
				first = err
			}
		}
	}
	const member = "demo-aaaaa"
	options := manifests.Options{AgentImage: "agent"}
	record := leases.Record{Phase: leases.PhaseForming, Seed: member, Epoch: 1, Nonce: "0123456789abcdef", MaxLearners: leases.MaxLearners,
		Members: []string{member}}
	add(manifests.SpecHash(cluster))
	add(manifests.Pod(cluster, member, options))
	add(manifests.PersistentVolumeClaim(cluster, member), nil)
	add(manifests.MemberLease(cluster, member), nil)
	add(manifests.LeaderLease(cluster), nil)
	add(manifests.RecordLease(cluster, record))
	add(manifests.SnapshotLease(cluster, leases.ComponentFullSnapshot))
	add(manifests.SnapshotLease(cluster, leases.ComponentDeltaSnapshot))
	add(manifests.Shared(cluster, record, options))
	add(manifests.DisruptionBudget(cluster, 2, "why"))
	add(manifests.Endpoints(cluster), nil)
	add(manifests.Backup(cluster))
	add(fmt.Sprint(manifests.BackupProblem(cluster)), nil)
	add(nil, manifests.BackupProblem(withKnownTimes(cluster)))
	issued := manifests.Issued(cluster)
	for _, p := range manifests.Planes(cluster) {
		add(manifests.CertificatesOf(cluster, p, "cluster.local"), nil)
		add(issued[p], nil)
		add(manifests.TLSTarget(cluster, p), nil)
	}
	for _, p := range manifests.IssuedByCertManager(cluster) {
		add(manifests.CertManagerCertificates(cluster, p, "cluster.local"))
	}
	desired, err := desiredOf(cluster)
	add(nil, err)
	evaluation := policy.Evaluate(desired, policy.Observed{})
	add(fmt.Sprint(policy.Steps(evaluation)), nil)
	add(policy.Status(evaluation, *cluster.Status.DeepCopy(), nil, cluster.Generation, metav1.Unix(1_800_000_000, 0)), nil)
	_, _, err = lockedOf(cluster)
	add(nil, err)
	_, err = cluster.Status.Former()
	add(nil, err)
	raw, err := json.Marshal(all)
	add(nil, err)
	return string(raw), first
}
