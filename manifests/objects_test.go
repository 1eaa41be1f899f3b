package manifests

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/golden"
)

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
		pod, err := SnapshotPod(cluster, ownStore(cluster),
			SnapshotRun{Record: leases.Record{ClusterID: 7, Lineage: "00000001-ab"}, Within: SnapshotTimeout}, options())
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

// TestSharedObjectsHaveContentHash: shared objects bear the hash of their content.
func TestSharedObjectsHaveContentHash(t *testing.T) {
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
