package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// These stories take away what all clusters stand on, so they run alone.

func TestClusterOutlivesTheControlPlane(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)

	t.Run("druid is stopped for the whole of a heal", func(t *testing.T) {
		rig.StopDruid(t)
		member := view.Follower()
		w.Gap()
		whileCrashed(t, c, member, func(v harness.Volume) { v.WipeData(t) })
		harness.Eventually(t, healWithin, member+" votes again under a new ID", func(ctx context.Context) error {
			m, err := c.Member(ctx, member)
			if err == nil && (m.ID == 0 || m.HolderIdentity() == view.Members[member].ID+":Member" || m.Role == "Learner") {
				return fmt.Errorf("its Lease says %q", m.HolderIdentity())
			}
			return err
		})
		servedOn(t, w)
		worksWithoutDruid(t, c, view)
		rig.StartDruid(t)
		after := c.Agree(t, 3, healWithin)
		replaced(t, view, after, member)
		view = after
	})

	t.Run("kube-apiserver is away and a member's etcd is killed meanwhile", func(t *testing.T) {
		member := view.Follower()
		etcd, uid := c.Process(t, member, harness.Etcd), string(c.MustPod(t, member).UID)
		client := c.Etcd(t, member)
		w.Gap()
		away := c.AgentTimings(t).LeaseDuration + 5*time.Second // all Leases run out meanwhile
		begun := time.Now()
		if err := rig.Lab.StopAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { startAPIServer(t) })
		signal(t, etcd, syscall.SIGKILL)
		harness.Eventually(t, healWithin, member+" serves again", func(ctx context.Context) error {
			pids, err := harness.Processes(uid, harness.Etcd)
			if err != nil || len(pids) != 1 || pids[0] == etcd {
				return fmt.Errorf("etcd runs as %v, was %d (%w)", pids, etcd, err)
			}
			_, err = client.Get(ctx, "any")
			return err
		})
		harness.Consistently(t, away-time.Since(begun), "writes go on", func(context.Context) error {
			return w.StoodStill(harness.NoticeableGap)
		})
		startAPIServer(t)
		same(t, view, c.Agree(t, 3, healWithin))
	})

	w.Stop(t, c.Etcd(t))
}

// worksWithoutDruid runs the commands of the plugin that read, while no druid runs.
func worksWithoutDruid(t *testing.T, c *harness.Cluster, view harness.View) {
	t.Helper()
	p, leader := pluginOf{c}, view.Leader()
	p.prints(t, 0, []string{"status", c.Name}, "Serving", "3/3 members ready", leader+"   Leader")
	p.prints(t, 0, []string{"why", c.Name}, "Rule serving")
	p.prints(t, 0, []string{"logs", c.Name, "--since", "1h"}, leader+" etcd", leader+" agent", view.Follower()+" agent")
	if _, stderr, _ := p.run(t.Context(), "", "logs", c.Name); !strings.Contains(stderr, "The logs of druid are not shown: no Pod has the label") {
		t.Errorf("logs do not say that those of druid are missing: %s", stderr)
	}
	for _, step := range []struct{ args, want string }{{"put without druid", "OK"}, {"get without --print-value-only", "druid"}} {
		args := append([]string{"etcdctl", c.Name, "--"}, strings.Fields(step.args)...)
		if stdout, stderr, code := p.run(t.Context(), "", args...); code != 0 || strings.TrimSpace(stdout) != step.want {
			t.Errorf("kubectl druid %v: exit code %d, printed %q %q, want %q", args, code, stdout, stderr, step.want)
		}
	}
	found := p.report(t)
	for name, word := range map[string]string{
		c.Namespace + "/" + c.Name + "/status.txt": "Serving", c.Namespace + "/logs/" + leader + "/etcd.log": "ready to serve client requests",
		harness.DruidNamespace + "/druid-deployments.yaml": "replicas: 0",
	} {
		if !strings.Contains(found[name], word) {
			t.Errorf("%s of the report does not have %q:\n%s", name, word, found[name])
		}
	}
	p.prints(t, 1, []string{"check", c.Name}, "has no replicas", "No replica of druid leads")
}

// TestNodePowerOffDuringRollout: a node is powered off in the middle of a rolling update.
// The node of the member whose Pod is being replaced loses its power: no other member's Pod goes until it is back.
func TestNodePowerOffDuringRollout(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)
	before := podsOf(t, c, view)
	nodes := map[string]string{}
	for member := range view.Members {
		nodes[member] = c.MustPod(t, member).Spec.NodeName
	}
	w.Gap()
	c.Edit(t, `{"spec":{"resources":{"requests":{"cpu":"102m"}}}}`)
	goes := ""
	harness.Eventually(t, scaleWithin, "a Pod that goes", func(ctx context.Context) error {
		for member, uid := range before {
			pod, err := c.Pod(ctx, member)
			gone := apierrors.IsNotFound(err)
			if err != nil && !gone {
				return err
			}
			if gone || pod.DeletionTimestamp != nil || string(pod.UID) != uid {
				goes = member
				return nil
			}
		}
		return errors.New("all stay")
	})
	if err := rig.Lab.StopNode(t.Context(), nodes[goes]); err != nil {
		t.Fatal(err)
	}
	powerOn := sync.OnceFunc(func() { startNode(t, nodes[goes]) })
	t.Cleanup(powerOn)
	c.AwaitCondition(t, healWithin, "AllMembersReady", "False")
	c.AwaitCondition(t, healWithin, "Ready", "True")
	harness.Consistently(t, 20*time.Second, "no other Pod goes", func(ctx context.Context) error {
		for member, uid := range before {
			pod, err := c.Pod(ctx, member)
			if client.IgnoreNotFound(err) != nil {
				return harness.NoAnswer(err)
			}
			if member != goes && (err != nil || string(pod.UID) != uid || pod.DeletionTimestamp != nil) {
				return fmt.Errorf("Pod %s went next to that of %s (%w)", member, goes, err)
			}
		}
		return w.StoodStill(harness.NoticeableGap)
	})
	powerOn()
	c.AwaitCondition(t, healWithin, "Progressing", "False", "Reconciled")
	same(t, view, c.Agree(t, 3, healWithin))
	servedOn(t, w)
	for member, uid := range podsOf(t, c, view) {
		if uid == before[member] {
			t.Errorf("Pod %s is the one that was there before", member)
		}
	}
	w.Stop(t, c.Etcd(t))
}

// TestCutOffPodNeverSharesVolume: a Pod on a node that is cut off and its successor never share a volume.
// The volume is one that any node can mount, so that a successor may start elsewhere while the former Pod still runs.
func TestCutOffPodNeverSharesVolume(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.StorageClass(lab.NetworkClass))
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	member := view.Follower()
	former := c.MustPod(t, member)
	etcd := c.Process(t, member, harness.Etcd)
	if err := rig.Lab.Partition(t.Context(), former.Spec.NodeName, lab.ControlPlane); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { heal(t) })
	harness.Eventually(t, healWithin, "node "+former.Spec.NodeName+" is given up", func(ctx context.Context) error {
		return notReady(ctx, former.Spec.NodeName)
	})
	forceDelete(t, c, member)
	successor := c.MustPod(t, member)

	t.Run("the successor waits for as long as the former etcd runs", func(t *testing.T) {
		harness.Eventually(t, healWithin, "the successor's launch runs", func(context.Context) error {
			pids, err := harness.Processes(string(successor.UID), harness.Launch)
			if err == nil && len(pids) != 1 {
				return fmt.Errorf("processes %v", pids)
			}
			return err
		})
		waits(t, c, member)
		if now, err := harness.Processes(string(former.UID), harness.Etcd); err != nil || len(now) != 1 || now[0] != etcd {
			t.Errorf("the former etcd runs as %v, want %d still (%v)", now, etcd, err)
		}
		if c.VolumeOf(t, member).Has(t, "data.*") {
			harness.Unsafe(t, "data was quarantined under a running etcd")
		}
	})

	t.Run("it takes over the same member when the former Pod is gone", func(t *testing.T) {
		heal(t)
		harness.Eventually(t, healWithin, "the end of the former etcd", func(context.Context) error {
			pids, err := harness.Processes(string(former.UID), harness.Etcd)
			if err == nil && len(pids) > 0 {
				return fmt.Errorf("processes %v", pids)
			}
			return err
		})
		same(t, view, c.Agree(t, 3, healWithin))
	})
	w.Stop(t, c.Etcd(t))
}

func startAPIServer(t *testing.T) {
	t.Helper()
	if err := rig.Lab.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("start the API server: %v", err)
	}
}

func startNode(t *testing.T, node string) {
	t.Helper()
	if err := rig.Lab.StartNode(context.WithoutCancel(t.Context()), node); err != nil {
		t.Errorf("power on node %s: %v", node, err)
	}
}

func heal(t *testing.T) {
	t.Helper()
	if err := rig.Lab.Heal(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("heal the partition: %v", err)
	}
}

func notReady(ctx context.Context, name string) error {
	node := &corev1.Node{}
	if err := rig.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeUnreachable && taint.Effect == corev1.TaintEffectNoSchedule {
			return nil
		}
	}
	return fmt.Errorf("taints are %v", node.Spec.Taints)
}
