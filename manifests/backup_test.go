package manifests

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/store"
)

// ambient is a bucket that the agent reaches without any Secret.
func ambient() v1alpha1.BackupStore {
	return v1alpha1.BackupStore{S3: &v1alpha1.S3Store{Bucket: "backups", Region: "us-east-1"}}
}

// fullBackup has every field of a bucket set.
func fullBackup() *v1alpha1.BackupSpec {
	return &v1alpha1.BackupSpec{
		Store: v1alpha1.BackupStore{S3: &v1alpha1.S3Store{
			Bucket: "backups", Prefix: "etcd/prod", Region: "eu-central-1", Endpoint: "https://s3.example.com", ForcePathStyle: true,
			CredentialsSecretRef: &v1alpha1.SecretRef{Name: "s3"},
			CASecretRef:          &v1alpha1.SecretKeyRef{Name: "s3-ca", Key: "bundle.pem"},
			SSE: &v1alpha1.S3Encryption{
				Mode: v1alpha1.SSECustomerKey, KeySecretRef: &v1alpha1.SecretKeyRef{Name: "s3-key", Key: "sse"},
			},
			ObjectLock: &v1alpha1.S3ObjectLock{Mode: v1alpha1.LockGovernance, Days: 7},
			Checksum:   v1alpha1.ChecksumWhenRequired,
		}},
		Encryption:  &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "backup-keys"}},
		Compression: v1alpha1.BackupCompression{Level: v1alpha1.CompressionBetter},
		Full: v1alpha1.FullBackup{
			Schedule: "0 */6 * * *", TimeZone: "Europe/Berlin", MaxAge: &metav1.Duration{Duration: 24 * time.Hour},
		},
		Delta: v1alpha1.DeltaBackup{Period: &metav1.Duration{Duration: time.Minute}, MaxBytes: new(resource.MustParse("1Mi"))},
		Retention: v1alpha1.BackupRetention{
			KeepAll: &metav1.Duration{Duration: 48 * time.Hour}, Hourly: 24, Daily: 7, Weekly: 4, Monthly: 12,
		},
	}
}

// fullBootstrap restores another cluster's backups from a volume.
func fullBootstrap() *v1alpha1.BootstrapSpec {
	moment := metav1.NewTime(time.Date(2026, 11, 21, 19, 54, 0, 0, time.FixedZone("CET", 3600)))
	return &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{
		From: &v1alpha1.RestoreSource{
			Store:      &v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: "archive"}},
			Encryption: &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "old-keys"}},
			Namespace:  "other", Name: "old",
		},
		To: &v1alpha1.RestoreTarget{Time: &moment},
	}}
}

// backedUp is a cluster with a backup of that spec.
func backedUp(change ...func(*v1alpha1.BackupSpec)) *v1alpha1.EtcdCluster {
	cluster := plain()
	cluster.Spec.Backup = &v1alpha1.BackupSpec{Store: ambient(), Full: v1alpha1.FullBackup{Schedule: "@daily"}}
	for _, f := range change {
		f(cluster.Spec.Backup)
	}
	return cluster
}

// The agent must be able to take everything that druid renders of what the API server lets in.
func TestAgentAcceptsItsBackup(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.BackupSpec){
		"a bucket alone":       func(*v1alpha1.BackupSpec) {},
		"everything set":       func(b *v1alpha1.BackupSpec) { *b = *fullBackup() },
		"a claim":              func(b *v1alpha1.BackupSpec) { b.Store = *fullBootstrap().Restore.From.Store },
		"fulls by number":      func(b *v1alpha1.BackupSpec) { b.Retention = v1alpha1.BackupRetention{Count: 3} },
		"a schedule of no use": func(b *v1alpha1.BackupSpec) { b.Full.Schedule = "61 0 * * *" },
		"a time zone nowhere":  func(b *v1alpha1.BackupSpec) { b.Full.TimeZone = "Europe/Atlantis" },
		"no defaults filled":   func(b *v1alpha1.BackupSpec) { b.Full = v1alpha1.FullBackup{} },
	} {
		t.Run(name, func(t *testing.T) {
			object, err := configMap(backedUp(change), config.DefaultReloadable())
			if err != nil {
				t.Fatal(err)
			}
			read, err := config.ParseReloadable([]byte(object.Data[config.ConfigFile]))
			if err != nil {
				t.Fatalf("%v:\n%s", err, object.Data[config.ConfigFile])
			}
			if _, err := store.ParseConfig(read.Backup.Store); err != nil {
				t.Errorf("the store: %v", err)
			}
		})
	}
}

func TestProblemsOfABackupAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.BackupSpec)
		want   string // empty: none
	}{
		"nothing wrong":             {func(*v1alpha1.BackupSpec) {}, ""},
		"an hour that no day has":   {func(b *v1alpha1.BackupSpec) { b.Full.Schedule = "0 25 * * *" }, `schedule "0 25 * * *"`},
		"a time zone nowhere":       {func(b *v1alpha1.BackupSpec) { b.Full.TimeZone = "Europe/Atlantis" }, "druid uses 0 0 * * * UTC until you correct it"},
		"a store of no kind at all": {func(b *v1alpha1.BackupSpec) { b.Store = v1alpha1.BackupStore{} }, "spec.backup.store"},
	} {
		t.Run(name, func(t *testing.T) {
			err := BackupProblem(backedUp(test.change))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if err := BackupProblem(plain()); err != nil {
		t.Errorf("no backup: %v", err)
	}
}

func TestRestoreOrder(t *testing.T) {
	moment := time.Date(2026, 11, 21, 18, 54, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		bootstrap *v1alpha1.BootstrapSpec
		want      *config.Restore
	}{
		"a cluster that begins empty": {&v1alpha1.BootstrapSpec{}, nil},
		"its own newest state": {
			&v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{}}, &config.Restore{Prefix: "default/demo"},
		},
		"another cluster's, in its own store": {
			&v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{
				From: &v1alpha1.RestoreSource{Name: "old"}, To: &v1alpha1.RestoreTarget{Revision: 7},
			}}, &config.Restore{Prefix: "default/old", Revision: 7},
		},
		"another cluster's, in another store": {
			fullBootstrap(), &config.Restore{Store: []byte(`{"directory":{"path":"/restore/store"},"clientEncryption":{"keysDir":"/restore/keys"}}`),
				Prefix: "other/old", Time: &moment},
		},
		"a file, in its own store": {
			&v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{File: "old/snapshot.db"}}},
			&config.Restore{File: "old/snapshot.db"},
		},
		"a file, in another store": {
			&v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{File: "snapshot.db", Store: fullBootstrap().Restore.From.Store}}},
			&config.Restore{File: "snapshot.db", Store: []byte(`{"directory":{"path":"/restore/store"}}`)},
		},
		"an EtcdSnapshot that was not observed": {
			fromSnapshot(), &config.Restore{Unresolved: "the backup of EtcdSnapshot before-the-move is unknown: status.restore of EtcdCluster demo " +
				"does not have it yet"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := plain()
			cluster.Spec.Bootstrap = test.bootstrap
			c, err := agentConfig(cluster, member)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.RestoreOrder()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func fromSnapshot() *v1alpha1.BootstrapSpec {
	return &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{
		SnapshotRef: &v1alpha1.SnapshotReference{Name: "before-the-move"},
	}}}
}

func TestASnapshotIsRestoredAsItWasResolved(t *testing.T) {
	cluster := plain()
	cluster.Spec.Bootstrap = fromSnapshot()
	from := *fullBootstrap().Restore.From
	resolved := v1alpha1.ResolvedRestore{
		SnapshotUID: "uid", Lineage: "00000003-ab",
		RestoreSpec: v1alpha1.RestoreSpec{From: &from, To: &v1alpha1.RestoreTarget{Name: "0000000000000007-1795287240000.snap.zst"}},
	}
	if err := cluster.Status.Resolve(resolved); err != nil {
		t.Fatal(err)
	}
	c, err := agentConfig(cluster, member)
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Restore{
		Store:  []byte(`{"directory":{"path":"/restore/store"},"clientEncryption":{"keysDir":"/restore/keys"}}`),
		Prefix: "other/old", Lineage: "00000003-ab", Name: "0000000000000007-1795287240000.snap.zst",
	}
	if got, err := c.RestoreOrder(); err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v", cmp.Diff(want, got), err)
	}
	mounted := map[string]bool{}
	for _, a := range storeVolumes(cluster) {
		mounted[a.mount.MountPath] = true
	}
	if !mounted["/restore/store"] || !mounted["/restore/keys"] {
		t.Errorf("mounted are %v", mounted)
	}
	cluster.Status.Restore.Raw = []byte("{")
	if _, err := Pod(cluster, member, options()); err == nil {
		t.Error("a Pod was made for what cannot be understood")
	}
}

func TestCredentialsAreTheAgentsAlone(t *testing.T) {
	pod, err := Pod(full(), member, options())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range storeVolumes(full()) {
		for _, c := range append(pod.Spec.Containers, pod.Spec.InitContainers[0]) {
			for _, mount := range c.VolumeMounts {
				if mount.Name == a.volume.Name {
					t.Errorf("container %s has volume %s", c.Name, mount.Name)
				}
			}
		}
		if s := a.volume.Secret; s != nil && (s.Optional == nil || !*s.Optional) {
			t.Errorf("volume %s keeps a member from starting when its Secret is missing", a.volume.Name)
		}
	}
}

func TestPodReachesTheStoreThatItWasMadeFor(t *testing.T) {
	made := func(change ...func(*v1alpha1.BackupSpec)) *corev1.Pod {
		pod, err := Pod(backedUp(change...), member, options())
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	secret := func(name string) func(*v1alpha1.BackupSpec) {
		return func(b *v1alpha1.BackupSpec) { b.Store.S3.CredentialsSecretRef = &v1alpha1.SecretRef{Name: name} }
	}
	keys := func(name string) func(*v1alpha1.BackupSpec) {
		return func(b *v1alpha1.BackupSpec) {
			b.Encryption = &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: name}}
		}
	}
	claim := func(b *v1alpha1.BackupSpec) { b.Store = *fullBootstrap().Restore.From.Store }
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		cluster *v1alpha1.EtcdCluster
		want    bool
	}{
		"no backup":                           {made(), plain(), true},
		"a bucket that needs no Secret":       {made(), backedUp(), true},
		"a Secret that it was made with":      {made(secret("a")), backedUp(secret("a")), true},
		"a Secret that is named since":        {made(), backedUp(secret("a")), false},
		"another Secret":                      {made(secret("a")), backedUp(secret("b")), false},
		"a Secret that is not needed anymore": {made(secret("a")), backedUp(), true},
		"keys that it was made with":          {made(keys("a")), backedUp(keys("a")), true},
		"keys that are named since":           {made(), backedUp(keys("a")), false},
		"other keys":                          {made(keys("a")), backedUp(keys("b")), false},
		"a claim that it was made with":       {made(claim), backedUp(claim), true},
		"a claim that is named since":         {made(secret("a")), backedUp(claim), false},
	} {
		if got := ReachesStore(test.cluster, test.pod); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// The word that others may go reaches the agents that run: it must restart no etcd.
func TestTheWordThatOthersMayGoChangesNoPod(t *testing.T) {
	cluster := plain()
	cluster.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Join: &v1alpha1.JoinSpec{Endpoints: []v1alpha1.JoinEndpoint{"http://a:2379", "http://b:2379"}}}
	render := func() (pod, config string) {
		t.Helper()
		made, err := Pod(cluster, member, options())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		if command := made.Spec.InitContainers[1].Command; !slices.Contains(command, "--join=http://a:2379,http://b:2379") {
			t.Errorf("the agent is started with %v", command)
		}
		content, err := configMap(cluster, options().Reloadable)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw), content.Data["config.yaml"]
	}
	before, kept := render()
	cluster.Spec.Bootstrap.Join.RemoveExternalMembers = true
	after, released := render()
	if before != after {
		t.Errorf("the Pod was\n%s\nand is\n%s", before, after)
	}
	if strings.Contains(kept, "removeExternalMembers") || !strings.Contains(released, "removeExternalMembers: true") {
		t.Errorf("the agents read\n%s\nand then\n%s", kept, released)
	}
}
