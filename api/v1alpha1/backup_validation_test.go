package v1alpha1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
)

// validBackup is the part of valid that says where the cluster is backed up and what it begins with.
const validBackup = `
  backup:
    store:
      s3:
        bucket: backups.example
        prefix: etcd/prod
        region: eu-central-1
        endpoint: https://s3.example.com:9000/minio
        forcePathStyle: true
        credentialsSecretRef: {name: s3}
        caSecretRef: {name: s3, key: ca.crt}
        sse: {mode: CustomerKey, keySecretRef: {name: s3, key: sse}}
        objectLock: {mode: Governance, days: 7}
        checksum: WhenRequired
    full: {schedule: "0 */6 * * 1-5", timeZone: America/Argentina/Buenos_Aires, maxAge: 24h}
    delta: {period: 30s, maxBytes: 1Mi}
    encryption: {keySecretRef: {name: backup-keys}}
    compression: {level: Better}
    retention: {keepAll: 48h, hourly: 24, daily: 7, weekly: 4, monthly: 12}
  bootstrap:
    restore:
      from:
        store: {directory: {claimName: archive}}
        encryption: {keySecretRef: {name: old-keys}}
        namespace: other
        name: old
      to: {time: "2026-11-21T18:54:00Z"}
`

type refusal = struct {
	edits []edit
	want  string
}

const (
	s3Field      = "spec.backup.store.s3"
	fullField    = "spec.backup.full"
	restoreField = "spec.bootstrap.restore"
	joinField    = "spec.bootstrap.join"
)

func joinOf(endpoints ...any) map[string]any {
	return map[string]any{"endpoints": append([]any{}, endpoints...)}
}

func fromFile(file string) map[string]any {
	return map[string]any{"store": map[string]any{"directory": map[string]any{"claimName": "archive"}}, "file": file}
}

func fromSnapshot(name string) map[string]any {
	return map[string]any{"snapshotRef": map[string]any{"name": name}}
}

func with(object map[string]any, field string, value any) map[string]any {
	object[field] = value
	return object
}

// joinSecurely is join with a Secret for TLS.
func joinSecurely(endpoints ...any) map[string]any {
	of := joinOf(endpoints...)
	of["tls"] = map[string]any{"secretRef": map[string]any{"name": "source"}}
	return map[string]any{"join": of}
}

func join(endpoints ...any) map[string]any { return map[string]any{"join": joinOf(endpoints...)} }

// badBackups are backups and restores that cannot work.
var badBackups = map[string]refusal{
	"a backup without a store": {[]edit{{"spec.backup.store", nil}}, "spec.backup.store: Required value"},
	"a store of no kind":       {[]edit{{"spec.backup.store", map[string]any{}}}, "exactly one of s3 and directory must be set"},
	"a store of two kinds":     {[]edit{{"spec.backup.store.directory.claimName", "a"}}, "exactly one of s3 and directory must be set"},
	"a directory that is nowhere": {[]edit{{"spec.backup.store", map[string]any{"directory": map[string]any{}}}},
		"exactly one of claimName and hostPath must be set"},
	"a directory in two places": {[]edit{{restoreField + ".from.store.directory.hostPath", "/a"}}, "exactly one of claimName and hostPath must be set"},
	"a relative host path": {[]edit{{restoreField + ".from.store.directory", map[string]any{"hostPath": "a"}}},
		"hostPath must be an absolute path"},
	"no bucket":                           {[]edit{{s3Field + ".bucket", nil}}, "spec.backup.store.s3.bucket: Required value"},
	"a bucket with a path":                {[]edit{{s3Field + ".bucket", "bucket/path"}}, "bucket must be the name of a bucket"},
	"a prefix with a slash at its end":    {[]edit{{s3Field + ".prefix", "etcd/"}}, "prefix must be words"},
	"a prefix that leaves the bucket":     {[]edit{{s3Field + ".prefix", "etcd/../a"}}, "prefix must be words"},
	"an endpoint without a scheme":        {[]edit{{s3Field + ".endpoint", "s3.example.com"}}, "endpoint must be a URL like https://"},
	"an endpoint with credentials":        {[]edit{{s3Field + ".endpoint", "https://a:b@s3.example.com"}}, "endpoint must be a URL like https://"},
	"a customer key in plain":             {[]edit{{s3Field + ".endpoint", "http://s3.example.com"}}, "sse.mode CustomerKey needs an https endpoint"},
	"a customer key that is nowhere":      {[]edit{{s3Field + ".sse.keySecretRef", nil}}, "keySecretRef must be set with mode CustomerKey,"},
	"a customer key for a mode without":   {[]edit{{s3Field + ".sse.mode", "AES256"}}, "keySecretRef must be set with mode CustomerKey,"},
	"a key ID for a mode without":         {[]edit{{s3Field + ".sse.kmsKeyID", "a"}}, "kmsKeyID must be set only with mode KMS"},
	"an unknown encryption":               {[]edit{{s3Field + ".sse.mode", "ROT13"}}, "supported values"},
	"a lock of no days":                   {[]edit{{s3Field + ".objectLock.days", int64(0)}}, "should be greater than or equal to 1"},
	"a Secret without a name":             {[]edit{{s3Field + ".credentialsSecretRef.name", ""}}, "should be at least 1 chars long"},
	"a schedule of four fields":           {[]edit{{fullField + ".schedule", "0 0 * *"}}, "schedule must be five cron fields like"},
	"a schedule of six fields":            {[]edit{{fullField + ".schedule", "0 0 0 * * *"}}, "schedule must be five cron fields like"},
	"a schedule with a time zone":         {[]edit{{fullField + ".schedule", "TZ=UTC 0 * * *"}}, "schedule must be five cron fields like"},
	"a word that is no schedule":          {[]edit{{fullField + ".schedule", "@reboot"}}, "schedule must be five cron fields like"},
	"a time zone of the node's":           {[]edit{{fullField + ".timeZone", "Local"}}, "timeZone must be an IANA name like"},
	"an age of no time":                   {[]edit{{fullField + ".maxAge", "1s"}}, "maxAge must be a duration from 1m"},
	"an age of no measure":                {[]edit{{fullField + ".maxAge", "99999999999999999h"}}, "spec.backup.full.maxAge: Invalid value"},
	"a period below a second":             {[]edit{{"spec.backup.delta.period", "500ms"}}, "period must be a duration from 1s to 1h"},
	"a period of a day":                   {[]edit{{"spec.backup.delta.period", "24h"}}, "period must be a duration from 1s to 1h"},
	"a delta for each write":              {[]edit{{"spec.backup.delta.maxBytes", "1"}}, "maxBytes must be from 64Ki to 64Mi"},
	"a delta that fills the agent":        {[]edit{{"spec.backup.delta.maxBytes", "1Gi"}}, "maxBytes must be from 64Ki to 64Mi"},
	"a retention of nothing":              {[]edit{{"spec.backup.retention", map[string]any{}}}, "retention must set at least one field"},
	"a retention by age and number":       {[]edit{{"spec.backup.retention.count", int64(3)}}, "retention.count must not be combined with other fields"},
	"a retention of no fulls":             {[]edit{{"spec.backup.retention.daily", int64(0)}}, "should be greater than or equal to 1"},
	"encryption without keys":             {[]edit{{"spec.backup.encryption", map[string]any{}}}, "spec.backup.encryption.keySecretRef: Required value"},
	"keys of no Secret":                   {[]edit{{"spec.backup.encryption.keySecretRef.name", ""}}, "should be at least 1 chars long"},
	"an unknown reaction":                 {[]edit{{"spec.backup.whenFailing", "Ignore"}}, `supported values: "Block", "Continue"`},
	"an unknown compression":              {[]edit{{"spec.backup.compression.level", "fastest"}}, "supported values"},
	"keys of a restore that has no store": {[]edit{{restoreField + ".from.store", nil}}, "encryption needs store: without store, spec.backup applies"},
	"a restore to two states":             {[]edit{{restoreField + ".to.revision", int64(7)}}, "exactly one of revision, time and name must be set"},
	"a restore to no state":               {[]edit{{restoreField + ".to", map[string]any{}}}, "exactly one of revision, time and name must be set"},
	"a restore to revision 0":             {[]edit{{restoreField + ".to", map[string]any{"revision": int64(0)}}}, "should be greater than or equal to 1"},
	"a restore to a time that is none":    {[]edit{{restoreField + ".to.time", "yesterday"}}, "must be of type date-time"},
	"a restore of an object that is none": {[]edit{{restoreField + ".to", map[string]any{"name": "latest"}}}, "name must be that of a full backup"},
	"a restore from nowhere": {[]edit{{restoreField + ".from.store", nil}, {restoreField + ".from.encryption", nil}, {"spec.backup", nil}},
		"bootstrap.restore needs the location of the backups:"},
	"a restore of another's, from nowhere": {[]edit{{restoreField + ".from", nil}, {"spec.backup", nil}}, "bootstrap.restore needs the location of the backups:"},
	"a restore of a cluster with a slash":  {[]edit{{restoreField + ".from.name", "a/b"}}, "name must be the name of an EtcdCluster"},
	"a join without endpoints":             {[]edit{{"spec.bootstrap", join()}}, "should have at least 1 items"},
	"a join of ten": {
		[]edit{{"spec.bootstrap", join("http://a:1", "http://a:2", "http://a:3", "http://a:4", "http://a:5", "http://a:6", "http://a:7", "http://a:8",
			"http://a:9", "http://a:10")}}, "must have at most 9 items"},
	"a join of one twice":                {[]edit{{"spec.bootstrap", join("http://a:1", "http://a:1")}}, "Duplicate value"},
	"a join with TLS without a Secret":   {[]edit{{"spec.bootstrap", join("https://a:2379")}}, "the endpoints of join must be https URLs with join.tls"},
	"a join in plain text with a Secret": {[]edit{{"spec.bootstrap", joinSecurely("http://a:2379")}}, "the endpoints of join must be https URLs with join.tls"},
	"a join partly with TLS": {[]edit{{"spec.bootstrap", joinSecurely("https://a:2379", "http://b:2379")}},
		"the endpoints of join must be https URLs with join.tls"},
	"a join of another protocol": {[]edit{{"spec.bootstrap", joinSecurely("unixs://a:2379")}}, "an endpoint of join must be a client URL with a port"},
	"a join without a port":      {[]edit{{"spec.bootstrap", join("http://a")}}, "an endpoint of join must be a client URL with a port"},
	"a join of a path":           {[]edit{{"spec.bootstrap", join("http://a:2379/v3")}}, "an endpoint of join must be a client URL with a port"},
	"a join of two at one endpoint": {[]edit{{"spec.bootstrap", join("http://a:2379,http://b:2379")}},
		"an endpoint of join must be a client URL with a port"},
	"a join next to a restore": {[]edit{{joinField, joinOf("http://a:2379")}}, "bootstrap.restore and bootstrap.join must not both be set"},
	"a file to a state": {[]edit{{restoreField, map[string]any{"from": fromFile("a.db"), "to": map[string]any{"revision": int64(7)}}}},
		"to must not be combined with from.file"},
	"a file of a cluster": {[]edit{{restoreField, map[string]any{"from": with(fromFile("a.db"), "name", "old")}}},
		"file must not be combined with namespace,"},
	"a file of a namespace": {[]edit{{restoreField, map[string]any{"from": with(fromFile("a.db"), "namespace", "old")}}},
		"file must not be combined with namespace,"},
	"a file that is encrypted": {
		[]edit{{restoreField, map[string]any{"from": with(fromFile("a.db"), "encryption", map[string]any{"keySecretRef": map[string]any{"name": "k"}})}}},
		"file must not be combined with namespace,"},
	"a file by an absolute path":    {[]edit{{restoreField, map[string]any{"from": fromFile("/a.db")}}}, "file must be words of letters"},
	"a file by a path that goes up": {[]edit{{restoreField, map[string]any{"from": fromFile("a/../b.db")}}}, "file must be words of letters"},
	"a file from nowhere": {[]edit{{restoreField, map[string]any{"from": map[string]any{"file": "a.db"}}}, {"spec.backup", nil}},
		"bootstrap.restore needs the location of the backups:"},
	"a snapshot to a state": {[]edit{{restoreField, map[string]any{"from": fromSnapshot("s"), "to": map[string]any{"revision": int64(7)}}}},
		"to must not be combined with from.file"},
	"a snapshot of a cluster": {[]edit{{restoreField, map[string]any{"from": with(fromSnapshot("s"), "name", "old")}}},
		"snapshotRef must not be combined with namespace,"},
	"a snapshot of a namespace": {[]edit{{restoreField, map[string]any{"from": with(fromSnapshot("s"), "namespace", "old")}}},
		"snapshotRef must not be combined with namespace,"},
	"a snapshot and a file": {[]edit{{restoreField, map[string]any{"from": with(fromSnapshot("s"), "file", "a.db")}}},
		"snapshotRef must not be combined with namespace,"},
	"a snapshot without a name": {[]edit{{restoreField, map[string]any{"from": fromSnapshot("")}}}, "should be at least 1 chars long"},
	"keys of a snapshot without its store": {
		[]edit{{restoreField, map[string]any{"from": with(fromSnapshot("s"), "encryption", map[string]any{"keySecretRef": map[string]any{"name": "k"}})}}},
		"encryption needs store: without store, spec.backup applies"},
	"a restore of a namespace with a dot": {[]edit{{restoreField + ".from.namespace", "a.b"}}, "namespace must be the name of a namespace"},
}

// goodBackups are backups and restores that work.
var goodBackups = map[string][]edit{
	"no backup":                          {{"spec.backup", nil}},
	"a bucket alone":                     {{"spec.backup", map[string]any{"store": map[string]any{"s3": map[string]any{"bucket": "abc"}}}}},
	"a directory alone":                  {{"spec.backup", map[string]any{"store": map[string]any{"directory": map[string]any{"hostPath": "/a"}}}}},
	"the longest prefix":                 {{s3Field + ".prefix", strings.Repeat("a", 200)}},
	"a store without TLS":                {{s3Field + ".endpoint", "http://minio:9000"}, {s3Field + ".sse", nil}},
	"a key of a management service":      {{s3Field + ".sse", map[string]any{"mode": "KMS", "kmsKeyID": "alias/etcd"}}},
	"a schedule by a word":               {{fullField + ".schedule", "@daily"}},
	"a schedule of many words":           {{fullField + ".schedule", "*/15 0-6,18-23 1 JAN-MAR mon-fri"}},
	"a schedule that only druid refuses": {{fullField + ".schedule", "0 0 31 2 *"}},
	"fulls by their number":              {{"spec.backup.retention", map[string]any{"count": int64(3)}}},
	"a delta of bytes as a number":       {{"spec.backup.delta.maxBytes", int64(1 << 20)}},
	"Pods that go without a backup":      {{"spec.backup.whenFailing", "Continue"}},
	"memory whose backup blocks":         inMemory(edit{"spec.backup.whenFailing", "Block"}),
	"no bootstrap":                       {{"spec.bootstrap", nil}},
	"a join with TLS":                    {{"spec.bootstrap", joinSecurely("https://etcd-0.etcd-headless.legacy.svc:2379", "https://[fd00::1]:2379")}},
	"a join": {{"spec.bootstrap",
		join("http://etcd-0.etcd-headless.legacy.svc:2379", "http://[fd00::1]:2379", "http://10.0.0.1:2379")}},
	"a restore of its own newest state":  {{restoreField, map[string]any{}}},
	"a restore to a revision":            {{restoreField + ".to", map[string]any{"revision": int64(1234)}}},
	"a restore of a final full":          {{restoreField + ".to", map[string]any{"name": "00000000000004d2-1795287240000.final.zst"}}},
	"a file in a store of its own":       {{restoreField, map[string]any{"from": fromFile("old/2026.11/snap_1.db")}}, {"spec.backup", nil}},
	"a file in the store of the backups": {{restoreField, map[string]any{"from": map[string]any{"file": "a.db"}}}},
	"a snapshot, and no store at all":    {{restoreField, map[string]any{"from": fromSnapshot("before-the-move")}}, {"spec.backup", nil}},
	"a snapshot in another store":        {{restoreField, map[string]any{"from": with(fromSnapshot("s"), "store", fromFile("a")["store"])}}},
	"a restore of a full":                {{restoreField + ".to", map[string]any{"name": "00000000000004d2-1795287240000.snap.zst"}}},
}

// testAcceptsTheSamples: what the documentation shows must be accepted as it is.
func testAcceptsTheSamples(t *testing.T, client dynamic.Interface, namespace string) {
	paths, err := filepath.Glob("../../docs/samples/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("find the samples: %v, %v", paths, err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &object.Object); err != nil {
			t.Fatalf("parse %s: %v", path, err)
		}
		resource := v1alpha1.GroupVersion.WithResource(strings.ToLower(object.GetKind()) + "s")
		if _, err := client.Resource(resource).Namespace(namespace).Create(t.Context(), object, dryRunStrict()); err != nil {
			t.Errorf("create %s: %v", path, err)
		}
	}
}

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
	of, elsewhere := map[string]any{"name": "demo"}, map[string]any{"s3": map[string]any{"bucket": "other"}}
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
		"encryption needs store: without store":                        {"clusterRef": of, "encryption": map[string]any{"keySecretRef": of}},
		"store.directory needs claimName":                              {"clusterRef": of, "store": map[string]any{"directory": map[string]any{"hostPath": "/etc"}}},
		"exactly one of s3 and directory must be set":                  {"clusterRef": of, "store": map[string]any{}},
		"Unsupported value: \"Keep\"":                                  {"clusterRef": of, "deletionPolicy": "Keep"},
		"store needs type Full: a Delta is useless":                    {"clusterRef": of, "type": "Delta", "store": elsewhere},
		"final must not be combined with store:":                       {"clusterRef": of, "final": true, "store": elsewhere},
		"spec.store.s3.bucket: Required value":                         {"clusterRef": of, "store": map[string]any{"s3": map[string]any{"prefix": "a"}}},
		"unknown field \"spec.store.bucket\"":                          {"clusterRef": of, "store": map[string]any{"bucket": "other"}},
		"unknown field \"spec.namespace\"":                             {"clusterRef": of, "namespace": "other"},
		"unknown field \"spec.clusterRef.namespace\"":                  {"clusterRef": map[string]any{"name": "demo", "namespace": "other"}},
		"spec.ttlSecondsAfterFinished in body must be of type integer": {"clusterRef": of, "ttlSecondsAfterFinished": "1h"},
	} {
		if _, err := snapshots.Create(t.Context(), etcdSnapshot(spec), dryRunStrict()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s", spec, err, want)
		}
	}
	for name, spec := range map[string]map[string]any{
		"final of the default type": {"clusterRef": of, "final": true}, "final and verified": {"clusterRef": of, "final": true, "verify": true},
		"not final":                {"clusterRef": of, "type": "Delta", "final": false},
		"a full that goes with it": {"clusterRef": of, "final": false, "deletionPolicy": "Delete"},
		"a delta that stays":       {"clusterRef": of, "type": "Delta", "deletionPolicy": "Retain"},
		"a store of its own":       {"clusterRef": of, "final": false, "deletionPolicy": "Delete", "store": elsewhere},
		"a claim":                  {"clusterRef": of, "store": map[string]any{"directory": map[string]any{"claimName": "archive"}}},
		"all of a store of its own": {"clusterRef": of, "encryption": map[string]any{"keySecretRef": of}, "store": map[string]any{"s3": map[string]any{
			"bucket": "other", "prefix": "etcd/prod", "region": "eu-central-1", "endpoint": "https://s3.example.com:9000", "forcePathStyle": true,
			"credentialsSecretRef": of, "caSecretRef": map[string]any{"name": "ca", "key": "ca.crt"},
		}}},
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
	for field, value := range map[string]any{"type": "Delta", "store": elsewhere, "encryption": map[string]any{"keySecretRef": of}, "final": true,
		"verify": true, "ttlSecondsAfterFinished": int64(5), "clusterRef": map[string]any{"name": "other"}} {
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
