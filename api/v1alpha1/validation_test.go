package v1alpha1_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/test/env"
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

// All validation is in the CustomResourceDefinition, so only a real API server can report whether it holds.
func TestAPIServer(t *testing.T) {
	config := env.APIServer(t)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	namespace := env.Namespace(t, config)
	clusters := client.Resource(v1alpha1.GroupVersion.WithResource("etcdclusters")).Namespace(namespace)
	t.Run("refuses what cannot work", func(t *testing.T) { testRefusesWhatCannotWork(t, clusters) })
	t.Run("accepts what works", func(t *testing.T) { testAcceptsWhatWorks(t, clusters) })
	t.Run("accepts the samples", func(t *testing.T) { testAcceptsTheSamples(t, client, namespace) })
	t.Run("agrees with the rules of versions", func(t *testing.T) { testAgreesWithTheRulesOfVersions(t, clusters) })
	t.Run("refuses changes that data would not survive", func(t *testing.T) {
		testRefusesChangesThatDataWouldNotSurvive(t, clusters)
	})
	t.Run("changes the minor when all members run one", func(t *testing.T) { testChangesTheMinorWhenAllMembersRunOne(t, clusters) })
	t.Run("accepts every status", func(t *testing.T) { testAcceptsEveryStatus(t, clusters) })
	t.Run("keeps the whole spec that was adopted", func(t *testing.T) { testKeepsTheWholeSpecThatWasAdopted(t, clusters) })
}

func testRefusesWhatCannotWork(t *testing.T, clusters dynamic.ResourceInterface) {
	tests := map[string]refusal{
		"an even number of replicas":          {[]edit{{"spec.replicas", int64(2)}}, "replicas must be 0 or odd: an even number of members needs a larger quorum"},
		"a negative number of replicas":       {[]edit{{"spec.replicas", int64(-1)}}, "should be greater than or equal to 0"},
		"more replicas than raft likes":       {[]edit{{"spec.replicas", int64(11)}}, "should be less than or equal to 9"},
		"a deadline of a few seconds":         {[]edit{{"spec.progressDeadlineSeconds", int64(29)}}, "should be greater than or equal to 30"},
		"a deadline of more than a day":       {[]edit{{"spec.progressDeadlineSeconds", int64(86401)}}, "should be less than or equal to 86400"},
		"a name of 60 characters":             {[]edit{{"metadata.name", strings.Repeat("a", 60)}}, "metadata.name must be at most 50 characters"},
		"a name with dots":                    {[]edit{{"metadata.name", "demo.example.com"}}, "metadata.name must not contain dots"},
		"a name that starts with a digit":     {[]edit{{"metadata.name", "3etcd"}}, "metadata.name must start with a letter"},
		"no storage":                          {[]edit{{"spec.storage", nil}}, "spec.storage: Required value"},
		"no size":                             {[]edit{{"spec.storage.size", nil}}, "spec.storage.size: Required value"},
		"zero size":                           {[]edit{{"spec.storage.size", "0"}}, "storage.size must be greater than zero"},
		"zero size as a number":               {[]edit{{"spec.storage.size", int64(0)}}, "storage.size must be greater than zero"},
		"negative size":                       {[]edit{{"spec.storage.size", "-1Gi"}}, "storage.size must be greater than zero"},
		"a size that is no quantity":          {[]edit{{"spec.storage.size", "big"}}, "spec.storage.size in body should match"},
		"a storage class of 254 characters":   {[]edit{{"spec.storage.storageClassName", strings.Repeat("a", 254)}}, "Too long: may not be more than 253 bytes"},
		"a medium that no one knows":          {inMemory(edit{"spec.storage.medium", "HugePages"}), `supported values: "Memory", "Disk"`},
		"a class of memory":                   {inMemory(edit{"spec.storage.storageClassName", "fast"}), "storage.storageClassName must not be set with storage.medium:"},
		"an empty class of memory":            {inMemory(edit{"spec.storage.storageClassName", ""}), "storage.storageClassName must not be set with storage.medium:"},
		"memory without a limit":              {inMemory(edit{"spec.resources.limits", nil}), "resources.limits.memory must be greater than storage.size with"},
		"memory without resources":            {inMemory(edit{"spec.resources", nil}), "resources.limits.memory must be greater than storage.size with"},
		"a limit of cores alone":              {inMemory(edit{"spec.resources.limits", map[string]any{"cpu": "1"}}), "resources.limits.memory must be greater than storage.size with"},
		"a limit of just what is stored":      {inMemory(edit{"spec.resources.limits", map[string]any{"memory": "4Gi"}}), "resources.limits.memory must be greater than storage.size with"},
		"memory for no members":               {inMemory(edit{"spec.replicas", int64(0)}), "replicas must not be 0 with storage.medium: a paused cluster"},
		"a class of a node's disk":            {onDisk(edit{"spec.storage.storageClassName", "fast"}), "storage.storageClassName must not be set with storage.medium:"},
		"a node's disk for no members":        {onDisk(edit{"spec.replicas", int64(0)}), "replicas must not be 0 with storage.medium: a paused cluster"},
		"a quota beyond a node's disk":        {onDisk(edit{"spec.etcd.quotaBackendBytes", "5Gi"}), "etcd.quotaBackendBytes must not exceed storage.size"},
		"a limit of a node's disk":            {onDisk(edit{"spec.resources.limits", map[string]any{"ephemeral-storage": "100Gi"}}), "resources.limits must not have ephemeral-storage with storage.medium Disk"},
		"a quota beyond the memory":           {inMemory(edit{"spec.etcd.quotaBackendBytes", "5Gi"}), "etcd.quotaBackendBytes must not exceed storage.size"},
		"a retention that no one knows":       {[]edit{{"spec.storage.persistentVolumeClaimRetentionPolicy.whenScaled", "Recycle"}}, `supported values: "Retain", "Delete"`},
		"a minor that no one knows":           {[]edit{{"spec.version", "3.8.0"}}, "version must be a release of etcd 3.5, 3.6 or 3.7"},
		"a version with a leading v":          {[]edit{{"spec.version", "v3.6.16"}}, "version must be a release of etcd 3.5, 3.6 or 3.7, as major.minor.patch without a leading v"},
		"a pre-release":                       {[]edit{{"spec.version", "3.7.0-rc.1"}}, "version must be a release of etcd"},
		"a version without a patch":           {[]edit{{"spec.version", "3.6"}}, "version must be a release of etcd"},
		"an empty version":                    {[]edit{{"spec.version", ""}}, "version must be a release of etcd"},
		"the 3.5 that corrupts on a crash":    {[]edit{{"spec.version", "3.5.2"}}, "version must be at least 3.5.31: older"},
		"the last bad 3.5":                    {[]edit{{"spec.version", "3.5.30"}}, "version must be at least 3.5.31: older"},
		"the first 3.6":                       {[]edit{{"spec.version", "3.6.0"}}, "version must be at least 3.6.12: older"},
		"the last bad 3.6":                    {[]edit{{"spec.version", "3.6.11"}}, "version must be at least 3.6.12: older"},
		"an image with a tag":                 {[]edit{{"spec.image", "gcr.io/etcd-development/etcd:v3.6.16"}}, "image must have no tag and no digest"},
		"an image with a digest":              {[]edit{{"spec.image", "gcr.io/etcd@sha256:00"}}, "image must have no tag and no digest"},
		"an image that is no name":            {[]edit{{"spec.image", "my image"}}, "image must name a repository"},
		"an empty image":                      {[]edit{{"spec.image", ""}}, "image must name a repository"},
		"a zero quota":                        {[]edit{{"spec.etcd.quotaBackendBytes", "0"}}, "quotaBackendBytes must be greater than zero"},
		"a negative quota":                    {[]edit{{"spec.etcd.quotaBackendBytes", int64(-1)}}, "quotaBackendBytes must be greater than zero"},
		"a quota larger than the volume":      {[]edit{{"spec.etcd.quotaBackendBytes", "5Gi"}}, "etcd.quotaBackendBytes must not exceed storage.size"},
		"an unknown compaction mode":          {[]edit{{"spec.etcd.autoCompactionMode", "periodic"}}, `supported values: "Periodic", "Revision"`},
		"a mode without a retention":          {[]edit{{"spec.etcd.autoCompactionRetention", nil}}, "autoCompactionMode needs autoCompactionRetention"},
		"a number in mode Periodic":           {[]edit{{"spec.etcd.autoCompactionRetention", "1000"}}, "autoCompactionRetention must be a duration like 1h30m in mode Periodic"},
		"a number in no mode":                 {[]edit{{"spec.etcd.autoCompactionMode", nil}, {"spec.etcd.autoCompactionRetention", "1000"}}, "autoCompactionRetention must be a duration"},
		"a duration in mode Revision":         {[]edit{{"spec.etcd.autoCompactionMode", "Revision"}}, "autoCompactionRetention must be a number of revisions like 10000"},
		"a snapshot count that thrashes":      {[]edit{{"spec.etcd.snapshotCount", int64(1)}}, "should be greater than or equal to 100"},
		"a heartbeat that is no duration":     {[]edit{{"spec.etcd.heartbeatInterval", "fast"}}, "heartbeatInterval must be an integer number of milliseconds greater than zero"},
		"a heartbeat of zero":                 {[]edit{{"spec.etcd.heartbeatInterval", "0s"}}, "heartbeatInterval must be an integer number of milliseconds greater than zero, like 100ms"},
		"a negative heartbeat":                {[]edit{{"spec.etcd.heartbeatInterval", "-100ms"}}, "heartbeatInterval must be an integer number of milliseconds greater than zero"},
		"a heartbeat below a millisecond":     {[]edit{{"spec.etcd.heartbeatInterval", "0.5ms"}}, "heartbeatInterval must be an integer number of milliseconds greater than zero"},
		"a heartbeat of half a millisecond":   {[]edit{{"spec.etcd.heartbeatInterval", "1.5ms"}}, "heartbeatInterval must be an integer number of milliseconds"},
		"an election of half a millisecond":   {[]edit{{"spec.etcd.electionTimeout", "1500.5ms"}}, "electionTimeout must be an integer number of milliseconds"},
		"an election time-out of zero":        {[]edit{{"spec.etcd.electionTimeout", "0ms"}}, "electionTimeout must be an integer number of milliseconds greater than zero"},
		"an election time-out beyond etcd's":  {[]edit{{"spec.etcd.electionTimeout", "51s"}}, "electionTimeout must be at most 50s"},
		"an election time-out of no measure":  {[]edit{{"spec.etcd.electionTimeout", "99999999999999999s"}}, "spec.etcd.electionTimeout: Invalid value"},
		"an election time-out too near":       {[]edit{{"spec.etcd.electionTimeout", "999ms"}}, "electionTimeout (default 1s) must be at least"},
		"a heartbeat too near etcd's default": {[]edit{{"spec.etcd.heartbeatInterval", "201ms"}, {"spec.etcd.electionTimeout", nil}}, "must be at least 5 times heartbeatInterval"},
		"a schedule of four fields":           {[]edit{{"spec.defragmentation.schedule", "0 3 * *"}}, "schedule must be five fields of numbers"},
		"a schedule of six fields":            {[]edit{{"spec.defragmentation.schedule", "0 0 3 * * *"}}, "schedule must be five fields of numbers"},
		"an hour that no day has":             {[]edit{{"spec.defragmentation.schedule", "0 24 * * *"}}, "schedule must be five fields of numbers"},
		"a word for a schedule":               {[]edit{{"spec.defragmentation.schedule", "@daily"}}, "schedule must be five fields of numbers"},
		"an empty schedule":                   {[]edit{{"spec.defragmentation.schedule", ""}}, "schedule"},
		"a zone that no one knows":            {[]edit{{"spec.defragmentation.timeZone", "Europe/Atlantis"}}, "spec.defragmentation.timeZone: Invalid value"},
		"a zone that is an offset":            {[]edit{{"spec.defragmentation.timeZone", "+02:00"}}, "timeZone must be an IANA name"},
		"a zone without a schedule":           {[]edit{{"spec.defragmentation.schedule", nil}, {"spec.defragmentation.window", nil}}, "timeZone needs schedule"},
		"a window without a schedule":         {[]edit{{"spec.defragmentation.schedule", nil}, {"spec.defragmentation.timeZone", nil}}, "window needs schedule"},
		"a window of seconds":                 {[]edit{{"spec.defragmentation.window", "59s"}}, "window must be a duration from 1m to 24h"},
		"a window of days":                    {[]edit{{"spec.defragmentation.window", "25h"}}, "window must be a duration from 1m to 24h"},
		"a database that is all free":         {[]edit{{"spec.defragmentation.minFreePercent", int64(100)}}, "should be less than or equal to 99"},
		"an unknown way out of a full disk":   {[]edit{{"spec.defragmentation.outOfSpace", "Panic"}}, `supported values: "Compact", "Defragment", "Nothing"`},
		"less than no bytes":                  {[]edit{{"spec.defragmentation.minFreeBytes", "-1"}}, "minFreeBytes must not be negative"},
		"a label that is druid's own":         {[]edit{{"spec.additionalMetadata.labels", map[string]any{"etcd.druid.dev/cluster": "other"}}}, "labels must not start with etcd.druid.dev/: druid"},
		"a label's key that is none":          {[]edit{{"spec.additionalMetadata.labels", map[string]any{"a b": "x"}}}, "labels must have keys like team or example.com/team"},
		"a label's value that is none":        {[]edit{{"spec.additionalMetadata.labels", map[string]any{"team": "not ours"}}}, "spec.additionalMetadata.labels.team in body should match"},
		"a label's value that is long":        {[]edit{{"spec.additionalMetadata.labels", map[string]any{"team": strings.Repeat("a", 64)}}}, "may not be more than 63"},
		"an annotation that is druid's own":   {[]edit{{"spec.additionalMetadata.annotations", map[string]any{"etcd.druid.dev/hash": "x"}}}, "annotations must not start with etcd.druid.dev/: druid"},
		"an annotation's key that is none":    {[]edit{{"spec.additionalMetadata.annotations", map[string]any{"/": "x"}}}, "annotations must have keys like team or example.com/team"},
		"druid's own on the Service":          {[]edit{{"spec.clientService.annotations", map[string]any{"etcd.druid.dev/hash": "x"}}}, "annotations must not start with etcd.druid.dev/: druid"},
		"a key that is none on the Service":   {[]edit{{"spec.clientService.annotations", map[string]any{"-": "x"}}}, "annotations must have keys like team or"},
		"a node label's key that is none":     {[]edit{{"spec.nodeSelector", map[string]any{"a b": "x"}}}, "nodeSelector must have keys like disk or example.com/disk"},
		"a node label's value that is none":   {[]edit{{"spec.nodeSelector", map[string]any{"disk": "very fast"}}}, "spec.nodeSelector.disk in body should match"},
		"an empty runtime class":              {[]edit{{"spec.runtimeClassName", ""}}, "should be at least 1 chars long"},
		"an option of etcd as a variable":     {[]edit{{"spec.env", []any{map[string]any{"name": "ETCD_DATA_DIR", "value": "/"}}}}, "name must not start with ETCD_, ETCDCTL_"},
		"a variable that is no name":          {[]edit{{"spec.env", []any{map[string]any{"name": "GO-GC"}}}}, "name must be letters, digits and underscores"},
		"a variable twice":                    {[]edit{{"spec.env", []any{map[string]any{"name": "GOGC"}, map[string]any{"name": "GOGC"}}}}, "Duplicate value"},
		"a variable out of a Secret":          {[]edit{{"spec.env", []any{map[string]any{"name": "A", "valueFrom": map[string]any{}}}}}, `unknown field "spec.env[0].valueFrom"`},
		"a volume of one's own":               {[]edit{{"spec.volumes", []any{}}}, `unknown field "spec.volumes"`},
		"an option that is druid's own":       {[]edit{{"spec.etcd.initialCluster", "a=b"}}, `unknown field "spec.etcd.initialCluster"`},
	}
	maps.Copy(tests, badBackups)
	maps.Copy(tests, badTLS)
	maps.Copy(tests, badNetwork)
	maps.Copy(tests, badServices)
	maps.Copy(tests, badAuth)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := clusters.Create(t.Context(), edited(t, test.edits...), dryRunStrict())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("create said %v, want %q", err, test.want)
			}
		})
	}
}

func testAcceptsWhatWorks(t *testing.T, clusters dynamic.ResourceInterface) {
	tests := map[string][]edit{
		"every field set":                     nil,
		"no replicas: a paused cluster":       {{"spec.replicas", int64(0)}},
		"the shortest deadline":               {{"spec.progressDeadlineSeconds", int64(30)}},
		"the longest deadline":                {{"spec.progressDeadlineSeconds", int64(86400)}},
		"the longest name":                    {{"metadata.name", strings.Repeat("a", 50)}},
		"half a retention policy":             {{"spec.storage.persistentVolumeClaimRetentionPolicy.whenDeleted", nil}},
		"nothing but a size":                  {{"spec", map[string]any{"storage": map[string]any{"size": "1Gi"}}}},
		"a size as a number":                  {{"spec.storage.size", int64(4 << 30)}},
		"a quota as a number":                 {{"spec.etcd.quotaBackendBytes", int64(2 << 30)}},
		"a quota of the whole volume":         {{"spec.etcd.quotaBackendBytes", "4Gi"}},
		"the floor of 3.5":                    {{"spec.version", "3.5.31"}},
		"the floor of 3.6":                    {{"spec.version", "3.6.12"}},
		"the floor of 3.7":                    {{"spec.version", "3.7.0"}},
		"compaction that is off":              {{"spec.etcd.autoCompactionMode", nil}, {"spec.etcd.autoCompactionRetention", "0s"}},
		"revisions in mode Revision":          {{"spec.etcd.autoCompactionMode", "Revision"}, {"spec.etcd.autoCompactionRetention", "10000"}},
		"exactly five heartbeats":             {{"spec.etcd.electionTimeout", "1s"}},
		"the longest election time-out":       {{"spec.etcd.electionTimeout", "50s"}},
		"a heartbeat alone":                   {{"spec.etcd.heartbeatInterval", "200ms"}, {"spec.etcd.electionTimeout", nil}},
		"no word of defragmentation":          {{"spec.defragmentation", nil}},
		"no defragmentation":                  {{"spec.defragmentation", map[string]any{"disabled": true}}},
		"another night":                       {{"spec.defragmentation.schedule", "05 23 1,15 * mon-fri"}, {"spec.defragmentation.timeZone", "UTC"}},
		"no compaction":                       {{"spec.defragmentation.outOfSpace", "Defragment"}},
		"any byte":                            {{"spec.defragmentation.minFreeBytes", int64(0)}},
		"no metadata":                         {{"spec.additionalMetadata", nil}, {"spec.clientService", nil}},
		"metadata of one kind":                {{"spec.additionalMetadata.labels", nil}},
		"as much metadata as may be":          {{"spec.additionalMetadata.annotations", many(32)}},
		"a variable that begins like etcd's":  {{"spec.env", []any{map[string]any{"name": "ETCDISH", "value": "x"}}}},
		"an image without a registry":         {{"spec.image", "etcd"}},
		"a registry with a port and no paths": {{"spec.image", "localhost:5000/etcd"}},
	}
	tests["storage in memory"] = inMemory()
	tests["storage on the nodes' disks"] = onDisk()
	tests["storage on the nodes' disks, with limits"] = onDisk(edit{"spec.resources", map[string]any{"limits": map[string]any{"memory": "1Gi"}, "requests": map[string]any{"ephemeral-storage": "9Gi"}}})
	tests["a volume, and a limit of a node's disk"] = []edit{{"spec.resources.limits", map[string]any{"ephemeral-storage": "1Gi"}}}
	tests["storage in memory, of half a limit's size"] = inMemory(edit{"spec.resources.limits.memory", int64(8 << 30)})
	maps.Copy(tests, goodBackups)
	maps.Copy(tests, goodTLS)
	maps.Copy(tests, goodAuth)
	maps.Copy(tests, goodNetwork)
	maps.Copy(tests, goodServices)
	for name, edits := range tests {
		t.Run(name, func(t *testing.T) {
			created, err := clusters.Create(t.Context(), edited(t, edits...), dryRunStrict())
			if err != nil {
				t.Fatalf("create: %v", err)
			}
			// What the API server lets in, every druid must be able to read: one unreadable object would blind its informer.
			var typed v1alpha1.EtcdCluster
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, &typed); err != nil {
				t.Fatalf("convert to the Go type: %v", err)
			}
			if typed.Spec.Version == "" || typed.Spec.Image == "" {
				t.Errorf("defaults are missing: version %q, image %q", typed.Spec.Version, typed.Spec.Image)
			}
			if policy := typed.Spec.Storage.PersistentVolumeClaimRetentionPolicy; policy.WhenDeleted == "" || policy.WhenScaled == "" {
				t.Errorf("defaults are missing: %+v", policy)
			}
			if b := typed.Spec.Backup; b != nil && (b.Full.Schedule == "" || b.Delta.Period == nil || b.Delta.MaxBytes == nil || b.Retention == v1alpha1.BackupRetention{}) {
				t.Errorf("defaults are missing: %+v", b)
			}
		})
	}
}

func testRefusesChangesThatDataWouldNotSurvive(t *testing.T, clusters dynamic.ResourceInterface) {
	tests := map[string]struct {
		before, after []edit
		want          string // empty: accepted
	}{
		"memory instead of a volume":    {[]edit{{"spec.storage.storageClassName", nil}}, inMemory(), "storage.medium must not change"},
		"a volume instead of memory":    {inMemory(), []edit{{"spec.storage.storageClassName", nil}}, "storage.medium must not change"},
		"a disk instead of memory":      {inMemory(), onDisk(), "storage.medium must not change"},
		"a volume instead of a disk":    {onDisk(), []edit{{"spec.storage.storageClassName", nil}}, "storage.medium must not change"},
		"more of the disk":              {onDisk(), onDisk(edit{"spec.storage.size", "5Gi"}), ""},
		"more memory":                   {inMemory(), inMemory(edit{"spec.storage.size", "5Gi"}), ""},
		"a pause of what is in memory":  {inMemory(), inMemory(edit{"spec.replicas", int64(0)}), "replicas must not be 0 with storage.medium: a paused cluster"},
		"a smaller volume":              {nil, []edit{{"spec.storage.size", "3Gi"}}, "storage.size must not decrease, because Kubernetes cannot"},
		"a larger volume":               {nil, []edit{{"spec.storage.size", "5Gi"}}, ""},
		"the same size, otherwise put":  {nil, []edit{{"spec.storage.size", "4096Mi"}}, ""},
		"another storage class":         {nil, []edit{{"spec.storage.storageClassName", "slow"}}, "storage.storageClassName must not change"},
		"no storage class any more":     {nil, []edit{{"spec.storage.storageClassName", nil}}, "storage.storageClassName must not change"},
		"a storage class all at once":   {[]edit{{"spec.storage.storageClassName", nil}}, nil, "storage.storageClassName must not change"},
		"no provisioning any more":      {[]edit{{"spec.storage.storageClassName", ""}}, []edit{{"spec.storage.storageClassName", nil}}, "storage.storageClassName must not change"},
		"no provisioning all at once":   {[]edit{{"spec.storage.storageClassName", nil}}, []edit{{"spec.storage.storageClassName", ""}}, "storage.storageClassName must not change"},
		"still no provisioning":         {[]edit{{"spec.storage.storageClassName", ""}}, []edit{{"spec.storage.storageClassName", ""}, {"spec.storage.size", "5Gi"}}, ""},
		"a newer patch":                 {nil, []edit{{"spec.version", "3.6.17"}}, ""},
		"an older patch":                {nil, []edit{{"spec.version", "3.6.15"}}, ""},
		"the next minor":                {nil, []edit{{"spec.version", "3.7.3"}}, ""},
		"the minor before":              {nil, []edit{{"spec.version", "3.5.33"}}, ""},
		"two minors back":               {[]edit{{"spec.version", "3.7.3"}}, []edit{{"spec.version", "3.5.33"}}, "version must not decrease by more than"},
		"another restore":               {nil, []edit{{restoreField + ".to", map[string]any{"revision": int64(7)}}}, "bootstrap must not change"},
		"a restore after the bootstrap": {[]edit{{"spec.bootstrap", nil}}, nil, "bootstrap must not change"},
		"no restore any more":           {nil, []edit{{"spec.bootstrap", nil}}, "bootstrap must not change"},
		"a restore and a join of it":    {nil, []edit{{"spec.bootstrap.join", joinOf("http://a:2379")}}, "bootstrap must not change"},
		"a join after the bootstrap":    {[]edit{{"spec.bootstrap", nil}}, []edit{{"spec.bootstrap", join("http://a:2379")}}, "bootstrap must not change"},
		"no join any more":              {[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", map[string]any{}}}, "bootstrap must not change"},
		"another Secret of a join": {
			[]edit{{"spec.bootstrap", joinSecurely("https://a:2379")}},
			[]edit{{"spec.bootstrap", joinSecurely("https://a:2379")}, {joinField + ".tls.secretRef.name", "other"}}, "bootstrap must not change, except for join.removeOthers;",
		},
		"TLS of peers while others are there": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", join("http://a:2379")}, {"spec.tls", object{"peer": automatic()}}}, "tls.peer must not be added or removed while external members are in the cluster",
		},
		"no TLS of peers while others are there": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}, {"spec.tls", object{"peer": automatic()}}}, []edit{{"spec.bootstrap", join("http://a:2379")}}, "tls.peer must not be added or removed while external members are in the cluster",
		},
		"TLS of peers when others may go": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}, {joinField + ".removeOthers", true}},
			[]edit{{"spec.bootstrap", join("http://a:2379")}, {joinField + ".removeOthers", true}, {"spec.tls", object{"peer": automatic()}}}, "",
		},
		"TLS of clients while others are there": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", join("http://a:2379")}, {"spec.tls", object{"client": automatic()}}}, "",
		},
		"other endpoints of a join": {[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", join("http://b:2379")}}, "bootstrap must not change, except for join.removeOthers;"},
		"the word that others may go": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", join("http://a:2379")}, {joinField + ".removeOthers", true}}, "",
		},
		"no backup after a restore": {[]edit{{restoreField + ".from", nil}}, []edit{{restoreField + ".from", nil}, {"spec.backup", nil}}, ""},
		"another store":             {nil, []edit{{"spec.backup.store", map[string]any{"directory": map[string]any{"claimName": "a"}}}}, ""},
		"two minors at once":        {[]edit{{"spec.version", "3.5.33"}}, []edit{{"spec.version", "3.7.3"}}, "version must not skip a minor"},
	}
	for name, change := range tlsChanges {
		tests[name] = struct {
			before, after []edit
			want          string
		}{secure(change.before), secure(change.after), change.want}
	}
	maps.Copy(tests, authChanges)
	maps.Copy(tests, serviceChanges)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := edited(t, test.before...)
			before.SetName("")
			before.SetGenerateName("change-")
			before, err := clusters.Create(t.Context(), before, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create: %v", err)
			}
			after := edited(t, test.after...)
			after.SetName(before.GetName())
			after.SetResourceVersion(before.GetResourceVersion())
			_, err = clusters.Update(t.Context(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("update said %v, want %q", err, test.want)
			}
		})
	}
}

// The minor is changed when all members run the one that was asked for before, or that is asked for again: never do more than two run at once.
func testChangesTheMinorWhenAllMembersRunOne(t *testing.T, clusters dynamic.ResourceInterface) {
	created, err := clusters.Create(t.Context(), edited(t, edit{"metadata.name", "minor"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	running := func(versions ...string) (members []v1alpha1.MemberStatus) {
		for i, version := range versions {
			members = append(members, v1alpha1.MemberStatus{Name: fmt.Sprintf("minor-%d", i), Status: v1alpha1.MemberReady, Version: version})
		}
		return members
	}
	const refused = "version must not change to another minor"
	for name, test := range map[string]struct {
		members []v1alpha1.MemberStatus
		version string
		want    string // empty: accepted
	}{
		"no member yet":                        {nil, "3.7.3", ""},
		"all run it":                           {running("3.6.16", "3.6.15", "3.6.16"), "3.7.3", ""},
		"one that never reported what it runs": {running("3.6.16", ""), "3.7.3", ""},
		"one runs the minor before":            {running("3.6.16", "3.5.33"), "3.7.3", refused},
		"another patch in the meantime":        {running("3.6.16", "3.5.33"), "3.6.17", ""},
		"back when all run it":                 {running("3.6.16", "3.6.16"), "3.5.33", ""},
		"back while none has left it":          {running("3.5.33", "3.5.33"), "3.5.33", ""},
		"back when one runs the other":         {running("3.6.16", "3.5.33"), "3.5.33", refused},
		"on when all run what is asked for":    {running("3.7.3", "3.7.3"), "3.7.3", ""},
		"a version that is not a version":      {running("3.6.16", "3.5.33"), "3", "version must be a release of etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.EtcdCluster{Status: v1alpha1.EtcdClusterStatus{Members: test.members}})
			if err != nil {
				t.Fatalf("convert: %v", err)
			}
			before, err := clusters.Get(t.Context(), created.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatalf("get: %v", err)
			}
			before.Object["status"] = object["status"]
			if before, err = clusters.UpdateStatus(t.Context(), before, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("update status: %v", err)
			}
			after := edited(t, edit{"spec.version", test.version})
			after.SetName(before.GetName())
			after.SetResourceVersion(before.GetResourceVersion())
			_, err = clusters.Update(t.Context(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("update said %v, want %q", err, test.want)
			}
		})
	}
}

// The status that druid writes must be accepted, with every field set and with none.
// testKeepsTheWholeSpecThatWasAdopted: what comes back is equal, or druid would take it for an edit.
func testKeepsTheWholeSpecThatWasAdopted(t *testing.T, clusters dynamic.ResourceInterface) {
	created, err := clusters.Create(t.Context(), edited(t, edit{"metadata.name", "adopted"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	var cluster v1alpha1.EtcdCluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, &cluster); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Status.Adopt(cluster.Spec); err != nil {
		t.Fatal(err)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&cluster)
	if err != nil {
		t.Fatal(err)
	}
	created.Object["status"] = object["status"]
	updated, err := clusters.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update status: %v", err)
	}
	var after v1alpha1.EtcdCluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(updated.Object, &after); err != nil {
		t.Fatal(err)
	}
	adopted, err := after.Status.Adopted()
	if err != nil || adopted == nil || !equality.Semantic.DeepEqual(*adopted, after.Spec) {
		t.Errorf("adopted is\n%+v\nwant\n%+v\n%v", adopted, after.Spec, err)
	}
}

func testAcceptsEveryStatus(t *testing.T, clusters dynamic.ResourceInterface) {
	created, err := clusters.Create(t.Context(), edited(t, edit{"metadata.name", "status"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	tests := map[string]v1alpha1.EtcdClusterStatus{
		"nothing known yet": {},
		"a member of which nothing is known but its name": {
			Members: []v1alpha1.MemberStatus{{Name: "status-abcde", Status: v1alpha1.MemberUnknown}},
		},
	}
	for name, status := range tests {
		t.Run(name, func(t *testing.T) {
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.EtcdCluster{Status: status})
			if err != nil {
				t.Fatalf("convert: %v", err)
			}
			cluster := created.DeepCopy()
			cluster.Object["status"] = object["status"]
			if _, err := clusters.UpdateStatus(t.Context(), cluster, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("update status: %v", err)
			}
		})
	}
}

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

// testAgreesWithTheRulesOfVersions holds that what the API server refuses is what druid refuses, for each pair of versions.
func testAgreesWithTheRulesOfVersions(t *testing.T, clusters dynamic.ResourceInterface) {
	all := []string{"3.5.30", "3.5.31", "3.5.33", "3.5.35", "3.6.11", "3.6.12", "3.6.14", "3.6.16", "3.7.0", "3.7.1", "3.7.3"}
	for _, from := range all {
		was, _ := versions.Parse(from)
		before := edited(t, edit{"spec.version", from})
		before.SetName("")
		before.SetGenerateName("version-")
		created, err := clusters.Create(t.Context(), before, metav1.CreateOptions{})
		if refused := versions.JudgeRelease(was).Verdict == versions.Refused; refused != (err != nil) {
			t.Fatalf("create with %s said %v, the rules refuse it: %t", from, err, refused)
		}
		if err != nil {
			continue
		}
		for _, to := range all {
			is, _ := versions.Parse(to)
			after := edited(t, edit{"spec.version", to})
			after.SetName(created.GetName())
			after.SetResourceVersion(created.GetResourceVersion())
			_, err := clusters.Update(t.Context(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			refused := versions.JudgeRelease(is).Verdict == versions.Refused || versions.JudgeStep(was, is).Verdict == versions.Refused
			if refused != (err != nil) {
				t.Errorf("%s to %s said %v, the rules refuse it: %t", from, to, err, refused)
			}
		}
	}
}
