package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// outOfServiceTaint is the taint of Kubernetes that declares a node lost.
const outOfServiceTaint = "node.kubernetes.io/out-of-service"

// Each page gets a cluster in the situation that the page is for, and after its commands the cluster is well again.
func TestPagesOfRescueAreTrue(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Named(demo), func(c *v1alpha1.EtcdCluster) {
		c.Spec.Defragmentation = &v1alpha1.DefragmentationSpec{OutOfSpace: v1alpha1.OutOfSpaceNothing}
	})
	view := c.Agree(t, 3, formWithin)
	for _, situation := range []struct {
		page string
		// follow brings the situation about, follows the page, and waits for what the page promises.
		follow func(t *testing.T, p *page, view harness.View)
	}{
		{"how-to/rescue/stuck-upgrade.md", patchThatIsNotThere},
		{"how-to/rescue/manual-actions.md", unreadableRemovalRequest},
		{"how-to/rescue/nospace.md", alarmForYou},
		{"how-to/rescue/quorum-lost.md", lostQuorum},
		{"how-to/rescue/pod-not-ready.md", memberGetsAnEmptyDisk},
		{"how-to/rescue/quarantined-data.md", dataIsQuarantined},
	} {
		done := t.Run(situation.page, func(t *testing.T) {
			p := openPage(t, situation.page, c)
			p.replaced["<member>"] = view.Follower()
			situation.follow(t, p, view)
			view = c.Agree(t, 3, healWithin)
		})
		if !done {
			return
		}
	}
}

// patchThatIsNotThere requests a patch release of etcd that has no image.
func patchThatIsNotThere(t *testing.T, p *page, view harness.View) {
	t.Helper()
	c := p.cluster
	cluster, err := c.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	version := cluster.Spec.Version
	missing := version[:strings.LastIndex(version, ".")] + ".99"
	c.Edit(t, fmt.Sprintf(`{"spec":{"version":%q}}`, missing))
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "Blocked", missing)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonImagePullFailed, missing)
	p.replaced["<version>"] = version
	p.follow(t)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	same(t, view, c.Agree(t, 3, healWithin))
}

func unreadableRemovalRequest(t *testing.T, p *page, _ harness.View) {
	t.Helper()
	c, member := p.cluster, p.replaced["<member>"]
	edit(t, c, member, func(l *coordinationv1.Lease) { l.Annotations[leases.AnnotationRemoval] = "nonsense" })
	c.AwaitCondition(t, healWithin, "Degraded", "True", v1alpha1.ReasonLeaseUnreadable)
	p.follow(t)
	c.AwaitCondition(t, healWithin, "Degraded", "False")
}

// alarmForYou is an alarm that the spec leaves to the user.
func alarmForYou(t *testing.T, p *page, view harness.View) {
	t.Helper()
	c, leader := p.cluster, view.Leader()
	etcd := c.Etcd(t, leader)
	harness.Eventually(t, healWithin, "a revision to compact", func(ctx context.Context) error {
		_, err := etcd.Put(ctx, "key", "value")
		return err
	})
	harness.Eventually(t, healWithin, "the alarm NOSPACE", func(ctx context.Context) error {
		status, err := etcd.Status(ctx, harness.Endpoint(leader))
		if err != nil {
			return err
		}
		_, err = etcdserverpb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE,
		})
		return err
	})
	c.AwaitCondition(t, healWithin, "Degraded", "True", v1alpha1.ReasonAlarmRaised)
	p.follow(t)
	c.AwaitCondition(t, healWithin, "Degraded", "False")
}

// lostQuorum keeps the Pods of two members away.
func lostQuorum(t *testing.T, p *page, view harness.View) {
	t.Helper()
	c := p.cluster
	holds := []*harness.Hold{c.HoldDown(t, view.Follower()), c.HoldDown(t, view.Leader())}
	c.AwaitCondition(t, healWithin, "Ready", "False", v1alpha1.ReasonQuorumLost)
	p.follow(t)
	for _, h := range holds {
		h.Release(t)
	}
	same(t, view, c.Agree(t, 3, healWithin))
	reportsAs(t, c, corev1.EventTypeNormal, "QuorumRestored", "")
}

// memberGetsAnEmptyDisk follows the page for a member whose container etcd ended once, so that it has a previous log.
func memberGetsAnEmptyDisk(t *testing.T, p *page, view harness.View) {
	t.Helper()
	c, member := p.cluster, p.replaced["<member>"]
	c.Kill(t, member, harness.Launch)
	harness.Eventually(t, healWithin, "a restart of etcd of "+member, func(context.Context) error {
		if c.Restarts(t, member, harness.ContainerEtcd) == 0 {
			return fmt.Errorf("no restart yet")
		}
		return nil
	})
	c.Agree(t, 3, healWithin)
	p.follow(t)
	replaced(t, view, awaitReplacement(t, c, member, view), member)
}

func dataIsQuarantined(t *testing.T, p *page, view harness.View) {
	t.Helper()
	c, member := p.cluster, p.replaced["<member>"]
	whileCrashed(t, c, member, func(v harness.Volume) { v.TruncateWAL(t) })
	replaced(t, view, awaitReplacement(t, c, member, view), member)
	p.follow(t)
}

func TestPageOfALostNodeIsTrue(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Named(demo))
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	member := view.Follower()
	node := c.MustPod(t, member).Spec.NodeName
	if err := rig.Lab.StopNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { startNode(t, node) })
	c.AwaitCondition(t, healWithin, "Degraded", "True", v1alpha1.ReasonNodeLost, node)
	p := openPage(t, "how-to/rescue/node-lost.md", c)
	p.replaced["<node>"] = node
	t.Cleanup(func() {
		if _, err := rig.Lab.Kubectl(context.WithoutCancel(t.Context()), "taint", "nodes", node, outOfServiceTaint+"-"); err != nil {
			t.Errorf("take the taint off node %s: %v", node, err)
		}
	})
	p.follow(t)
	after := awaitReplacement(t, c, member, view)
	replaced(t, view, after, member)
	if now := c.MustPod(t, member).Spec.NodeName; now == node {
		t.Errorf("%s runs on node %s, which is lost", member, now)
	}
	w.Stop(t, c.Etcd(t))
}
