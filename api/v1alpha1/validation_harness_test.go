package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// edit is a change of one field of an EtcdCluster: a value at a path, or the absence of the field when the value is nil.
type edit struct {
	path  string
	value any
}

// valid is an EtcdCluster with every field set to something that must be accepted.
const valid = `
apiVersion: etcd.druid.dev/v1alpha1
kind: EtcdCluster
metadata:
  name: valid
spec:
  replicas: 3
  version: 3.6.16
  image: registry.example.com:5000/etcd-development/etcd
  imagePullSecrets: [{name: pull}]
  storage:
    size: 4Gi
    storageClassName: fast
    persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}
  etcd:
    quotaBackendBytes: 2Gi
    autoCompactionMode: Periodic
    autoCompactionRetention: 1h30m
    snapshotCount: 10000
    heartbeatInterval: 200ms
    electionTimeout: 1.5s
  resources: {requests: {cpu: 100m, memory: 128Mi}}
  tolerations: [{operator: Exists}]
  priorityClassName: high
  nodeSelector: {disk: fast, example.com/pool: ""}
  runtimeClassName: gvisor
  env: [{name: GOGC, value: "50"}, {name: NOTHING}]
  additionalMetadata:
    labels: {team: storage, example.com/cost-centre: "42", empty: ""}
    annotations: {example.com/note: "any text, with = and $"}
  clientService:
    annotations: {external-dns.alpha.kubernetes.io/hostname: etcd.example.com}
  defragmentation:
    schedule: 30 2,4-5 */2 JAN-nov 0
    timeZone: America/Argentina/Buenos_Aires
    window: 2h30m
    minFreePercent: 30
    minFreeBytes: 50Mi
    outOfSpace: Nothing
` + validBackup

func dryRunStrict() metav1.CreateOptions {
	return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
}

// inMemory makes the valid cluster store in memory.
func inMemory(more ...edit) []edit {
	return append([]edit{
		{"spec.storage.medium", "Memory"}, {"spec.storage.storageClassName", nil}, {"spec.resources.limits", map[string]any{"memory": "6Gi"}},
	}, more...)
}

// onDisk makes the valid cluster store on the disks of the nodes.
func onDisk(more ...edit) []edit {
	return append([]edit{{"spec.storage.medium", "Disk"}, {"spec.storage.storageClassName", nil}}, more...)
}

func edited(t testing.TB, edits ...edit) *unstructured.Unstructured {
	t.Helper()
	cluster := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(valid), &cluster.Object); err != nil {
		t.Fatalf("parse the valid cluster: %v", err)
	}
	for _, e := range edits {
		path := strings.Split(e.path, ".")
		if e.value == nil {
			unstructured.RemoveNestedField(cluster.Object, path...)
			continue
		}
		if err := unstructured.SetNestedField(cluster.Object, e.value, path...); err != nil {
			t.Fatalf("set %s: %v", e.path, err)
		}
	}
	return cluster
}

// many are annotations with the longest keys and values.
func many(n int) map[string]any {
	all := map[string]any{}
	for i := range n {
		key := fmt.Sprintf("%s%02d/%s", strings.Repeat("a", 61), i, strings.Repeat("k", 63))
		all[key] = strings.Repeat("v", 4096)
	}
	return all
}
