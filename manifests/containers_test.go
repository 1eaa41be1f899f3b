package manifests

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/golden"
)

// An etcd that no one spoke of goes before its agent, and what the user says of a resource stands alone.
func TestEtcdRequestsWhatIsNotSpokenOf(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for name, value := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if value != "" {
				all[name] = resource.MustParse(value)
			}
		}
		return all
	}
	tests := map[string]struct {
		requests, limits, want corev1.ResourceList
	}{
		"nothing is asked for":       {want: list("100m", "100Mi")},
		"CPU is requested":           {requests: list("10m", ""), want: list("10m", "100Mi")},
		"memory is requested":        {requests: list("", "1Gi"), want: list("100m", "1Gi")},
		"both are requested":         {requests: list("2", "1Gi"), want: list("2", "1Gi")},
		"CPU is limited":             {limits: list("50m", ""), want: list("", "100Mi")},
		"memory is limited":          {limits: list("", "64Mi"), want: list("100m", "")},
		"one each":                   {requests: list("2", ""), limits: list("", "64Mi"), want: list("2", "")},
		"no CPU is asked for at all": {requests: list("0", ""), want: list("0", "100Mi")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked := corev1.ResourceRequirements{Requests: test.requests, Limits: test.limits}
			before := *asked.DeepCopy()
			got := etcdResources(asked)
			if d := cmp.Diff(test.want, got.Requests); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
			if d := cmp.Diff(before, asked); d != "" {
				t.Errorf("what is asked for was changed:\n%s", d)
			}
			if d := cmp.Diff(before.Limits, got.Limits); d != "" {
				t.Errorf("limits (-want +got):\n%s", d)
			}
		})
	}
}

// The space that the data needs on a node is requested, whatever else the user asks for, and only for data on its disk.
func TestStorageOnADiskIsRequested(t *testing.T) {
	list := func(storage string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(storage)}
	}
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	for name, test := range map[string]struct {
		medium v1alpha1.StorageMedium
		asked  corev1.ResourceRequirements
		want   string
	}{
		"a disk":                           {v1alpha1.StorageDisk, corev1.ResourceRequirements{}, "1Gi"},
		"a disk, and limits of the others": {v1alpha1.StorageDisk, corev1.ResourceRequirements{Limits: limits}, "1Gi"},
		"a disk, and a request for more":   {v1alpha1.StorageDisk, corev1.ResourceRequirements{Requests: list("9Gi")}, "9Gi"},
		"memory":                           {v1alpha1.StorageMemory, corev1.ResourceRequirements{}, "0"},
		"a claim":                          {"", corev1.ResourceRequirements{}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := plain()
			cluster.Spec.Storage.Medium, cluster.Spec.Resources = test.medium, test.asked
			pod, err := Pod(cluster, member, options())
			if err != nil {
				t.Fatal(err)
			}
			etcd := pod.Spec.Containers[0].Resources
			if got := etcd.Requests[corev1.ResourceEphemeralStorage]; !got.Equal(resource.MustParse(test.want)) {
				t.Errorf("the request is %s, want %s", got.String(), test.want)
			}
			if _, limited := etcd.Limits[corev1.ResourceEphemeralStorage]; limited {
				t.Error("the kubelet would evict all members that exceed a limit")
			}
		})
	}
}

const member = "demo-x7k2q"

// evictions is the sentence on a budget.
const evictions = "1 of 3 voting members can be evicted at a time, because the others are a quorum."

func options() Options {
	return Options{AgentImage: "ghcr.io/etcd-druid/druid:dev", Reloadable: config.DefaultReloadable()}
}

// plain is a cluster as a user writes it first, with the API server's defaults.
func plain() *v1alpha1.EtcdCluster {
	return &v1alpha1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "11111111-2222-3333-4444-555555555555"},
		Spec: v1alpha1.EtcdClusterSpec{
			Replicas: 3,
			Version:  "3.6.16",
			Image:    "gcr.io/etcd-development/etcd",
			Storage:  v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
}

// full is a cluster with every field set.
func full() *v1alpha1.EtcdCluster {
	cluster := plain()
	cluster.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	cluster.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("8Gi"), StorageClassName: new("fast")}
	cluster.Spec.Storage.PersistentVolumeClaimRetentionPolicy = v1alpha1.PersistentVolumeClaimRetentionPolicy{
		WhenDeleted: v1alpha1.DeletePersistentVolumeClaim, WhenScaled: v1alpha1.RetainPersistentVolumeClaim,
	}
	cluster.Spec.Etcd = v1alpha1.EtcdOptions{
		QuotaBackendBytes:       new(resource.MustParse("3Gi")),
		AutoCompactionMode:      v1alpha1.AutoCompactionRevision,
		AutoCompactionRetention: "10000",
		SnapshotCount:           new(int64(5000)),
		HeartbeatInterval:       &metav1.Duration{Duration: 200 * time.Millisecond},
		ElectionTimeout:         &metav1.Duration{Duration: 1500 * time.Millisecond},
	}
	cluster.Spec.Defragmentation = &v1alpha1.DefragmentationSpec{
		Disabled: true, Schedule: "0 3 * * SUN", TimeZone: "Europe/Berlin", Window: &metav1.Duration{Duration: 2 * time.Hour},
		MinFreePercent: new(int32(30)), MinFreeBytes: new(resource.MustParse("50Mi")), OutOfSpace: v1alpha1.OutOfSpaceDefragment,
	}
	cluster.Spec.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")},
	}
	cluster.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	cluster.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule},
		{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"mine": "yes"}},
		},
	}
	cluster.Spec.Tolerations = []corev1.Toleration{{Key: "etcd", Operator: corev1.TolerationOpExists}}
	cluster.Spec.PriorityClassName = "system-cluster-critical"
	cluster.Spec.NodeSelector = map[string]v1alpha1.LabelValue{"disk": "fast"}
	cluster.Spec.RuntimeClassName = new("gvisor")
	cluster.Spec.Env = []v1alpha1.EnvVar{{Name: "GOGC", Value: "50"}, {Name: "GREETING", Value: "$(HOSTNAME) is $5"}}
	cluster.Spec.AdditionalMetadata = &v1alpha1.AdditionalMetadata{
		Labels:      map[string]v1alpha1.LabelValue{"team": "storage", labelManagedBy: "somebody-else"},
		Annotations: map[string]v1alpha1.AnnotationValue{"example.com/note": "all", "example.com/owner": "team storage"},
	}
	cluster.Spec.NetworkPolicy = &v1alpha1.NetworkPolicySpec{
		Clients: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"etcd-client": "demo"}}},
			{
				NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}, {Key: "closed", Operator: metav1.LabelSelectorOpDoesNotExist},
				}},
				PodSelector: &metav1.LabelSelector{},
			},
			{IPBlock: &networkingv1.IPBlock{CIDR: "203.0.113.0/24", Except: []string{"203.0.113.128/25"}}},
		},
		Metrics: []networkingv1.NetworkPolicyPeer{
			{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "monitoring"}}},
		},
	}
	cluster.Spec.ClientService = &v1alpha1.ClientServiceSpec{
		Annotations: map[string]v1alpha1.AnnotationValue{"example.com/note": "service"},
		Type:        v1alpha1.ClientServiceLoadBalancer, LoadBalancerClass: new("example.com/internal"), TrafficDistribution: v1alpha1.PreferClose,
		IPFamilyPolicy: corev1.IPFamilyPolicyRequireDualStack, IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol},
	}
	cluster.Spec.LeaderService = &v1alpha1.LeaderServiceSpec{Enabled: true}
	cluster.Spec.Backup, cluster.Spec.Bootstrap = fullBackup(), fullBootstrap()
	return cluster
}

// longest is a cluster with the longest name that the API server accepts.
func longest() *v1alpha1.EtcdCluster {
	cluster := plain()
	cluster.Name = strings.Repeat("a", 50)
	return cluster
}

// objects are all that the package makes of a cluster, by file name.
func objects(t testing.TB, cluster *v1alpha1.EtcdCluster, member string) map[string]any {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pod, err := Pod(cluster, member, options())
	must(err)
	record, err := RecordLease(cluster, leases.Record{
		Phase: leases.PhaseForming, Seed: member, Epoch: 1, Nonce: "0123456789abcdef",
		MaxLearners: leases.MaxLearners, Members: []string{member},
	})
	must(err)
	budget, err := DisruptionBudget(cluster, 2, evictions)
	must(err)
	all := map[string]any{
		"pod":          pod,
		"pvc":          PersistentVolumeClaim(cluster, member),
		"lease-record": record,
		"lease-leader": LeaderLease(cluster),
		"lease-member": MemberLease(cluster, member),
		"pdb":          budget.Configuration,
	}
	for _, component := range []leases.Component{leases.ComponentFullSnapshot, leases.ComponentDeltaSnapshot} {
		lease, err := SnapshotLease(cluster, component)
		must(err)
		if lease != nil {
			all["lease-"+string(component)] = lease
		}
	}
	shared, err := Shared(cluster, leases.Record{Members: []string{cluster.Name + "-zzzzz", member}}, options())
	must(err)
	for _, object := range shared {
		all["shared-"+strings.ToLower(object.Kind.Kind)+"-"+strings.TrimPrefix(object.Name, cluster.Name+"-")] = object.Configuration
	}
	return all
}

// ownStore is an EtcdSnapshot of the cluster with a store of its own and all Secrets that one can have.
func ownStore(cluster *v1alpha1.EtcdCluster) *v1alpha1.EtcdSnapshot {
	snapshot := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: cluster.Namespace, UID: "4f8a7c52-5a0e-4f3b-9f5d-6a1b2c3d4e5f"}}
	snapshot.Spec.ClusterRef.Name = cluster.Name
	snapshot.Spec.Encryption = &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "own-keys"}}
	snapshot.Spec.Store = &v1alpha1.BackupStore{S3: &v1alpha1.S3Store{
		Bucket: "own", Prefix: "etcd", Region: "eu-central-1", Endpoint: "https://s3.example.com",
		CredentialsSecretRef: &v1alpha1.SecretRef{Name: "own-credentials"}, CASecretRef: &v1alpha1.SecretKeyRef{Name: "own-ca", Key: "ca.crt"},
	}}
	return snapshot
}

// The Pod that saves has what it needs to dial etcd and to reach the store: no private key of a member, and no token.
func TestThePodOfASnapshotHasOnlyWhatItNeeds(t *testing.T) {
	cluster := secured()
	pod, err := SnapshotPod(cluster, ownStore(cluster), SnapshotRun{Within: SnapshotTimeout}, options())
	if err != nil {
		t.Fatal(err)
	}
	if auto := pod.Spec.AutomountServiceAccountToken; auto == nil || *auto {
		t.Error("the Pod gets a token")
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				t.Errorf("volume %s has a token", volume.Name)
			}
			for _, item := range source.Secret.Items {
				if item.Key == corev1.TLSPrivateKeyKey || strings.Contains(item.Path, "peer") {
					t.Errorf("volume %s has %s of Secret %s", volume.Name, item.Key, source.Secret.Name)
				}
			}
		}
	}
}

func TestGoldenObjects(t *testing.T) {
	clusters := map[string]*v1alpha1.EtcdCluster{"plain": plain(), "full": full()}
	memory, disk := plain(), plain()
	inMemory(memory)
	onDisk(disk)
	for name, cluster := range map[string]*v1alpha1.EtcdCluster{"memory": memory, "disk": disk, "tls": secured()} {
		pod, err := Pod(cluster, member, options())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		golden.File(t, filepath.Join("testdata", name, "pod.yaml"), string(raw))
	}
	for name, cluster := range map[string]*v1alpha1.EtcdCluster{"full": full(), "tls": secured()} {
		pod, err := SnapshotPod(cluster, ownStore(cluster), SnapshotRun{Record: leases.Record{ClusterID: 7, Lineage: "00000001-ab"}, Within: SnapshotTimeout}, options())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		golden.File(t, filepath.Join("testdata", name, "snapshot-pod.yaml"), string(raw))
	}
	for name, cluster := range clusters {
		for file, object := range objects(t, cluster, member) {
			raw, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, filepath.Join("testdata", name, file+".yaml"), string(raw))
		}
	}
}

// What the user wants is on every object, and never in the place of what druid finds and selects by.
func TestAdditionalMetadataIsOnEveryObject(t *testing.T) {
	want := objects(t, plain(), member)
	cluster := plain()
	wanted := map[string]v1alpha1.LabelValue{"team": "storage"}
	for key := range MemberLabels(cluster.Name, member) {
		wanted[key] = "stolen" // the API server refuses some of them; druid does not rely on it
	}
	for _, key := range []string{LabelClusterUID, leases.LabelComponent} {
		wanted[key] = "stolen"
	}
	cluster.Spec.AdditionalMetadata = &v1alpha1.AdditionalMetadata{
		Labels: wanted, Annotations: map[string]v1alpha1.AnnotationValue{"note": "x", "kubectl.kubernetes.io/default-container": "stolen"},
	}
	for name, object := range objects(t, cluster, member) {
		t.Run(name, func(t *testing.T) {
			before, after := metadataOf(t, want[name]), metadataOf(t, object)
			if after.Labels["team"] != "storage" || after.Annotations["note"] != "x" {
				t.Errorf("labels %v and annotations %v lack what the user wants", after.Labels, after.Annotations)
			}
			for key, value := range before.Labels {
				if after.Labels[key] != value {
					t.Errorf("label %s is %q, want druid's own %q", key, after.Labels[key], value)
				}
			}
			for key, value := range before.Annotations {
				if key != AnnotationHash && after.Annotations[key] != value {
					t.Errorf("annotation %s is %q, want druid's own %q", key, after.Annotations[key], value)
				}
			}
		})
	}
}

func metadataOf(t testing.TB, object any) metav1.ObjectMeta {
	t.Helper()
	raw, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var partial metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(raw, &partial); err != nil {
		t.Fatal(err)
	}
	return partial.ObjectMeta
}

// Services and Pods are DNS labels, and a name is the value of a label too; a Lease's name may be longer.
func TestNamesOfTheLongestClusterFit(t *testing.T) {
	cluster := longest().Name
	for _, name := range []string{
		PeerServiceName(cluster), ClientServiceName(cluster), LeaderServiceName(cluster), AgentName(cluster), DisruptionBudgetName(cluster),
		NetworkPolicyName(cluster), cluster + "-x7k2q", leases.RecordName(cluster), leases.LeaderName(cluster),
	} {
		if errs := validation.IsDNS1035Label(name); len(errs) > 0 {
			t.Errorf("%s is no DNS label: %v", name, errs)
		}
	}
	for _, name := range []string{leases.FullSnapshotName(cluster), leases.DeltaSnapshotName(cluster)} {
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("%s is no name of a Lease: %v", name, errs)
		}
	}
}

func TestSharedObjectsBearTheHashOfTheirContent(t *testing.T) {
	hashes := func(members ...string) map[string]string {
		shared, err := Shared(plain(), leases.Record{Members: members}, options())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, object := range shared {
			got[object.Kind.Kind+" "+object.Name] = object.Hash
		}
		return got
	}
	before, after := hashes("demo-a", "demo-b"), hashes("demo-b", "demo-a")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the order of the members changes a hash:\n%s", diff)
	}
	var changed []string
	for object, hash := range hashes("demo-a", "demo-b", "demo-c") {
		if before[object] != hash {
			changed = append(changed, object)
		}
	}
	if diff := cmp.Diff([]string{"Role demo-agent"}, changed); diff != "" {
		t.Errorf("objects that a new member changes (-want +got):\n%s", diff)
	}
}

func TestUnsetQuotaLeavesRoomOnTheVolume(t *testing.T) {
	tests := map[string]struct {
		size  string
		quota string
		want  int64
	}{
		"half of a small volume":            {"1Gi", "", 512 << 20},
		"etcd's own default on a large one": {"100Gi", "", 2 << 30},
		"what the user set":                 {"100Gi", "8Gi", 8 << 30},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := plain()
			cluster.Spec.Storage.Size = resource.MustParse(test.size)
			if test.quota != "" {
				cluster.Spec.Etcd.QuotaBackendBytes = new(resource.MustParse(test.quota))
			}
			if got := quotaBackendBytes(cluster); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// The agent must take the flags that druid renders, once the kubelet has filled in the Pod's UID.
func TestAgentAcceptsItsFlags(t *testing.T) {
	for name, cluster := range map[string]*v1alpha1.EtcdCluster{"plain": plain(), "full": full(), "longest": longest(), "tls": secured()} {
		t.Run(name, func(t *testing.T) {
			want, err := agentConfig(cluster, member)
			if err != nil {
				t.Fatal(err)
			}
			got, err := config.Parse(agentContainer(cluster, want, options()).Command[2:])
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-rendered +parsed):\n%s", diff)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("validate: %v", err)
			}
		})
	}
}
