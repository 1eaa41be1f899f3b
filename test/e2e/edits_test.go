package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

var (
	editRounds = flag.Int("edits.rounds", 1, "rounds of random edits of a spec, each to its end")
	editSeed   = flag.Uint64("edits.seed", 0, "seed of the random edits; 0 for one that the commit gives")
)

// Each round edits the spec up to four times at moments drawn by lot, whatever goes on, with a fault between that costs
// no voter, and waits until the last edit is reached. By hand, with another seed: go test ./test/e2e -run
// RandomEdits -timeout 0 -args -edits.rounds 20 -edits.seed N
func TestRandomEditsEndInTheLast(t *testing.T) {
	stories.Begin(t)
	seed := seedOr(*editSeed)
	t.Logf("-edits.seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 1))
	versions := []string{rig.EtcdVersion(t, "3.6"), rig.EtcdVersion(t, "3.7")}
	c := rig.Apply(t, harness.Version(versions[0]))
	view := c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	asked := map[string]bool{"100m": true} // requests of CPU, ever; the first is what druid adds
	for round := range *editRounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			w.Gap()
			for range 1 + draw.IntN(4) {
				cpu := fmt.Sprintf("%dm", 101+draw.IntN(4))
				asked[cpu] = true
				patch := fmt.Sprintf(`{"spec":{"replicas":%d,"version":%q,"resources":{"requests":{"cpu":%q}}}}`,
					3+2*draw.IntN(2), versions[draw.IntN(2)], cpu)
				wait, f := time.Duration(draw.IntN(12))*time.Second, cheap[draw.IntN(len(cheap))]
				t.Logf("%s; after %s %s", patch, wait, f.name)
				c.Edit(t, patch)
				served(t, w, wait)
				f.happens(t, c, draw)
			}
			begun := time.Now()
			want := reaches(t, c, asked)
			after := c.AwaitMembers(t, int(want.Replicas), upgradeWithin)
			survived(t, view, after)
			view = after
			t.Logf("reached after %s: %d members of %s", time.Since(begun).Round(100*time.Millisecond), want.Replicas, want.Version)
			if err := w.StoodStill(harness.NoticeableGap); err != nil {
				t.Error(err)
			}
			runsAs(t, c, view, want)
		})
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// reaches waits until druid says that the spec is reached, and returns it. Meanwhile no Pod is what no edit ever asked for.
func reaches(t *testing.T, c *harness.Cluster, asked map[string]bool) (want v1alpha1.EtcdClusterSpec) {
	t.Helper()
	harness.Eventually(t, upgradeWithin, "the last edit is reached", func(ctx context.Context) error {
		for _, member := range c.MemberNames(t) {
			pod, err := c.Pod(ctx, member)
			if err != nil {
				continue // it is replaced just now
			}
			cpu := ""
			if q, set := pod.Spec.Containers[0].Resources.Requests["cpu"]; set {
				cpu = q.String()
			}
			if !asked[cpu] {
				t.Errorf("Pod %s requests %s of CPU, which no edit asked for", member, cpu)
			}
		}
		var err error
		want, err = asAsked(ctx, c)
		return err
	})
	return want
}

// runsAs fails the test unless each member's Pod and etcd are what the spec asks for, and hold the same.
func runsAs(t *testing.T, c *harness.Cluster, view harness.View, want v1alpha1.EtcdClusterSpec) {
	t.Helper()
	etcd := c.Etcd(t)
	for member := range view.Members {
		got := c.MustPod(t, member).Spec.Containers[0]
		if got.Resources.Requests.Cpu().Cmp(*want.Resources.Requests.Cpu()) != 0 || !strings.HasSuffix(got.Image, want.Version) {
			t.Errorf("Pod %s runs %s and requests %s, want %s and %s", member, got.Image, got.Resources.Requests.Cpu(), want.Version, want.Resources.Requests.Cpu())
		}
		if status, err := etcd.Status(t.Context(), harness.Endpoint(member)); err != nil || status.Version != want.Version {
			t.Errorf("member %s: %+v, %v; want etcd %s", member, status, err, want.Version)
		}
	}
	holdTheSame(t, etcd, view)
}
