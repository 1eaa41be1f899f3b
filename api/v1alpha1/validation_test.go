package v1alpha1_test

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
)

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
		"an even number of replicas":        {[]edit{{"spec.replicas", int64(2)}}, "replicas must be 0 or odd: an even number of members needs a larger quorum"},
		"a negative number of replicas":     {[]edit{{"spec.replicas", int64(-1)}}, "should be greater than or equal to 0"},
		"more replicas than raft likes":     {[]edit{{"spec.replicas", int64(11)}}, "should be less than or equal to 9"},
		"a deadline of a few seconds":       {[]edit{{"spec.progressDeadlineSeconds", int64(29)}}, "should be greater than or equal to 30"},
		"a deadline of more than a day":     {[]edit{{"spec.progressDeadlineSeconds", int64(86401)}}, "should be less than or equal to 86400"},
		"a name of 60 characters":           {[]edit{{"metadata.name", strings.Repeat("a", 60)}}, "metadata.name must be at most 50 characters"},
		"a name with dots":                  {[]edit{{"metadata.name", "demo.example.com"}}, "metadata.name must not contain dots"},
		"a name that starts with a digit":   {[]edit{{"metadata.name", "3etcd"}}, "metadata.name must start with a letter"},
		"no storage":                        {[]edit{{"spec.storage", nil}}, "spec.storage: Required value"},
		"no size":                           {[]edit{{"spec.storage.size", nil}}, "spec.storage.size: Required value"},
		"zero size":                         {[]edit{{"spec.storage.size", "0"}}, "storage.size must be greater than zero"},
		"zero size as a number":             {[]edit{{"spec.storage.size", int64(0)}}, "storage.size must be greater than zero"},
		"negative size":                     {[]edit{{"spec.storage.size", "-1Gi"}}, "storage.size must be greater than zero"},
		"a size that is no quantity":        {[]edit{{"spec.storage.size", "big"}}, "spec.storage.size in body should match"},
		"a storage class of 254 characters": {[]edit{{"spec.storage.storageClassName", strings.Repeat("a", 254)}}, "Too long: may not be more than 253 bytes"},
		"an unknown medium":                 {inMemory(edit{"spec.storage.medium", "HugePages"}), `supported values: "Memory", "Disk"`},
		"memory that no backup has": {inMemory(edit{"spec.backup.whenFailing", "Continue"}),
			"backup.whenFailing must not be Continue with storage.medium:"},
		"memory that an eviction empties": {inMemory(edit{"spec.disruption.singleMember", "Allow"}),
			"disruption.singleMember must not be Allow with storage.medium:"},
		"an unknown disruption": {[]edit{{"spec.disruption.singleMember", "Yes"}}, `supported values: "Block", "Allow"`},
		"a class of memory": {inMemory(edit{"spec.storage.storageClassName", "fast"}),
			"storage.storageClassName must not be set with storage.medium:"},
		"an empty class of memory": {inMemory(edit{"spec.storage.storageClassName", ""}), "storage.storageClassName must not be set with storage.medium:"},
		"memory without a limit":   {inMemory(edit{"spec.resources.limits", nil}), "resources.limits.memory must be greater than storage.size with"},
		"memory without resources": {inMemory(edit{"spec.resources", nil}), "resources.limits.memory must be greater than storage.size with"},
		"a limit of cores alone": {inMemory(edit{"spec.resources.limits", map[string]any{"cpu": "1"}}),
			"resources.limits.memory must be greater than storage.size with"},
		"a limit of just what is stored": {inMemory(edit{"spec.resources.limits", map[string]any{"memory": "4Gi"}}),
			"resources.limits.memory must be greater than storage.size with"},
		"memory for no members": {inMemory(edit{"spec.replicas", int64(0)}), "replicas must not be 0 with storage.medium: a paused cluster"},
		"a class of a node's disk": {onDisk(edit{"spec.storage.storageClassName", "fast"}),
			"storage.storageClassName must not be set with storage.medium:"},
		"a node's disk for no members": {onDisk(edit{"spec.replicas", int64(0)}), "replicas must not be 0 with storage.medium: a paused cluster"},
		"a quota beyond a node's disk": {onDisk(edit{"spec.etcd.quotaBackendBytes", "5Gi"}), "etcd.quotaBackendBytes must not exceed storage.size"},
		"a limit of a node's disk": {onDisk(edit{"spec.resources.limits", map[string]any{"ephemeral-storage": "100Gi"}}),
			"resources.limits must not have ephemeral-storage with storage.medium Disk"},
		"a quota beyond the memory": {inMemory(edit{"spec.etcd.quotaBackendBytes", "5Gi"}), "etcd.quotaBackendBytes must not exceed storage.size"},
		"an unknown retention": {[]edit{{"spec.storage.persistentVolumeClaimRetentionPolicy.whenScaled", "Recycle"}},
			`supported values: "Retain", "Delete"`},
		"an unknown minor": {[]edit{{"spec.version", "3.8.0"}}, "version must be a release of etcd 3.5, 3.6 or 3.7"},
		"a version with a leading v": {[]edit{{"spec.version", "v3.6.16"}},
			"version must be a release of etcd 3.5, 3.6 or 3.7, as major.minor.patch without a leading v"},
		"a pre-release":                    {[]edit{{"spec.version", "3.7.0-rc.1"}}, "version must be a release of etcd"},
		"a version without a patch":        {[]edit{{"spec.version", "3.6"}}, "version must be a release of etcd"},
		"an empty version":                 {[]edit{{"spec.version", ""}}, "version must be a release of etcd"},
		"the 3.5 that corrupts on a crash": {[]edit{{"spec.version", "3.5.2"}}, "version must be at least 3.5.31: older"},
		"the last bad 3.5":                 {[]edit{{"spec.version", "3.5.30"}}, "version must be at least 3.5.31: older"},
		"the first 3.6":                    {[]edit{{"spec.version", "3.6.0"}}, "version must be at least 3.6.12: older"},
		"the last bad 3.6":                 {[]edit{{"spec.version", "3.6.11"}}, "version must be at least 3.6.12: older"},
		"an image with a tag":              {[]edit{{"spec.image", "gcr.io/etcd-development/etcd:v3.6.16"}}, "image must have no tag and no digest"},
		"an image with a digest":           {[]edit{{"spec.image", "gcr.io/etcd@sha256:00"}}, "image must have no tag and no digest"},
		"an image that is no name":         {[]edit{{"spec.image", "my image"}}, "image must name a repository"},
		"an empty image":                   {[]edit{{"spec.image", ""}}, "image must name a repository"},
		"a zero quota":                     {[]edit{{"spec.etcd.quotaBackendBytes", "0"}}, "quotaBackendBytes must be greater than zero"},
		"a negative quota":                 {[]edit{{"spec.etcd.quotaBackendBytes", int64(-1)}}, "quotaBackendBytes must be greater than zero"},
		"a quota larger than the volume":   {[]edit{{"spec.etcd.quotaBackendBytes", "5Gi"}}, "etcd.quotaBackendBytes must not exceed storage.size"},
		"an unknown compaction mode":       {[]edit{{"spec.etcd.autoCompactionMode", "periodic"}}, `supported values: "Periodic", "Revision"`},
		"a mode without a retention":       {[]edit{{"spec.etcd.autoCompactionRetention", nil}}, "autoCompactionMode needs autoCompactionRetention"},
		"a number in mode Periodic": {[]edit{{"spec.etcd.autoCompactionRetention", "1000"}},
			"autoCompactionRetention must be a duration like 1h30m in mode Periodic"},
		"a number in no mode": {[]edit{{"spec.etcd.autoCompactionMode", nil}, {"spec.etcd.autoCompactionRetention", "1000"}},
			"autoCompactionRetention must be a duration"},
		"a duration in mode Revision": {[]edit{{"spec.etcd.autoCompactionMode", "Revision"}},
			"autoCompactionRetention must be a number of revisions like 10000"},
		"a snapshot count that thrashes": {[]edit{{"spec.etcd.snapshotCount", int64(1)}}, "should be greater than or equal to 100"},
		"a heartbeat that is no duration": {[]edit{{"spec.etcd.heartbeatInterval", "fast"}},
			"heartbeatInterval must be an integer number of milliseconds greater than zero"},
		"a heartbeat of zero": {[]edit{{"spec.etcd.heartbeatInterval", "0s"}},
			"heartbeatInterval must be an integer number of milliseconds greater than zero, like 100ms"},
		"a negative heartbeat": {[]edit{{"spec.etcd.heartbeatInterval", "-100ms"}},
			"heartbeatInterval must be an integer number of milliseconds greater than zero"},
		"a heartbeat below a millisecond": {[]edit{{"spec.etcd.heartbeatInterval", "0.5ms"}},
			"heartbeatInterval must be an integer number of milliseconds greater than zero"},
		"a heartbeat of half a millisecond": {[]edit{{"spec.etcd.heartbeatInterval", "1.5ms"}}, "heartbeatInterval must be an integer number of milliseconds"},
		"an election of half a millisecond": {[]edit{{"spec.etcd.electionTimeout", "1500.5ms"}}, "electionTimeout must be an integer number of milliseconds"},
		"an election time-out of zero": {[]edit{{"spec.etcd.electionTimeout", "0ms"}},
			"electionTimeout must be an integer number of milliseconds greater than zero"},
		"an election time-out beyond etcd's": {[]edit{{"spec.etcd.electionTimeout", "51s"}}, "electionTimeout must be at most 50s"},
		"an election time-out of no measure": {[]edit{{"spec.etcd.electionTimeout", "99999999999999999s"}}, "spec.etcd.electionTimeout: Invalid value"},
		"an election time-out too near":      {[]edit{{"spec.etcd.electionTimeout", "999ms"}}, "electionTimeout (default 1s) must be at least"},
		"a heartbeat too near etcd's default": {[]edit{{"spec.etcd.heartbeatInterval", "201ms"}, {"spec.etcd.electionTimeout", nil}},
			"must be at least 5 times heartbeatInterval"},
		"a schedule of four fields":         {[]edit{{"spec.defragmentation.schedule", "0 3 * *"}}, "schedule must be five fields of numbers"},
		"a schedule of six fields":          {[]edit{{"spec.defragmentation.schedule", "0 0 3 * * *"}}, "schedule must be five fields of numbers"},
		"an hour that no day has":           {[]edit{{"spec.defragmentation.schedule", "0 24 * * *"}}, "schedule must be five fields of numbers"},
		"a word for a schedule":             {[]edit{{"spec.defragmentation.schedule", "@daily"}}, "schedule must be five fields of numbers"},
		"an empty schedule":                 {[]edit{{"spec.defragmentation.schedule", ""}}, "schedule"},
		"an unknown zone":                   {[]edit{{"spec.defragmentation.timeZone", "Europe/Atlantis"}}, "spec.defragmentation.timeZone: Invalid value"},
		"a zone that is an offset":          {[]edit{{"spec.defragmentation.timeZone", "+02:00"}}, "timeZone must be an IANA name"},
		"a zone without a schedule":         {[]edit{{"spec.defragmentation.schedule", nil}, {"spec.defragmentation.window", nil}}, "timeZone needs schedule"},
		"a window without a schedule":       {[]edit{{"spec.defragmentation.schedule", nil}, {"spec.defragmentation.timeZone", nil}}, "window needs schedule"},
		"a window of seconds":               {[]edit{{"spec.defragmentation.window", "59s"}}, "window must be a duration from 1m to 24h"},
		"a window of days":                  {[]edit{{"spec.defragmentation.window", "25h"}}, "window must be a duration from 1m to 24h"},
		"a database that is all free":       {[]edit{{"spec.defragmentation.minFreePercent", int64(100)}}, "should be less than or equal to 99"},
		"an unknown way out of a full disk": {[]edit{{"spec.defragmentation.outOfSpace", "Panic"}}, `supported values: "Compact", "Defragment", "Nothing"`},
		"less than no bytes":                {[]edit{{"spec.defragmentation.minFreeBytes", "-1"}}, "minFreeBytes must not be negative"},
		"a label that is druid's own": {[]edit{{"spec.additionalMetadata.labels", map[string]any{"etcd.druid.dev/cluster": "other"}}},
			"labels must not start with etcd.druid.dev/: druid"},
		"a label's key that is none": {[]edit{{"spec.additionalMetadata.labels", map[string]any{"a b": "x"}}},
			"labels must have keys like team or example.com/team"},
		"a label's value that is none": {[]edit{{"spec.additionalMetadata.labels", map[string]any{"team": "not ours"}}},
			"spec.additionalMetadata.labels.team in body should match"},
		"a label's value that is long": {[]edit{{"spec.additionalMetadata.labels", map[string]any{"team": strings.Repeat("a", 64)}}},
			"may not be more than 63"},
		"an annotation that is druid's own": {[]edit{{"spec.additionalMetadata.annotations", map[string]any{"etcd.druid.dev/hash": "x"}}},
			"annotations must not start with etcd.druid.dev/: druid"},
		"an annotation's key that is none": {[]edit{{"spec.additionalMetadata.annotations", map[string]any{"/": "x"}}},
			"annotations must have keys like team or example.com/team"},
		"druid's own on the Service": {[]edit{{"spec.clientService.annotations", map[string]any{"etcd.druid.dev/hash": "x"}}},
			"annotations must not start with etcd.druid.dev/: druid"},
		"a key that is none on the Service": {[]edit{{"spec.clientService.annotations", map[string]any{"-": "x"}}}, "annotations must have keys like team or"},
		"a node label's key that is none": {[]edit{{"spec.nodeSelector", map[string]any{"a b": "x"}}},
			"nodeSelector must have keys like disk or example.com/disk"},
		"a node label's value that is none": {[]edit{{"spec.nodeSelector", map[string]any{"disk": "very fast"}}}, "spec.nodeSelector.disk in body should match"},
		"an empty runtime class":            {[]edit{{"spec.runtimeClassName", ""}}, "should be at least 1 chars long"},
		"an option of etcd as a variable": {[]edit{{"spec.env", []any{map[string]any{"name": "ETCD_DATA_DIR", "value": "/"}}}},
			"name must not start with ETCD_, ETCDCTL_"},
		"a variable that is no name": {[]edit{{"spec.env", []any{map[string]any{"name": "GO-GC"}}}}, "name must be letters, digits and underscores"},
		"a variable twice":           {[]edit{{"spec.env", []any{map[string]any{"name": "GOGC"}, map[string]any{"name": "GOGC"}}}}, "Duplicate value"},
		"a variable out of a Secret": {[]edit{{"spec.env", []any{map[string]any{"name": "A", "valueFrom": map[string]any{}}}}},
			`unknown field "spec.env[0].valueFrom"`},
		"a volume of one's own":         {[]edit{{"spec.volumes", []any{}}}, `unknown field "spec.volumes"`},
		"an option that is druid's own": {[]edit{{"spec.etcd.initialCluster", "a=b"}}, `unknown field "spec.etcd.initialCluster"`},
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
		"an only member that can be evicted":  {{"spec.replicas", int64(1)}, {"spec.disruption.singleMember", "Allow"}},
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
	tests["storage on the nodes' disks, with limits"] = onDisk(
		edit{"spec.resources", map[string]any{"limits": map[string]any{"memory": "1Gi"}, "requests": map[string]any{"ephemeral-storage": "9Gi"}}})
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
			if b := typed.Spec.Backup; b != nil && (b.Full.Schedule == "" || b.Delta.Period == nil || b.Delta.MaxBytes == nil ||
				b.Retention == v1alpha1.BackupRetention{}) {
				t.Errorf("defaults are missing: %+v", b)
			}
		})
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
