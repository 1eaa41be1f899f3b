package e2e

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

func TestThreeMembersFormWithEveryMinorOfEtcd(t *testing.T) {
	stories.Begin(t)
	for _, minor := range binaries.EtcdMinors {
		t.Run("etcd "+minor, func(t *testing.T) {
			t.Parallel()
			c := rig.Apply(t, harness.Version(rig.EtcdVersion(t, minor)), allOptions)
			c.Agree(t, 3, formWithin)
			for _, member := range c.MemberNames(t) {
				runsWith(t, c, member, minor)
			}
		})
	}
}

// allOptions sets every option of etcd that a user may set to what is not etcd's default.
func allOptions(c *v1alpha1.EtcdCluster) {
	quota, count := resource.MustParse("256Mi"), int64(5000)
	c.Spec.Etcd = v1alpha1.EtcdOptions{
		QuotaBackendBytes:  &quota,
		AutoCompactionMode: v1alpha1.AutoCompactionPeriodic, AutoCompactionRetention: "7h",
		SnapshotCount:     &count,
		HeartbeatInterval: &metav1.Duration{Duration: 150 * time.Millisecond},
		ElectionTimeout:   &metav1.Duration{Duration: 1500 * time.Millisecond},
	}
}

// runsWith compares what etcd says that it runs with, since a minor may take a flag without a word and ignore it.
func runsWith(t *testing.T, c *harness.Cluster, member, minor string) {
	t.Helper()
	want := map[string]any{
		"quota-backend-bytes":      float64(256 << 20),
		"auto-compaction-mode":     "periodic",
		"auto-compaction-interval": "7h0m0s",
		"snapshot-count":           float64(5000),
		"heartbeat-interval":       "150ms",
		"election-timeout":         "1.5s",
		"pre-vote":                 true,
	}
	if minor == "3.5" { // later these are feature gates, and the limit of learners a setting
		want["initial-corrupt-check"], want["compact-check-time-enabled"] = true, true
	} else {
		want["max-learners"] = float64(leases.MaxLearners)
		features := c.Features(t, member)
		for _, check := range []string{"InitialCorruptCheck", "CompactHashCheck"} {
			if !features[check] {
				t.Errorf("feature %s of %s is off, want it on; all: %v", check, member, features)
			}
		}
	}
	settings, got := c.Settings(t, member), map[string]any{}
	for key := range want {
		got[key] = settings[key]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("etcd runs with other settings (-want +got):\n%s", diff)
	}
}

// same fails the test unless the cluster and all its members are who they were.
func same(t *testing.T, before, after harness.View) {
	t.Helper()
	if after.ClusterID != before.ClusterID {
		harness.Unsafe(t, "got cluster ID %s, want %s as before", after.ClusterID, before.ClusterID)
	}
	if diff := cmp.Diff(before.IDs(), after.IDs()); diff != "" {
		harness.Unsafe(t, "the members are not who they were (-before +after):\n%s", diff)
	}
}

// replaced fails the test unless one member, and no other, has a new ID in the same cluster.
func replaced(t *testing.T, before, after harness.View, member string) {
	t.Helper()
	if after.ClusterID != before.ClusterID {
		harness.Unsafe(t, "got cluster ID %s, want %s as before", after.ClusterID, before.ClusterID)
	}
	for name, id := range before.IDs() {
		switch got := after.IDs()[name]; {
		case name == member && got == id:
			harness.Unsafe(t, "%s still has ID %s: a raft ID was started twice", name, id)
		case name != member && got != id:
			harness.Unsafe(t, "got ID %s of %s, which was not replaced, want %s", got, name, id)
		}
	}
}
