package e2e

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// maxAgentRequests is how many API requests a member's agent may make in the time in which it renews its Lease once, averaged over its
// cluster. With the default of 15 s these are 0.1 per second.
const maxAgentRequests = 1.5

// What the programs may have of resident memory, in MiB. docs/explanation/benchmarks.md has these goals, and what was measured: 26.2, 3.8
// and 40.1 with one cluster. druid had 48.3 with 50 clusters of one member, so the clusters of other stories fit too.
const (
	maxAgentMiB  = 30
	maxLaunchMiB = 12
	maxDruidMiB  = 50
)

// TestSteadyClusterCostsFewRequests: a steady cluster costs druid no write and agents few requests.
func TestSteadyClusterCostsFewRequests(t *testing.T) {
	stories.Begin(t)
	// An election writes the status and renews Leases. This is about a cluster in which nothing happens, on a machine on
	// which a lot does.
	c := rig.Apply(t, func(c *v1alpha1.EtcdCluster) {
		c.Spec.Etcd.ElectionTimeout = &metav1.Duration{Duration: 10 * time.Second}
	})
	view := c.Agree(t, 3, formWithin)

	t.Run("its Leases report member ID and role", func(t *testing.T) {
		holder := regexp.MustCompile(`^[0-9a-f]+:(Leader|Member)$`)
		leaders := 0
		for _, name := range c.MemberNames(t) {
			lease, err := c.Lease(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			identity := *lease.Spec.HolderIdentity
			if !holder.MatchString(identity) {
				t.Errorf("Lease %s has holderIdentity %q, want %s", name, identity, holder)
			}
			if view.Members[name].Role == leases.RoleLeader {
				leaders++
			}
		}
		if leaders != 1 {
			t.Errorf("got %d leaders, want 1", leaders)
		}
	})

	t.Run("over eight renewals", func(t *testing.T) {
		renewal := c.AgentTimings(t).RenewInterval
		span, maxAgentRate := max(time.Minute, 8*renewal), maxAgentRequests/renewal.Seconds()
		before := quiet(t, c)
		begun := time.Now()
		stories.Resting(t, func() {
			harness.Consistently(t, span, "the status does not change", func(ctx context.Context) error {
				cluster, err := c.Get(ctx)
				if err == nil && cluster.ResourceVersion != before {
					return fmt.Errorf("resourceVersion %s, was %s", cluster.ResourceVersion, before)
				}
				return harness.NoAnswer(err)
			})
		})
		if writes := rig.Since(t, begun, harness.DruidNamespace, "").In(c.Namespace).Writes(); len(writes) > 0 {
			t.Errorf("druid made %d writes, want none:\n%s", len(writes), writes)
		}
		requests := rig.Since(t, begun, c.Namespace, "")
		if len(requests) == 0 {
			t.Error("the audit log has no request of an agent: nothing was measured")
		}
		// Each member's renewals, the leader's, and its reads of the record come at a pace of their own, and one more or less
		// of each is where the window happens to begin.
		window, paces := time.Since(begun), len(view.Members)+2
		rate := float64(len(requests)-paces) / window.Seconds() / float64(len(view.Members))
		t.Logf("agents: %.3f requests per second and member", rate)
		if rate > maxAgentRate {
			t.Errorf("agents made %.3f requests per second and member, want at most %.2f:\n%s", rate, maxAgentRate, requests)
		}
	})

	t.Run("its programs have little memory", func(t *testing.T) {
		stories.Resting(t, func() {
			for _, member := range c.MemberNames(t) {
				keepsBelow(t, "agent of "+member, c.Process(t, member, harness.Agent), maxAgentMiB)
				keepsBelow(t, "launch of "+member, c.Process(t, member, harness.Launch), maxLaunchMiB)
			}
			pids, err := harness.Processes(string(rig.DruidLeader(t).UID), harness.Druid)
			if err != nil || len(pids) != 1 {
				t.Fatalf("druid runs as %v: %v", pids, err)
			}
			keepsBelow(t, "druid", pids[0], maxDruidMiB)
		})
	})
}

// keepsBelow waits until the program has less resident memory than limit, in MiB. An agent releases memory every two minutes.
func keepsBelow(t *testing.T, program string, pid int, limit float64) {
	t.Helper()
	var resident float64
	harness.Eventually(t, healWithin, fmt.Sprintf("%s has at most %.0f MiB", program, limit), func(context.Context) error {
		usage, err := harness.UsageOf(pid)
		if err != nil {
			return err
		}
		if resident = float64(usage.RSS) / (1 << 20); resident > limit {
			return fmt.Errorf("it has %.1f MiB", resident)
		}
		return nil
	})
	t.Logf("%s: %.1f MiB", program, resident)
}

// quiet waits until the EtcdCluster has not changed for a while, and returns its resourceVersion: what druid still does
// after the last member is ready, it does at once.
func quiet(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	const calm = 15 * time.Second
	version, since := "", time.Now()
	harness.Eventually(t, healWithin, c.String()+" comes to rest", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if cluster.ResourceVersion != version {
			version, since = cluster.ResourceVersion, time.Now()
		}
		if still := time.Since(since); still < calm {
			return fmt.Errorf("unchanged for %s, want %s", still, calm)
		}
		return nil
	})
	return version
}
