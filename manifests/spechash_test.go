package manifests

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// s3With is a cluster that is backed up to a bucket.
func s3With(change func(*v1alpha1.S3Store)) func(*v1alpha1.EtcdCluster) {
	return func(c *v1alpha1.EtcdCluster) {
		store := ambient()
		change(store.S3)
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: store}
	}
}

// inMemory is a cluster of storage.medium Memory.
func inMemory(c *v1alpha1.EtcdCluster) {
	c.Spec.Storage.Medium = v1alpha1.StorageMemory
	c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
}

// onDisk is a cluster of storage.medium Disk.
func onDisk(c *v1alpha1.EtcdCluster) { c.Spec.Storage.Medium = v1alpha1.StorageDisk }

// specEdits are edits of the plain cluster by the field of the spec that they begin with, and whether they need other Pods.
var specEdits = map[string]struct {
	edit func(*v1alpha1.EtcdCluster)
	same bool
}{
	"logLevel":         {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.LogLevel = v1alpha1.LogDebug }, same: true},
	"replicas":         {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Replicas = 5 }, same: true},
	"version":          {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Version = "3.6.17" }},
	"image":            {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Image = "other" }},
	"imagePullSecrets": {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "x"}} }},
	"imagePullSecrets, none of them": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.ImagePullSecrets = []corev1.LocalObjectReference{}
	}, same: true},
	"storage, by which the quota grows": {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Storage.Size = resource.MustParse("2Gi") }},
	"storage, of another class":         {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Storage.StorageClassName = new("x") }, same: true},
	"storage, of memory":                {edit: inMemory},
	"storage, of a node's disk":         {edit: onDisk},
	"etcd.quotaBackendBytes":            {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Etcd.QuotaBackendBytes = new(resource.MustParse("100Mi")) }},
	"etcd.quotaBackendBytes, the same":  {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Etcd.QuotaBackendBytes = new(resource.MustParse("512Mi")) }, same: true},
	"etcd.autoCompactionMode":           {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Etcd.AutoCompactionMode = v1alpha1.AutoCompactionRevision }},
	"etcd.autoCompactionRetention":      {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Etcd.AutoCompactionRetention = "2h" }},
	"etcd.snapshotCount":                {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Etcd.SnapshotCount = new(int64(1000)) }},
	"etcd.heartbeatInterval":            {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Etcd.HeartbeatInterval = &metav1.Duration{Duration: time.Second} }},
	"etcd.electionTimeout": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Etcd.ElectionTimeout = &metav1.Duration{Duration: 9 * time.Second}
	}},
	"backup.store, of which Pods need nothing": {edit: s3With(func(s3 *v1alpha1.S3Store) {
		s3.Region = "eu"
	}), same: true},
	"backup.store, with credentials": {edit: s3With(func(s3 *v1alpha1.S3Store) { s3.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "s3"} })},
	"backup.store, with a CA":        {edit: s3With(func(s3 *v1alpha1.S3Store) { s3.CASecretRef = &v1alpha1.SecretKeyRef{Name: "ca", Key: "pem"} })},
	"backup.store, with a key": {edit: s3With(func(s3 *v1alpha1.S3Store) {
		s3.SSE = &v1alpha1.S3Encryption{KeySecretRef: &v1alpha1.SecretKeyRef{Name: "key", Key: "k"}}
	})},
	"backup.store, in a volume": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: "nfs"}}}
	}},
	"backup.full": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: ambient(), Full: v1alpha1.FullBackup{Schedule: "@hourly"}}
	}, same: true},
	"backup.delta": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: ambient(), Delta: v1alpha1.DeltaBackup{Period: &metav1.Duration{Duration: time.Minute}}}
	}, same: true},
	"backup.retention": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: ambient(), Retention: v1alpha1.BackupRetention{Count: 3}}
	}, same: true},
	"recovery": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Recovery = &v1alpha1.RecoverySpec{Policy: v1alpha1.RecoveryAutomatic, AfterSeconds: 60}
	}, same: true},
	"backup.verify": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: ambient(), Verify: v1alpha1.BackupVerification{Schedule: "@daily"}}
	}, same: true},
	"backup.whenFailing": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: ambient(), WhenFailing: v1alpha1.WhenFailingContinue}
	}, same: true},
	"disruption": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Disruption = &v1alpha1.DisruptionSpec{SingleMember: v1alpha1.SingleMemberAllow}
	}, same: true},
	"defragmentation": {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Defragmentation = full().Spec.Defragmentation }, same: true},
	"resources": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}},
	"affinity": {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Affinity = &corev1.Affinity{} }},
	"topologySpreadConstraints": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone"}}
	}},
	"tolerations": {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Tolerations = []corev1.Toleration{{Key: "x"}} }},
	"nodeSelector": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.NodeSelector = map[string]v1alpha1.LabelValue{"disk": "fast"}
	}},
	"runtimeClassName":   {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.RuntimeClassName = new("gvisor") }},
	"env":                {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.Env = []v1alpha1.EnvVar{{Name: "GOGC", Value: "50"}} }},
	"clientService":      {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.ClientService = full().Spec.ClientService }, same: true},
	"leaderService":      {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.LeaderService = full().Spec.LeaderService }, same: true},
	"networkPolicy":      {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.NetworkPolicy = full().Spec.NetworkPolicy }, same: true},
	"additionalMetadata": {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.AdditionalMetadata = full().Spec.AdditionalMetadata }, same: true},
	"backup.encryption": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: ambient(), Encryption: &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "keys"}}}
	}},
	"backup.compression": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup = &v1alpha1.BackupSpec{Store: ambient(), Compression: v1alpha1.BackupCompression{Level: v1alpha1.CompressionBest}}
	}, same: true},
	"progressDeadlineSeconds": {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.ProgressDeadlineSeconds = 60 }, same: true},
	"tls":                     {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.TLS = secured().Spec.TLS }},
	"auth": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true, Users: []v1alpha1.AuthUser{{Name: "app", CertificateCN: "app"}}}
	}, same: true},
	"auth.passwordsSecretRef": {edit: func(c *v1alpha1.EtcdCluster) {
		c.Spec.Auth = &v1alpha1.AuthSpec{PasswordsSecretRef: &v1alpha1.SecretRef{Name: "users"}}
	}},
	"priorityClassName": {edit: func(c *v1alpha1.EtcdCluster) { c.Spec.PriorityClassName = "high" }},
}

// TestSpecHashShowsPodEdits compares it with the Pods that are made: they differ if and only if it does.
func TestSpecHashShowsPodEdits(t *testing.T) {
	before, err := Pod(plain(), member, options())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range specEdits {
		t.Run(name, func(t *testing.T) {
			cluster := plain()
			test.edit(cluster)
			after, err := Pod(cluster, member, options())
			if err != nil {
				t.Fatal(err)
			}
			if same := before.Annotations[AnnotationSpecHash] == after.Annotations[AnnotationSpecHash]; same != test.same {
				t.Errorf("the same hash: %t, want %t", same, test.same)
			}
			was, err := hash(before.Spec)
			if err != nil {
				t.Fatal(err)
			}
			is, err := hash(after.Spec)
			if err != nil || (was == is) != test.same {
				t.Errorf("the same Pod: %t, want %t: %v", was == is, test.same, err)
			}
		})
	}
}

// TestSpecHashKnowsEveryField: anyone who adds a field to the spec says here whether it needs other Pods.
func TestSpecHashKnowsEveryField(t *testing.T) {
	// It never changes after the first member started.
	known := []string{"bootstrap"}
	for name := range specEdits {
		field, _, _ := strings.Cut(name, ",")
		known = append(known, field)
	}
	var check func(prefix string, of reflect.Type)
	check = func(prefix string, of reflect.Type) {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Anonymous:
				check(prefix, field.Type)
			case name == "etcd":
				check("etcd.", field.Type)
			case name == "backup":
				check("backup.", field.Type.Elem())
			case !slices.Contains(known, prefix+name):
				t.Errorf("it is not said whether an edit of spec.%s%s needs other Pods", prefix, name)
			}
		}
	}
	check("", reflect.TypeFor[v1alpha1.EtcdClusterSpec]())
}

// TestSpecHashIsForEver: a druid that hashes an old spec otherwise would restart every etcd when it is upgraded.
func TestSpecHashIsForEver(t *testing.T) {
	for name, test := range map[string]struct {
		cluster *v1alpha1.EtcdCluster
		want    string
	}{
		"the least that a spec says": {plain(), "c9cf5b3e198729605fd12ba35f77a71a"},
		"all that a spec may say":    {full(), "fac1c807d5aeca6bb172a45510480d7b"},
		"TLS":                        {secured(), "b4c734b5dc0d4fa56cb472604291f744"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				got, err := SpecHash(test.cluster)
				if err != nil || got != test.want {
					t.Errorf("hash is %s, want %s: %v", got, test.want, err)
				}
				test.cluster.Name, test.cluster.UID, test.cluster.Status.ReadyReplicas = "another", "other", 3
				test.cluster.Spec.Replicas = 9
			}
		})
	}
}

// TestInstallationNamesEtcdRepository: an installation names the repository of etcd.
// Nodes without access to the default registry pull etcd from another one. Running Pods are not outdated by it, and a cluster
// that names its image keeps it.
func TestInstallationNamesEtcdRepository(t *testing.T) {
	for name, test := range map[string]struct{ spec, installation, want string }{
		"nothing is said":              {v1alpha1.DefaultImage, "", "gcr.io/etcd-development/etcd:v3.6.16"},
		"the installation says it":     {v1alpha1.DefaultImage, "r.example:5000/etcd", "r.example:5000/etcd:v3.6.16"},
		"the cluster has its own":      {"r.example/own", "", "r.example/own:v3.6.16"},
		"the cluster's own goes first": {"r.example/own", "r.example:5000/etcd", "r.example/own:v3.6.16"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := plain()
			cluster.Spec.Image = test.spec
			plainHash, err := SpecHash(cluster)
			if err != nil {
				t.Fatal(err)
			}
			o := options()
			o.EtcdRepository = test.installation
			pod, err := Pod(cluster, member, o)
			if err != nil {
				t.Fatal(err)
			}
			if got := pod.Spec.Containers[0].Image; got != test.want {
				t.Errorf("etcd has image %s, want %s", got, test.want)
			}
			if pod.Annotations[AnnotationSpecHash] != plainHash {
				t.Error("the flag makes running Pods outdated")
			}
		})
	}
}

// An older druid created Pods that do not compact for the spec that says nothing about it. They are not outdated, and those that
// are created for another reason compact. Who sets the same value by hand wants it in all Pods.
func TestCompactionIsOnForNewPods(t *testing.T) {
	for name, test := range map[string]struct {
		retention, flag string
		same            bool // the hash of the Pods of an older druid without this field
	}{
		"nothing is said":        {"", "--auto-compaction-retention=1h", true},
		"the default is said":    {"1h", "--auto-compaction-retention=1h", false},
		"compaction is off":      {"0s", "--auto-compaction-retention=0s", false},
		"five minutes are asked": {"5m", "--auto-compaction-retention=5m", false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := plain()
			cluster.Spec.Etcd.AutoCompactionRetention = test.retention
			pod, err := Pod(cluster, member, options())
			if err != nil {
				t.Fatal(err)
			}
			if args := pod.Spec.InitContainers[1].Command; !slices.Contains(args, test.flag) {
				t.Errorf("the agent has no %s: %v", test.flag, args)
			}
			if same := pod.Annotations[AnnotationSpecHash] == "c9cf5b3e198729605fd12ba35f77a71a"; same != test.same {
				t.Errorf("the hash of an older druid: %t, want %t", same, test.same)
			}
		})
	}
}

func TestSpecHashTakesEqualQuantitiesForEqual(t *testing.T) {
	hashOf := func(cpu string) string {
		cluster := plain()
		cluster.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		sum, err := SpecHash(cluster)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	if hashOf("1") != hashOf("1000m") {
		t.Error("1000m of a core is another quantity than 1")
	}
}
