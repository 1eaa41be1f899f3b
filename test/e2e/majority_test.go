package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// stopsWithin is how long a raft group that was replaced may serve after its nodes reach the API server again.
const stopsWithin = 30 * time.Second

// TestMajorityCutOffFromAPIStops: a majority that is cut off from the API serves and stops when it was replaced. Two of
// three members lose the API server, and go on serving a writer. A recovery is requested: druid orders none while the
// third one is in step, nor while the two may serve beyond a partition. Then an approval gives them up. When their
// nodes return, the former raft group stops, its data is kept, and one raft group remains.
func TestMajorityCutOffFromAPIStops(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, withTLSAndAuth, recoversItself)
	view := awaitSecured(t, c, 3)
	survivor, away, nodes := nearDruid(t, c)
	w := harness.Write(t, c.Etcd(t, away...))
	w.AwaitWrites(t, 100, scaleWithin)
	w.MayLose()
	t.Cleanup(func() { heal(t) })
	for _, member := range away {
		cut(t, nodes[member], lab.ControlPlane)
	}

	t.Run("nothing is ordered while the majority serves", func(t *testing.T) {
		cluster, err := c.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		approve(t, v1alpha1.RecoveryStatus{Approve: fmt.Sprintf("kubectl annotate etcdcluster --namespace %s %s --overwrite %s=%s",
			cluster.Namespace, cluster.Name, v1alpha1.RecoverAnnotation, strings.Repeat("0", 12))})
		w.Gap()
		for range (recoverAfter*time.Second + 2*maxWait) / maxWait {
			orderedNothing(t, c, view)
		}
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionAllMembersReady, "False")
		if err := w.StoodStill(harness.ElectionGap); err != nil {
			t.Error(err)
		}
	})

	separated := time.Now()
	for _, member := range away {
		cut(t, nodes[member], nodes[survivor])
	}
	var proposed v1alpha1.RecoveryStatus
	t.Run("nothing is ordered while the majority may serve", func(t *testing.T) {
		proposed = c.AwaitRecovery(t, healWithin, v1alpha1.RecoveryProposed)
		t.Logf("%s from the separation until the plan was shown: %s", time.Since(separated).Round(time.Second), proposed.Message)
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionReady, "Unknown") // what the majority does is not known
		if proposed.Plan == nil || proposed.Approve == "" {
			t.Fatalf("status.recovery is %+v, want a plan that can be approved", proposed)
		}
		slices.Sort(proposed.Plan.GiveUp)
		if !slices.Equal(proposed.Plan.GiveUp, away) || proposed.Plan.Member != survivor {
			t.Errorf("the plan is %+v, want one that gives up %v", *proposed.Plan, away)
		}
		orderedNothing(t, c, view)
		w.AwaitWrites(t, 20, scaleWithin)
	})
	if t.Failed() {
		return
	}

	approved := approve(t, proposed)
	w2 := harness.Write(t, c.Etcd(t, survivor)) // the Service can still lead to the majority
	w2.AwaitWrites(t, 20, healWithin)
	t.Logf("%s from the approval until %s served alone", time.Since(approved).Round(100*time.Millisecond), survivor)
	w.AwaitWrites(t, 20, scaleWithin) // by address, a majority cannot know that it was given up

	awaitFormed(t, c, view.ClusterID)
	heal(t)
	returned := awaitAPI(t, nodes, away)
	stopped := awaitSilence(t, c, view.ClusterID, away)
	t.Logf("the former raft group stopped %s after its nodes reached the API server", stopped.Sub(returned).Round(100*time.Millisecond))
	if took := stopped.Sub(returned); took > stopsWithin {
		t.Errorf("the former raft group served for %s, want at most %s", took, stopsWithin)
	}
	awaitRecovered(t, c, w2, returned, view)
	for _, member := range away {
		if !c.VolumeOf(t, member).Has(t, "data.quarantine-*-superseded") {
			t.Errorf("the volume of %s does not have the data of the former raft group", member)
		}
	}
	// The approval asserts that the data of the two is destroyed, so the plan measures no write that they acknowledge later.
	keepsUpTo(t, c, w, separated, proposed.Plan.Revision)
	w2.Stop(t, c.Etcd(t))
}

// nearDruid returns the member on the node of the druid that works, the others, and the nodes of all.
func nearDruid(t *testing.T, c *harness.Cluster) (near string, others []string, nodes map[string]string) {
	t.Helper()
	druid := rig.DruidLeader(t).Spec.NodeName
	nodes = map[string]string{}
	for _, member := range c.MemberNames(t) {
		if nodes[member] = c.MustPod(t, member).Spec.NodeName; nodes[member] == druid {
			near = member
		} else {
			others = append(others, member)
		}
	}
	slices.Sort(others)
	if near == "" || len(others) != 2 || nodes[others[0]] == nodes[others[1]] {
		t.Fatalf("the members run on %v and druid on %s, want one member on each node", nodes, druid)
	}
	return near, others, nodes
}

// cut cuts a node from a peer, in both directions.
func cut(t *testing.T, node, peer string) {
	t.Helper()
	if err := rig.Lab.Partition(t.Context(), node, peer); err != nil {
		t.Fatal(err)
	}
}

// awaitAPI waits until the nodes of the members connect to the API server.
func awaitAPI(t *testing.T, nodes map[string]string, members []string) (at time.Time) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the API server is reached", func(ctx context.Context) (err error) {
		for _, member := range members {
			err = errors.Join(err, connects(ctx, nodes[member], rig.Lab.Network().ControlPlane, 443))
		}
		return err
	})
	return time.Now()
}

// silentFor is how long no member may answer until the former raft group counts as stopped. It is longer than an election.
const silentFor = harness.ElectionGap

// awaitSilence waits until no member answers a linearizable read in the former raft group any more, and returns when the last answer was.
func awaitSilence(t *testing.T, c *harness.Cluster, former string, members []string) (last time.Time) {
	t.Helper()
	last = time.Now()
	var etcds []*clientv3.Client
	for _, member := range members {
		etcds = append(etcds, c.Etcd(t, member))
	}
	harness.Eventually(t, 3*stopsWithin, "the former raft group stops", func(ctx context.Context) error {
		for _, etcd := range etcds {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			response, err := etcd.Get(ctx, "key")
			cancel()
			if err == nil && leases.FormatID(response.Header.ClusterId) == former {
				last = time.Now()
			}
		}
		if silent := time.Since(last); silent < silentFor {
			return fmt.Errorf("the last answer was %s ago", silent)
		}
		return nil
	})
	return last
}
