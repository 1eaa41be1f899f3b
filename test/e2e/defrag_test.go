package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

const (
	// defragWithin is twice the six steps of three members, one each minute: two followers, the transfer of leadership, a look of the new
	// leader, and its step.
	defragWithin = 12 * time.Minute
	// fullWithin adds what a full database waits for: revisions of five minutes, and a compaction.
	fullWithin = 2 * defragWithin
	// fragmentMiB is what a story writes and deletes, in values of a MiB. It is three times minFree.
	fragmentMiB = 24
	minFree     = 8 << 20 // bytes
	// smallQuota is that of a database that a story fills, in bytes.
	smallQuota = 32 << 20
)

// defragmentsSoon lowers the thresholds to what a story writes in seconds. A slow machine must not elect another leader meanwhile.
func defragmentsSoon(c *v1alpha1.EtcdCluster) {
	c.Spec.Etcd.ElectionTimeout = &metav1.Duration{Duration: 10 * time.Second}
	c.Spec.Defragmentation = &v1alpha1.DefragmentationSpec{MinFreePercent: new(int32(30)), MinFreeBytes: resource.NewQuantity(minFree, resource.BinarySI)}
}

// Most of three databases is free after a compaction under a writer. The leader's agent defragments the followers, moves the leadership, and
// the next leader's agent defragments the former leader.
func TestFragmentedDatabasesShrink(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, defragmentsSoon)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 50, time.Minute)
	fragment(t, c.Etcd(t))
	w.Gap()
	notes := map[string]leases.Defragmentation{}
	stories.Resting(t, func() {
		harness.Eventually(t, defragWithin, "the Leases report all defragmentations", func(ctx context.Context) error {
			for name := range view.Members {
				lease, err := c.Member(ctx, name)
				if err != nil {
					return err
				}
				if notes[name] = lease.Defragmentation; notes[name].Result == "" {
					return fmt.Errorf("that of %s reports none, and the others %+v", name, notes)
				}
			}
			return nil
		})
	})
	gap, err := w.StoodStillFor(harness.NoticeableGap)
	if err != nil {
		t.Error(err)
	}
	after := c.Agree(t, 3, healWithin)
	former := view.Leader()
	if after.Leader() == former {
		t.Errorf("%s leads still, and was defragmented", former)
	}
	for name, note := range notes {
		if note.Result != "defragmented" || note.Before < fragmentMiB<<20 || note.After >= minFree {
			t.Errorf("the Lease of %s reports %+v", name, note)
		}
		if name != former && !note.At.Before(notes[former].At) {
			t.Errorf("follower %s was defragmented at %s, and the leader at %s", name, note.At, notes[former].At)
		}
		t.Logf("%s: %.1f MiB before, %.1f MiB after, it stopped for %s", name, mib(note.Before), mib(note.After), note.Took)
	}
	t.Logf("longest time without an acknowledged write: %s", gap.Round(time.Millisecond))
	for name, size := range sizesOf(t, c) {
		if size >= minFree {
			t.Errorf("the database of %s has %.1f MiB", name, mib(size))
		}
	}
	w.Stop(t, c.Etcd(t))
}

// A client writes over the same keys until etcd raises the alarm NOSPACE. With the default policy, the agents compact what is five minutes
// old, defragment all members and disarm the alarm. Meanwhile etcd serves reads and deletes.
func TestFullDatabasesServeAgain(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, defragmentsSoon, func(c *v1alpha1.EtcdCluster) {
		c.Spec.Etcd.QuotaBackendBytes = resource.NewQuantity(smallQuota, resource.BinarySI)
	})
	view := c.Agree(t, 3, formWithin)
	etcd := c.Etcd(t)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 50, time.Minute)
	fillToQuota(t, etcd)
	began, before := time.Now(), sizesOf(t, c)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonAlarmRaised)
	deleted := 0
	stories.Resting(t, func() {
		harness.Eventually(t, fullWithin, "etcd accepts writes again", func(ctx context.Context) error {
			_, err := etcd.Put(ctx, "full", "")
			if !errors.Is(err, rpctypes.ErrNoSpace) {
				return err
			}
			// etcd counts what a compaction freed at the next commit, so a client deletes a key at times.
			_, failed := etcd.Delete(ctx, fillKey(deleted%fillKeys))
			if failed == nil {
				deleted++
			}
			return errors.Join(err, failed)
		})
	})
	if deleted == 0 {
		t.Error("etcd did not delete a key while it refused writes")
	}
	t.Logf("etcd refused writes for %s", time.Since(began).Round(time.Second))
	for name, size := range sizesOf(t, c) {
		t.Logf("%s: %.1f MiB before, %.1f MiB after", name, mib(before[name]), mib(size))
		if size > smallQuota/10*9 {
			t.Errorf("the database of %s has %.1f MiB", name, mib(size))
		}
	}
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, "False")
	w.AwaitWrites(t, 100, time.Minute)
	after := c.Agree(t, 3, healWithin)
	same(t, view, after)
	w.Stop(t, etcd)
}

// fragment writes large values, deletes them and compacts.
func fragment(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	const prefix = "/large/"
	value := strings.Repeat("x", 1<<20)
	for i := range fragmentMiB {
		harness.Eventually(t, healWithin, "a large value", func(ctx context.Context) error {
			_, err := etcd.Put(ctx, fmt.Sprint(prefix, i), value)
			return err
		})
	}
	harness.Eventually(t, healWithin, "the large values are compacted", func(ctx context.Context) error {
		answer, err := etcd.Delete(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		_, err = etcd.Compact(ctx, answer.Header.Revision, clientv3.WithCompactPhysical())
		return err
	})
}

// fillKeys is how many keys the transactions of fillToQuota write: the most that etcd accepts in one (embed, DefaultMaxTxnOps).
const fillKeys = 128

func fillKey(i int) string { return fmt.Sprintf("/full/%03d", i) }

// fillToQuota writes over the same keys until etcd raises the alarm. All but the last revision is history.
func fillToQuota(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	var puts []clientv3.Op
	for i := range fillKeys {
		puts = append(puts, clientv3.OpPut(fillKey(i), strings.Repeat("x", 1000)))
	}
	harness.Eventually(t, healWithin, "etcd refuses writes", func(ctx context.Context) error {
		for {
			switch _, err := etcd.Txn(ctx).Then(puts...).Commit(); {
			case errors.Is(err, rpctypes.ErrNoSpace):
				return nil
			case err != nil:
				return err
			}
		}
	})
}

// sizesOf returns the sizes of the members' databases, in bytes.
func sizesOf(t *testing.T, c *harness.Cluster) map[string]int64 {
	t.Helper()
	sizes, etcd := map[string]int64{}, c.Etcd(t)
	for _, member := range c.MemberNames(t) {
		harness.Eventually(t, healWithin, "the size of "+member, func(ctx context.Context) error {
			status, err := etcd.Status(ctx, harness.Endpoint(member))
			if err == nil {
				sizes[member] = status.DbSize
			}
			return err
		})
	}
	return sizes
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
