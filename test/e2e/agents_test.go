package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// nextDruid is the product's image by the name of a later release, and noDruid one that cannot be pulled.
const (
	nextDruid = "ghcr.io/etcd-druid/druid:next"
	noDruid   = "registry.invalid/druid:next"
)

// betweenAgents is the least time between the starts of two agents, but for what the kubelet's whole seconds round away: the one
// before has to have worked for ten.
const betweenAgents = 9 * time.Second

// runningEtcd is what an upgrade of druid and of the agents must leave alone.
type runningEtcd struct {
	Pod, Container, Install string
	Etcd                    int           // the process, and when it began
	Begun                   time.Duration // since the start of the machine
	Restarts                int32
}

func runningEtcds(t *testing.T, c *harness.Cluster, view harness.View) map[string]runningEtcd {
	t.Helper()
	lives := map[string]runningEtcd{}
	for member := range view.Members {
		pod, etcd := c.MustPod(t, member), c.Process(t, member, harness.Etcd)
		begun, err := harness.BegunAt(etcd)
		if err != nil {
			t.Fatal(err)
		}
		lives[member] = runningEtcd{
			Pod: string(pod.UID), Container: containerOf(pod, harness.ContainerEtcd).ContainerID,
			Install: containerOf(pod, "install").ContainerID, Etcd: etcd, Begun: begun,
			Restarts: containerOf(pod, harness.ContainerEtcd).RestartCount,
		}
	}
	return lives
}

func containerOf(pod *corev1.Pod, name string) corev1.ContainerStatus {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	if i := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return all[i]
	}
	return corev1.ContainerStatus{}
}

// They change druid, which all clusters share, so they run alone.

// TestDruidAndAgentUpgrade: druid and agents are upgraded under a writer.
func TestDruidAndAgentUpgrade(t *testing.T) {
	stories.Begin(t)
	c, w, view := beforeAnUpgrade(t)
	before := runningEtcds(t, c, view)
	w.Gap()
	druidIsUpgraded(t, c, view)
	view = stableAs(t, c, view)
	agentsAreUpgraded(t, c, w, view, before)

	// An etcd that ends is started by the launch of before, on the word of the agent of now.
	killEtcd(t, c, view.Follower())
	stableAs(t, c, view)
	if got := c.Restarts(t, view.Follower(), harness.ContainerEtcd); got != before[view.Follower()].Restarts {
		t.Errorf("etcd's container was restarted %d times, want %d", got, before[view.Follower()].Restarts)
	}
	w.Stop(t, c.Etcd(t))
}

// TestBadAgentImageStopsAtFollower: an agent image that does not exist stops at one follower.
func TestBadAgentImageStopsAtFollower(t *testing.T) {
	stories.Begin(t)
	c, w, view := beforeAnUpgrade(t)
	before := runningEtcds(t, c, view)
	w.Gap()
	begun := time.Now()
	since := func() time.Duration { return time.Since(begun).Round(100 * time.Millisecond) }
	rig.UpgradeDruid(t, nextDruid, noDruid)
	rolled := since()
	// The new druid waits until each member has renewed its Lease before it tries, and then until each has served for 10 s.
	var tried []string
	harness.Eventually(t, scaleWithin, "an agent that is given the image", func(context.Context) error {
		if tried = withBadAgent(t, c, view); len(tried) == 0 {
			return errors.New("none is")
		}
		return nil
	})
	given := since()
	// It gives the agent a minute to come up, as long as an image may take to be pulled.
	c.AwaitCondition(t, scaleWithin, "Progressing", "False", "AgentUpdateBlocked", noDruid, "--agent-image")
	c.AwaitCondition(t, scaleWithin, "Degraded", "True", "AgentNotRunning", noDruid)
	t.Logf("an image that does not exist was reported after %s: druid had rolled after %s, the first agent was given it after %s", since(), rolled, given)
	w.AwaitWrites(t, 100, time.Minute)
	if tried = withBadAgent(t, c, view); len(tried) != 1 || tried[0] == view.Leader() {
		t.Errorf("%v were given an image that does not exist, want one follower; %s leads", tried, view.Leader())
	}
	agentsAreUpgraded(t, c, w, view, before)
	w.Stop(t, c.Etcd(t))
}

// beforeAnUpgrade forms a cluster under a writer, and has druid's image by the name of a later release as well.
func beforeAnUpgrade(t *testing.T) (*harness.Cluster, *harness.Writer, harness.View) {
	t.Helper()
	tagNextDruid(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)
	return c, w, view
}

// tagNextDruid gives druid's image the name of a later release too, and has the rig restore druid after the test.
func tagNextDruid(t *testing.T) {
	t.Helper()
	if err := rig.Lab.TagImage(t.Context(), lab.DruidImage, nextDruid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rig.RestoreDruid(t) })
}

// agentsAreUpgraded gives druid, and druid the agents, another image, and fails the test if more than the agents was touched.
func agentsAreUpgraded(t *testing.T, c *harness.Cluster, w *harness.Writer, view harness.View, before map[string]runningEtcd) {
	t.Helper()
	agentsFollow(t, c, w, view, before, nextDruid, func() { rig.UpgradeDruid(t, nextDruid, nextDruid) })
}

// agentsFollow gives druid another image, waits until druid has given it to the agents, and fails the test if more than the agents was
// touched.
func agentsFollow(t *testing.T, c *harness.Cluster, w *harness.Writer, view harness.View, before map[string]runningEtcd, image string, upgrade func()) {
	t.Helper()
	begun := time.Now()
	upgrade()
	harness.Eventually(t, scaleWithin, "agents of "+image, func(ctx context.Context) error {
		for member := range view.Members {
			pod, err := c.Pod(ctx, member)
			if err != nil {
				return err
			}
			if s := containerOf(pod, "agent"); pod.Spec.InitContainers[0].Image != image || pod.Spec.InitContainers[1].Image != image ||
				s.State.Running == nil || s.State.Running.StartedAt.Time.Before(begun.Truncate(time.Second)) {
				return fmt.Errorf("the agent of %s is %+v", member, s)
			}
		}
		return nil
	})
	c.AwaitCondition(t, scaleWithin, "Progressing", "False", "Reconciled")
	after := stableAs(t, c, view)
	t.Logf("druid and three agents were upgraded after %s", time.Since(begun).Round(100*time.Millisecond))
	if diff := cmp.Diff(before, runningEtcds(t, c, view)); diff != "" {
		t.Errorf("an etcd, its container, its Pod, or the install was touched (-before +after):\n%s", diff)
	}
	inTurn(t, c, view, after)
	servedOn(t, w)
}

// withBadAgent are the members whose Pods ask for an agent of the image that does not exist.
func withBadAgent(t *testing.T, c *harness.Cluster, view harness.View) (found []string) {
	t.Helper()
	for member := range view.Members {
		if c.MustPod(t, member).Spec.InitContainers[1].Image == noDruid {
			found = append(found, member)
		}
	}
	return found
}

// anotherDruidLeads gives druid another image, and waits until a druid of that image leads. It gives the agents the image agents.
func anotherDruidLeads(t *testing.T, agents string) {
	t.Helper()
	former, err := rig.DruidPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rig.UpgradeDruid(t, nextDruid, agents)
	harness.Eventually(t, scaleWithin, "a druid that leads and was not there before", func(ctx context.Context) error {
		leader := rig.DruidLeader(t)
		if slices.ContainsFunc(former, func(pod corev1.Pod) bool { return pod.UID == leader.UID }) {
			return fmt.Errorf("%s leads", leader.Name)
		}
		return nil
	})
}

// druidIsUpgraded gives druid alone another image, and counts what that does to the members: nothing.
func druidIsUpgraded(t *testing.T, c *harness.Cluster, view harness.View) {
	t.Helper()
	before, begun := containersOf(t, c, view), time.Now()
	anotherDruidLeads(t, lab.DruidImage)
	c.Edit(t, `{"spec":{"progressDeadlineSeconds":601}}`) // it is taken up by the druid of now
	reconciled(t, c, scaleWithin)
	pods, restarts := 0, int32(0)
	for member, now := range containersOf(t, c, stableAs(t, c, view)) {
		if now.pod != before[member].pod {
			pods++
		}
		for name, count := range now.restarts {
			restarts += count - before[member].restarts[name]
		}
		if diff := cmp.Diff(before[member].ids, now.ids); diff != "" {
			t.Errorf("containers of %s (-before +after):\n%s", member, diff)
		}
	}
	t.Logf("druid was upgraded after %s: %d Pods of members replaced, %d containers restarted", time.Since(begun).Round(100*time.Millisecond), pods, restarts)
	if pods != 0 || restarts != 0 {
		t.Errorf("druid's upgrade replaced %d Pods of members and restarted %d containers, want 0", pods, restarts)
	}
}

// containers of a member's Pod.
type containers struct {
	pod      string
	ids      map[string]string
	restarts map[string]int32
}

func containersOf(t *testing.T, c *harness.Cluster, view harness.View) map[string]containers {
	t.Helper()
	all := map[string]containers{}
	for member := range view.Members {
		pod := c.MustPod(t, member)
		of := containers{string(pod.UID), map[string]string{}, map[string]int32{}}
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			of.ids[s.Name], of.restarts[s.Name] = s.ContainerID, s.RestartCount
		}
		all[member] = of
	}
	return all
}

// inTurn fails the test unless the agents started one after another, and the leader's last.
func inTurn(t *testing.T, c *harness.Cluster, before, after harness.View) {
	t.Helper()
	started := map[string]time.Time{}
	var order []string
	for member := range before.Members {
		started[member] = containerOf(c.MustPod(t, member), "agent").State.Running.StartedAt.Time
		order = append(order, member)
	}
	slices.SortFunc(order, func(a, b string) int { return started[a].Compare(started[b]) })
	for i := range order[1:] {
		if apart := started[order[i+1]].Sub(started[order[i]]); apart < betweenAgents {
			t.Errorf("the agents of %s and %s started %s apart", order[i], order[i+1], apart)
		}
	}
	if leader := before.Leader(); leader == after.Leader() && order[2] != leader {
		t.Errorf("the agents started in the order %v, want that of the leader %s last", order, leader)
	}
}
