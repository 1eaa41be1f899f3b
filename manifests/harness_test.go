package manifests

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

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
		Labels:      map[string]v1alpha1.LabelValue{"team": "storage", labelManagedBy: "another"},
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
