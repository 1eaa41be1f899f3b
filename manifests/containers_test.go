package manifests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// Requests of etcd come before those of its agent, and what the user says of a resource counts alone.
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
			if got := cluster.Spec.QuotaBytes(); got != test.want {
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

// The page about sizes has the requests of the containers, and the limit of druid.
func TestSizingPageHasTheRequests(t *testing.T) {
	raw, err := os.ReadFile("../docs/how-to/run/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	page, druid := string(raw), installedDeployment(t).Spec.Template.Spec.Containers[0].Resources
	for name, requests := range map[string]corev1.ResourceList{
		"etcd": etcdResources(corev1.ResourceRequirements{}).Requests, "agent": agentResources().Requests, "druid": druid.Requests,
	} {
		if row := fmt.Sprintf("\n| %s | `%s` | `%s` |\n", name, requests.Cpu(), requests.Memory()); strings.Count(page, row) != 1 {
			t.Errorf("the page has not the row %q", row)
		}
	}
	if limit := fmt.Sprintf("a memory limit of `%s`:", druid.Limits.Memory()); !strings.Contains(page, limit) {
		t.Errorf("the page does not say that druid has %q", limit)
	}
}
