package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// maxWait is how long a member is watched that must not start: several times the two or three seconds that a start takes.
const maxWait = 8 * time.Second

func TestClusterIsNeverFormedTwice(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)
	record, err := c.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seed := record.Seed
	holds := map[string]*harness.Hold{}
	for _, member := range record.Members {
		holds[member] = c.HoldDown(t, member)
	}
	c.VolumeOf(t, seed).Wipe(t)

	t.Run("an emptied seed waits while all other members are down", func(t *testing.T) {
		former := string(c.MustPod(t, seed).UID)
		holds[seed].Release(t)
		awaitSuccessor(t, c, seed, former)
		waits(t, c, seed)
	})

	t.Run("an emptied seed waits although the record was deleted by hand", func(t *testing.T) {
		c.Delete(t, &coordinationv1.Lease{}, leases.RecordName(c.Name))
		awaitRecord(t, c, view)
		deletePod(t, c, seed) // a start from the first question on
		waits(t, c, seed)
	})

	t.Run("the others come back and the emptied seed joins them under a new ID", func(t *testing.T) {
		for member, hold := range holds {
			if member != seed {
				hold.Release(t)
			}
		}
		after := awaitReplacement(t, c, seed, view)
		replaced(t, view, after, seed)
		view = after
	})
	w.Stop(t, c.Etcd(t))

	t.Run("all Leases are deleted and come back, and no member is removed", func(t *testing.T) {
		err := c.Rig.Client.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(c.Namespace))
		if err != nil {
			t.Fatal(err)
		}
		awaitRecord(t, c, view)
		same(t, view, c.Agree(t, 3, healWithin))
		stories.Resting(t, func() {
			harness.Consistently(t, c.AgentTimings(t).SuperfluousGrace+15*time.Second, "all members listed", safely(t, listed(c.Etcd(t), view)))
		})
		same(t, view, c.Agree(t, 3, healWithin))
	})
	w.Verify(t, c.Etcd(t))
}

func TestLeasesEditedToNonsenseOrderNothing(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.EtcdService(t))

	t.Run("a member Lease is nonsense until its agent renews it", func(t *testing.T) {
		edit(t, c, view.Follower(), func(l *coordinationv1.Lease) {
			nonsense := "not a record"
			l.Spec.HolderIdentity = &nonsense
		})
		same(t, view, c.Agree(t, 3, healWithin))
	})

	t.Run("a record that is nonsense is said to be, and the cluster serves on", func(t *testing.T) {
		var good *coordinationv1.Lease
		edit(t, c, leases.RecordName(c.Name), func(l *coordinationv1.Lease) {
			good = l.DeepCopy()
			l.Annotations[leases.Prefix+"phase"] = "Nonsense"
		})
		c.AwaitCondition(t, healWithin, "Degraded", "True", leases.RecordName(c.Name))
		// An etcd that ends meanwhile comes back: its own data say who it is.
		killEtcd(t, c, view.Follower())
		harness.Consistently(t, maxWait, "all members listed", safely(t, listed(c.Etcd(t, view.Leader()), view)))
		edit(t, c, leases.RecordName(c.Name), func(l *coordinationv1.Lease) { l.Annotations = good.Annotations })
		same(t, view, c.Agree(t, 3, healWithin))
		c.AwaitCondition(t, healWithin, "Degraded", "False")
	})
	w.Stop(t, c.Etcd(t))
}

// waits checks that a member's agent says why it waits and that no etcd starts.
func waits(t *testing.T, c *harness.Cluster, member string) {
	t.Helper()
	uid := string(c.MustPod(t, member).UID)
	harness.Eventually(t, healWithin, member+" says what it waits for", func(ctx context.Context) error {
		m, err := c.Member(ctx, member)
		if err == nil && (m.Reason == "" || m.PodUID != uid) {
			return fmt.Errorf("its Lease says rule %q, reason %q, data %q of Pod %s", m.Rule, m.Reason, m.Data, m.PodUID)
		}
		return err
	})
	harness.Consistently(t, maxWait, member+" starts no etcd", func(context.Context) error {
		pids, err := harness.Processes(uid, harness.Etcd)
		if err == nil && len(pids) > 0 {
			err = fmt.Errorf("etcd runs as process %v", pids)
			harness.Unsafe(t, "%s must not start: %v", member, err)
		}
		return err
	})
}

// awaitRecord waits until the record is back, as that of the cluster that was.
func awaitRecord(t *testing.T, c *harness.Cluster, view harness.View) {
	t.Helper()
	harness.Eventually(t, healWithin, "the record of "+c.String(), func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err == nil && (record.Phase != leases.PhaseFormed || leases.FormatID(record.ClusterID) != view.ClusterID) {
			return fmt.Errorf("it says %s with cluster ID %x", record.Phase, record.ClusterID)
		}
		return err
	})
}

// listed checks that etcd lists exactly the members of a view, under their IDs.
func listed(etcd *clientv3.Client, view harness.View) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := etcd.MemberList(ctx)
		if err != nil {
			return harness.NoAnswer(err)
		}
		if len(list.Members) != len(view.Members) {
			return fmt.Errorf("etcd lists %d members, want %d", len(list.Members), len(view.Members))
		}
		for _, m := range list.Members {
			if got, want := leases.FormatID(m.ID), view.IDs()[m.Name]; got != want {
				return fmt.Errorf("etcd lists %s under ID %s, want %s", m.Name, got, want)
			}
		}
		return nil
	}
}

// safely makes a look that must not find anything wrong a promise of safety.
func safely(t *testing.T, look func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := look(ctx)
		if err != nil && !harness.IsNoAnswer(err) {
			harness.Unsafe(t, "%v", err)
		}
		return err
	}
}

// edit changes a Lease as a user with kubectl edit does.
func edit(t *testing.T, c *harness.Cluster, name string, change func(*coordinationv1.Lease)) {
	t.Helper()
	harness.Eventually(t, healWithin, "an edit of Lease "+name, func(ctx context.Context) error {
		lease, err := c.Lease(ctx, name)
		if err != nil {
			return err
		}
		change(lease)
		return c.Rig.Client.Update(ctx, lease)
	})
}

// forceDelete removes a Pod's object without waiting for its node.
func forceDelete(t *testing.T, c *harness.Cluster, member string) {
	t.Helper()
	uid := string(c.MustPod(t, member).UID)
	c.Delete(t, &corev1.Pod{}, member, client.GracePeriodSeconds(0))
	awaitSuccessor(t, c, member, uid)
}
