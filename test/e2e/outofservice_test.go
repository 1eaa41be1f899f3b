package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// Two of three nodes lose their power under a writer, and are declared out of service: their volumes are lost. The plan names no member to
// give up, and is approved. The cluster ends with three voters on the node that is left, and no more is lost than the plan said. When the
// nodes return, their former data does not serve: no former etcd starts, and the members stay who they are.
func TestTwoNodesOutOfServiceReturn(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, withTLSAndAuth, recovers(v1alpha1.RecoverySpec{}))
	view := awaitSecured(t, c, 3)
	survivor, lost, nodes := nearDruid(t, c)
	former := podsOf(t, c, view)
	w := harness.Write(t, c.Etcd(t, survivor)) // the Service leads to lost nodes for a while
	w.AwaitWrites(t, 100, scaleWithin)
	w.MayLose()

	off := time.Now()
	for _, member := range lost {
		powerOff(t, nodes[member])
	}
	for _, member := range lost {
		harness.Eventually(t, healWithin, "node "+nodes[member]+" is given up", func(ctx context.Context) error { return notReady(ctx, nodes[member]) })
		declareLost(t, nodes[member])
	}
	proposed := awaitPlan(t, c, off)
	plan := *proposed.Plan
	if plan.Source != v1alpha1.RecoveryFromSurvivor || plan.Member != survivor || len(plan.GiveUp) > 0 {
		t.Errorf("the plan is %+v, want one from the disk of %s that gives up no member: the volumes of the others are lost", plan, survivor)
	}
	approved := approve(t, proposed)
	after := awaitRecovered(t, c, w, approved, view)
	lostAtMost(t, c, w, approved, plan)
	for member := range after.Members {
		if node := c.MustPod(t, member).Spec.NodeName; node != nodes[survivor] {
			t.Errorf("%s runs on node %s, which is lost", member, node)
		}
	}

	for _, member := range lost {
		powerOn(t, nodes[member])
	}
	for _, member := range lost {
		harness.Eventually(t, healWithin, "node "+nodes[member]+" is ready", func(ctx context.Context) error { return ready(ctx, nodes[member]) })
		removeTaint(t, nodes[member])
	}
	t.Logf("%s from the loss until both nodes were back", time.Since(off).Round(time.Second))
	harness.Consistently(t, 20*time.Second, "no former etcd runs", func(context.Context) error {
		for _, member := range lost {
			if pids, err := harness.Processes(former[member], harness.Etcd); err != nil || len(pids) > 0 {
				return errors.Join(err, fmt.Errorf("the former etcd of %s runs as %v", member, pids))
			}
		}
		return nil
	})
	same(t, after, c.AwaitMembers(t, 3, healWithin))
	w.Stop(t, c.Etcd(t))
}

// powered has the nodes that a story powered off.
var powered sync.Map

// powerOff powers a node off until powerOn, or until the test ends.
func powerOff(t *testing.T, node string) {
	t.Helper()
	if err := rig.Lab.StopNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	powered.Store(node, false)
	t.Cleanup(func() { powerOn(t, node) })
}

func powerOn(t *testing.T, node string) {
	t.Helper()
	if _, off := powered.LoadAndDelete(node); off {
		startNode(t, node)
	}
}

// declareLost sets the taint that declares a node lost, until removeTaint or until the test ends.
func declareLost(t *testing.T, node string) {
	t.Helper()
	if out, err := rig.Lab.Kubectl(t.Context(), "taint", "nodes", node, outOfServiceTaint+"=nodeshutdown:NoExecute"); err != nil {
		t.Fatalf("taint node %s: %v: %s", node, err, out)
	}
	t.Cleanup(func() { removeTaint(t, node) })
}

func removeTaint(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	node := &corev1.Node{}
	if err := rig.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		t.Fatalf("read node %s: %v", name, err)
	}
	if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == outOfServiceTaint }) {
		return
	}
	if out, err := rig.Lab.Kubectl(ctx, "taint", "nodes", name, outOfServiceTaint+"-"); err != nil {
		t.Errorf("take the taint off node %s: %v: %s", name, err, out)
	}
}

// ready returns an error unless the kubelet of the node reports that it is ready.
func ready(ctx context.Context, name string) error {
	node := &corev1.Node{}
	if err := rig.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("it is not ready")
}
