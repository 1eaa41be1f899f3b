package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// foundWithin is how soon after a comparison begins the Lease of a member says that its data differs.
const foundWithin = 10 * time.Second

// One byte changes in the database of the leader of five members, and then of two of five at once, each another byte.
// The agents replace one member after another. A writer notices an election at most, and the former data is kept.
func TestDifferingMembersOfFiveReplaced(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Replicas(5), withTLSAndAuth)
	view := awaitSecured(t, c, 5)
	t.Run("the leader", func(t *testing.T) {
		view = differingLeaderIsReplaced(t, c, view)
	})
	if t.Failed() {
		return
	}
	t.Run("two members", func(t *testing.T) {
		var differing []string
		for _, member := range c.MemberNames(t) {
			if member != view.Leader() && len(differing) < 2 {
				differing = append(differing, member)
			}
		}
		volumes := differ(t, c, "two", differing...)
		w := harness.Write(t, c.EtcdService(t))
		w.AwaitWrites(t, 20, scaleWithin)
		began := goodLeads(t, c, view, differing...)
		view = replacesEach(t, c, view, began, differing...)
		keepsFormerData(t, c, view, "two", volumes)
		servedThroughElections(t, w)
		w.Stop(t, c.Etcd(t))
	})
}

// One byte changes in a database of three members: the leader's, one in the middle of a rolling update, and one while the third member is
// away. Two members that differ are a tie: nothing is replaced or removed until the third one is back and makes a majority. In the end, no
// two members have the same data, and the page is followed.
func TestDataOfThreeMembersThatDiffers(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Named(demo))
	view := c.AwaitMembers(t, 3, formWithin)
	for _, part := range []struct {
		name string
		do   func(*testing.T, *harness.Cluster, harness.View) harness.View
	}{
		{"the leader", differingLeaderIsReplaced},
		{"a good member starts next to a differing one", goodStartsNextToDiffering},
		{"a rolling update", rollsNextToDiffering},
		{"one of two, and the third is away", tieWaitsForTheThird},
		{"each of the three", youDecide},
	} {
		if !t.Run(part.name, func(t *testing.T) { view = part.do(t, c, view) }) {
			return
		}
	}
}

// differingLeaderIsReplaced changes a byte of a follower, which then leads: its agent compares the members and finds itself.
func differingLeaderIsReplaced(t *testing.T, c *harness.Cluster, view harness.View) harness.View {
	t.Helper()
	differing := view.Follower()
	volumes := differ(t, c, "leader", differing)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 20, scaleWithin)
	after := replacesEach(t, c, view, compares(t, c, differing), differing)
	keepsFormerData(t, c, after, "leader", volumes)
	servedThroughElections(t, w)
	w.Stop(t, c.Etcd(t))
	return after
}

// goodStartsNextToDiffering replaces the Pod of a good follower while no comparison has found the differing one. etcd's own check refuses that start.
func goodStartsNextToDiffering(t *testing.T, c *harness.Cluster, view harness.View) harness.View {
	t.Helper()
	differing := view.Follower()
	good := slices.DeleteFunc(allBut(t, c, differing), func(m string) bool { return m == view.Leader() })[0]
	volumes := differ(t, c, "start", differing)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 20, scaleWithin)
	former, began := string(c.MustPod(t, good).UID), time.Now()
	c.Delete(t, &corev1.Pod{}, good)
	harness.Eventually(t, healWithin, good+" votes in another Pod", func(ctx context.Context) error {
		pod, err := c.Pod(ctx, good)
		if err != nil || string(pod.UID) == former {
			return errors.Join(err, errors.New("the former Pod is there"))
		}
		return c.Answers(ctx, c.Etcd(t, good), good)
	})
	t.Logf("%s answered %s after its Pod was deleted", good, time.Since(began).Round(time.Second))
	after := replacesEach(t, c, view, time.Time{}, differing)
	keepsFormerData(t, c, after, "start", volumes)
	servedThroughElections(t, w)
	w.Stop(t, c.Etcd(t))
	return after
}

// rollsNextToDiffering replaces all Pods while one member differs.
func rollsNextToDiffering(t *testing.T, c *harness.Cluster, view harness.View) harness.View {
	t.Helper()
	differing, before := view.Follower(), podsOf(t, c, view)
	volumes := differ(t, c, "roll", differing)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 20, scaleWithin)
	began := time.Now()
	c.Edit(t, requests("103m"))
	harness.Eventually(t, 2*scaleWithin, "all Pods are replaced", func(ctx context.Context) error {
		for member := range view.Members {
			pod, err := c.Pod(ctx, member)
			if err != nil {
				return err
			}
			if string(pod.UID) == before[member] || pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "103m" {
				return fmt.Errorf("Pod %s was not replaced", member)
			}
		}
		return nil
	})
	c.AwaitCondition(t, scaleWithin, "Progressing", "False", "Reconciled")
	after := c.AwaitMembers(t, 3, healWithin)
	t.Logf("the rolling update took %s", time.Since(began).Round(time.Second))
	replaced(t, view, after, differing)
	keepsFormerData(t, c, after, "roll", volumes)
	servedThroughElections(t, w)
	w.Stop(t, c.Etcd(t))
	return after
}

// tieWaitsForTheThird changes a byte of one of two members while the third one is away.
func tieWaitsForTheThird(t *testing.T, c *harness.Cluster, view harness.View) harness.View {
	t.Helper()
	differing := view.Follower()
	away := slices.DeleteFunc(allBut(t, c, differing), func(m string) bool { return m == view.Leader() })[0]
	hold := c.HoldDown(t, away)
	volumes := differ(t, c, "tie", differing)
	w := harness.Write(t, c.Etcd(t, differing, view.Leader()))
	w.AwaitWrites(t, 20, scaleWithin)
	quarantined := len(volumes[differing].Quarantined(t))
	running := map[string]int{}
	for _, member := range []string{differing, view.Leader()} {
		running[member] = c.Process(t, member, harness.Etcd)
	}
	compares(t, c, differing)
	took := harness.Eventually(t, healWithin, "the record says undecided", func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err == nil && record.Undecided == (leases.Undecided{}) {
			err = errors.New("it does not")
		}
		return err
	})
	t.Logf("the tie was found %s after the comparison began", took.Round(100*time.Millisecond))
	if took > foundWithin {
		t.Errorf("the tie was found after %s, want %s at most", took, foundWithin)
	}
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonDataUndecided)
	harness.Consistently(t, 20*time.Second, "nothing is replaced or removed", func(ctx context.Context) error {
		list, err := c.Etcd(t, view.Leader()).MemberList(ctx)
		if err != nil {
			return harness.NoAnswer(err)
		}
		if len(list.Members) != 3 {
			return fmt.Errorf("etcd has %d members", len(list.Members))
		}
		for member, pid := range running {
			if err := harness.Ended(pid); err == nil {
				return fmt.Errorf("etcd of %s (%d) ended", member, pid)
			}
		}
		if now := len(volumes[differing].Quarantined(t)); now != quarantined {
			return fmt.Errorf("the volume of %s has %d directories in quarantine, and had %d", differing, now, quarantined)
		}
		return nil
	})
	hold.Release(t)
	after := replacesEach(t, c, view, time.Time{}, differing)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, "False")
	keepsFormerData(t, c, after, "tie", volumes)
	w.Stop(t, c.Etcd(t))
	return after
}

// youDecide changes a byte of both followers, each time in another value, so that no two members have the same data. One follower leads, as
// the page does not know which data is good. Two members are equal when the page has replaced one, and the agents replace the third.
func youDecide(t *testing.T, c *harness.Cluster, view harness.View) harness.View {
	t.Helper()
	good := view.Leader()
	differing := allBut(t, c, good)
	volumes := differ(t, c, "decide", differing...)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 20, scaleWithin)
	compares(t, c, differing[0])
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonDataUndecided)
	p := openPage(t, "how-to/rescue/data-differs.md", c)
	p.replaced["<member>"], p.replaced["<member ID>"] = differing[0], view.Members[good].ID
	p.before["etcdctl --endpoints=http://localhost:2379 snapshot save <member>.db"] = func() { isForwarded(t) }
	p.follow(t)
	if saved, err := os.Stat(filepath.Join(p.dir, differing[0]+".db")); err != nil || saved.Size() == 0 {
		t.Errorf("the page saved no file of %s: %v", differing[0], err)
	}
	after := replacesEach(t, c, view, time.Time{}, differing...)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, "False")
	delete(volumes, differing[0]) // the page deleted its claim
	keepsFormerData(t, c, after, "decide", volumes)
	w.Stop(t, c.Etcd(t))
	return after
}

// isForwarded waits until kubectl forwards the port of the page.
func isForwarded(t *testing.T) {
	t.Helper()
	harness.Eventually(t, healWithin, "a port that kubectl forwards", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "localhost:2379")
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// differingValue is the value of a member's key of which one byte changes on the disk of that member.
func differingValue(part, member string) string {
	return fmt.Sprintf("value of %s of %s, of which one byte changes on one disk", part, member)
}

func differingKey(part, member string) string { return "/differing/" + part + "/" + member }

// differ changes one byte in the database of each of the members, and each time in another value. Nothing writes meanwhile.
func differ(t *testing.T, c *harness.Cluster, part string, members ...string) map[string]harness.Volume {
	t.Helper()
	etcd := c.Etcd(t)
	put := func(key, value string) {
		harness.Eventually(t, scaleWithin, "a write of "+key, func(ctx context.Context) error {
			_, err := etcd.Put(ctx, key, value)
			return err
		})
	}
	for _, member := range members {
		put(differingKey(part, member), differingValue(part, member))
	}
	put("/differing/later", part) // a difference in the last revision could not be confirmed
	put("/differing/last", part)
	volumes := map[string]harness.Volume{}
	for _, member := range members {
		volumes[member] = c.VolumeOf(t, member)
		volumes[member].FlipByte(t, differingValue(part, member))
	}
	// On a busy machine, etcd can have the page in memory for longer than at rest, and write it again.
	for i, again := 0, true; again; i++ {
		last := fmt.Sprintf("the writes of %s after the change: %d", part, i)
		put("/differing/after", last)
		again = false
		for _, member := range members {
			if volumes[member].Keeps(t, differingValue(part, member), last) {
				t.Logf("etcd of %s wrote the value again", member)
				volumes[member].FlipByte(t, differingValue(part, member))
				again = true
			}
		}
	}
	return volumes
}

// goodLeads moves leadership to a member that is not differing. Its agent compares when it begins to lead.
func goodLeads(t *testing.T, c *harness.Cluster, view harness.View, differing ...string) (began time.Time) {
	t.Helper()
	good := slices.DeleteFunc(c.MemberNames(t), func(m string) bool { return m == view.Leader() || slices.Contains(differing, m) })
	return compares(t, c, good[0])
}

// compares moves leadership to a member, and returns when its agent began to do the duties of the leader, of which the comparison is one.
func compares(t *testing.T, c *harness.Cluster, member string) (began time.Time) {
	t.Helper()
	c.MoveLeader(t, member)
	harness.Eventually(t, healWithin, "the agent of "+member+" has the Lease of the leader", func(ctx context.Context) error {
		lease, err := c.Lease(ctx, leases.LeaderName(c.Name))
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != member) {
			err = errors.New("another one has it")
		}
		return err
	})
	return time.Now()
}

// replacesEach waits until each differing member is found and then votes under another ID. The first one is found and replaced within the bounds
// after the comparison began, or replaced within the bound after it was found if that time is not known. A later one is replaced within the
// bound after the one before.
func replacesEach(t *testing.T, c *harness.Cluster, before harness.View, began time.Time, differing ...string) harness.View {
	t.Helper()
	left, called := slices.Clone(differing), time.Now()
	for from := began; len(left) > 0; from = time.Now() {
		member := awaitMark(t, c, before, left)
		if from.IsZero() {
			t.Logf("%s was found after %s", member, time.Since(called).Round(100*time.Millisecond))
			from = time.Now()
		}
		found := time.Since(from)
		if from.Equal(began) && found > foundWithin {
			t.Errorf("%s was found after %s, want %s at most", member, found.Round(100*time.Millisecond), foundWithin)
		}
		awaitVotes(t, c, before, member)
		took := time.Since(from)
		t.Logf("%s was found after %s, and replaced after %s", member, found.Round(100*time.Millisecond), took.Round(100*time.Millisecond))
		if took > replacedWithin {
			t.Errorf("%s was replaced after %s, want %s at most", member, took.Round(time.Second), replacedWithin)
		}
		left = slices.DeleteFunc(left, func(m string) bool { return m == member })
	}
	after := c.Agree(t, len(before.Members), healWithin)
	for name, id := range before.IDs() {
		if now := after.IDs()[name]; (now != id) != slices.Contains(differing, name) {
			harness.Unsafe(t, "%s has ID %s and had %s; differing were %v", name, now, id, differing)
		}
	}
	return after
}

// awaitMark waits until the Lease of one of the members says that its data differs.
func awaitMark(t *testing.T, c *harness.Cluster, before harness.View, members []string) (found string) {
	t.Helper()
	harness.Eventually(t, healWithin, fmt.Sprintf("one of %v is found", members), func(ctx context.Context) error {
		for _, member := range members {
			m, err := c.Member(ctx, member)
			if err != nil {
				return err
			}
			if m.Differs.MemberID == before.IDs()[member] || m.ID != 0 && leases.FormatID(m.ID) != before.IDs()[member] {
				found = member
				return nil
			}
		}
		return errors.New("no Lease says so")
	})
	return found
}

// awaitVotes waits until the member votes under another ID than before.
func awaitVotes(t *testing.T, c *harness.Cluster, before harness.View, differing string) {
	t.Helper()
	harness.Eventually(t, healWithin, differing+" votes under another ID", func(ctx context.Context) error {
		m, err := c.Member(ctx, differing)
		if err == nil && (m.ID == 0 || leases.FormatID(m.ID) == before.IDs()[differing] || m.Role == leases.RoleLearner || m.DataDiffers()) {
			err = fmt.Errorf("its Lease says %s, and %+v", m.HolderIdentity(), m.Differs)
		}
		return err
	})
}

// keepsFormerData checks that the former data of the members is in quarantine, and that all members have the values and equal hashes.
func keepsFormerData(t *testing.T, c *harness.Cluster, after harness.View, part string, volumes map[string]harness.Volume) {
	t.Helper()
	for member, volume := range volumes {
		if !volume.Has(t, "data.quarantine-*-differs") {
			t.Errorf("the former data of %s is not kept", member)
		}
		harness.Eventually(t, healWithin, member+" has the value", func(ctx context.Context) error {
			got, err := c.Etcd(t, member).Get(ctx, differingKey(part, member), clientv3.WithSerializable())
			if err == nil && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != differingValue(part, member)) {
				err = errors.New("it has another one")
			}
			return err
		})
	}
	holdTheSame(t, c.Etcd(t), after)
}

// servedThroughElections checks that writes stood still no longer than an election permits.
func servedThroughElections(t *testing.T, w *harness.Writer) {
	t.Helper()
	gap, err := w.StoodStillFor(harness.ElectionGap)
	if err != nil {
		t.Error(err)
	}
	t.Logf("the longest time without a write was %s", gap.Round(100*time.Millisecond))
}
