package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

var (
	scaleRounds = flag.Int("scale.rounds", 1, "random changes of scale, each with two faults")
	scaleSeed   = flag.Uint64("scale.seed", 0, "seed of the random changes of scale; 0 for one that the commit gives")
)

func TestTwoFaultsInTheMiddleOfAChangeOfScale(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)

	t.Run("3 to 5: the leader's etcd and a joiner's agent are killed", func(t *testing.T) {
		c.Scale(t, 5)
		await(t, c, "a fourth member", joined(4))
		c.Kill(t, view.Leader(), harness.Etcd)
		for _, name := range c.MemberNames(t) {
			if _, old := view.Members[name]; !old {
				c.Kill(t, name, harness.Agent)
				break
			}
		}
		after := c.AwaitMembers(t, 5, scaleWithin)
		survived(t, view, after)
		view = after
	})

	t.Run("5 to 3: the leader's agent and a follower's etcd are killed", func(t *testing.T) {
		c.Scale(t, 3)
		await(t, c, "a member is asked to go", marked("requested", "removing", "done"))
		c.TryKill(t, view.Leader(), harness.Agent) // it may be the one that goes, where it led no more
		if follower := bystander(t, c, view); follower != "" {
			c.TryKill(t, follower, harness.Etcd)
		}
		after := c.AwaitMembers(t, 3, scaleWithin)
		survived(t, view, after)
	})
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// bystander is a follower whose Lease bears no mark, or empty.
func bystander(t *testing.T, c *harness.Cluster, view harness.View) string {
	t.Helper()
	for name, m := range view.Members {
		lease, err := c.Lease(t.Context(), name)
		if err == nil && m.Role == leases.RoleMember && lease.Annotations[leases.AnnotationRemoval] == "" {
			return name
		}
	}
	return ""
}

// TestDruidTakeoverDuringScaleChange: a killed druid is taken over in the middle of a change of scale.
// It kills what all stories share, so it runs alone.
func TestDruidTakeoverDuringScaleChange(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	for _, change := range []struct {
		name    string
		to      int
		reached phase
	}{
		{"3 to 5, when the first Pod is made", 5, podsMade(4)},
		{"5 to 3, when a member is asked to go", 3, marked("requested", "removing", "done")},
	} {
		t.Run(change.name, func(t *testing.T) {
			c.Scale(t, int32(change.to))
			await(t, c, change.name, change.reached)
			t.Logf("another druid leads after %s", rig.KillDruid(t).Round(100*time.Millisecond))
			after := c.AwaitMembers(t, change.to, scaleWithin)
			survived(t, view, after)
			view = after
		})
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// Each round changes the number of members and breaks two things at a moment drawn by lot: one that takes a voter away for
// a while, one that does not. It never goes through two voters, where any voter that is away costs the quorum, anyone who took
// it away. By hand, with another seed: go test ./test/e2e -run RandomChanges -timeout 0 -args -scale.rounds 100 -scale.seed N
func TestRandomChangesOfScaleWithTwoFaults(t *testing.T) {
	stories.Begin(t)
	seed := seedOr(*scaleSeed)
	t.Logf("-scale.seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	c := rig.Apply(t)
	c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	sizes, at := []int{3, 5, 7}, 3
	for round := range *scaleRounds {
		to := sizes[draw.IntN(len(sizes))]
		faults := []fault{costly[draw.IntN(len(costly))], cheap[draw.IntN(len(cheap))]}
		draw.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		delay := time.Duration(draw.IntN(8)) * time.Second
		t.Run(fmt.Sprintf("%d: %d to %d, after %s %s, then %s", round, at, to, delay, faults[0].name, faults[1].name), func(t *testing.T) {
			c.Scale(t, int32(to))
			served(t, w, delay)
			for _, f := range faults {
				f.happens(t, c, draw)
			}
			c.AwaitMembers(t, to, scaleWithin)
		})
		at = to
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// served lets time pass in which writes were acknowledged.
func served(t *testing.T, w *harness.Writer, span time.Duration) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < span; {
		w.AwaitWrites(t, 10, time.Minute)
	}
}

type fault struct {
	name    string
	happens func(*testing.T, *harness.Cluster, *rand.Rand)
}

var (
	costly = []fault{
		{"an etcd is killed", kill(harness.Etcd)},
		{"a launch is killed", kill(harness.Launch)},
		{"a Pod is deleted", func(t *testing.T, c *harness.Cluster, draw *rand.Rand) {
			if member := anyOf(t, c, draw); member != "" {
				c.Delete(t, &corev1.Pod{}, member)
			}
		}},
	}
	cheap = []fault{
		{"an agent is killed", kill(harness.Agent)},
		{"leadership moves", func(t *testing.T, c *harness.Cluster, draw *rand.Rand) {
			if member := anyOf(t, c, draw); member != "" {
				c.TryMoveLeader(t, member)
			}
		}},
		{"nothing", func(*testing.T, *harness.Cluster, *rand.Rand) {}},
	}
)

// kill is the end of a program of a member drawn by lot, if it runs.
func kill(program harness.Program) func(*testing.T, *harness.Cluster, *rand.Rand) {
	return func(t *testing.T, c *harness.Cluster, draw *rand.Rand) {
		if member := anyOf(t, c, draw); member != "" {
			c.TryKill(t, member, program)
		}
	}
}

// anyOf draws one of the members whose Pods exist and stay.
func anyOf(t *testing.T, c *harness.Cluster, draw *rand.Rand) string {
	t.Helper()
	var pods corev1.PodList
	if err := listMembers(t.Context(), c, &pods); err != nil {
		t.Fatal(err)
	}
	var staying []string
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			staying = append(staying, pod.Name)
		}
	}
	if len(staying) == 0 {
		return ""
	}
	slices.Sort(staying)
	return staying[draw.IntN(len(staying))]
}
