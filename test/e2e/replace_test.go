package e2e

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// TestNamedMembersReplacedFirst: members that the user names are replaced and leave first.
// A new member takes the place of the leader, and then of the only member. Between the two, the members leave that the user names, also
// the leader. No acknowledged write is lost, and etcd never has fewer voters than the spec requests.
func TestNamedMembersReplacedFirst(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.AwaitMembers(t, 3, formWithin)
	etcd := c.EtcdService(t)
	w, s := harness.Load(t, etcd), c.Sample(t)
	for _, size := range []int{3, 1} {
		t.Run(fmt.Sprintf("one of %d is replaced", size), func(t *testing.T) {
			w.Gap()
			named := view.Leader()
			annotate(t, c, v1alpha1.ReplaceAnnotation, named)
			awaitDeparture(t, c, etcd, named, size)
			after := c.AwaitMembers(t, size, scaleWithin)
			stayed(t, view, after, size-1)
			c.AwaitCondition(t, scaleWithin, v1alpha1.ConditionProgressing, "False", v1alpha1.ReasonReconciled)
			if err := w.StoodStill(harness.NoticeableGap); err != nil {
				t.Error(err)
			}
			view = after
		})
		if size == 1 {
			break
		}
		t.Run("the leader and another one leave first", func(t *testing.T) {
			follower := view.Follower()
			annotate(t, c, v1alpha1.LeaveFirstAnnotation, view.Leader()+","+follower)
			after := c.ScaleTo(t, 1, scaleWithin)
			stayed(t, view, after, 1)
			if _, stays := after.Members[view.Leader()]; stays {
				t.Errorf("%s stayed, which was to leave first", view.Leader())
			}
			view = after
		})
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

func annotate(t *testing.T, c *harness.Cluster, key, value string) {
	t.Helper()
	c.Edit(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

// awaitDeparture waits until the record does not list the member. All that time etcd has at least so many voters.
func awaitDeparture(t *testing.T, c *harness.Cluster, etcd *clientv3.Client, name string, voters int) {
	t.Helper()
	took := harness.Eventually(t, scaleWithin, "member "+name+" leaves", func(ctx context.Context) error {
		list, err := etcd.MemberList(ctx)
		if err != nil {
			return err
		}
		got := 0
		for _, m := range list.Members {
			if !m.IsLearner {
				got++
			}
		}
		if got < voters {
			harness.Unsafe(t, "etcd has %d voters while %s is replaced, want at least %d: %v", got, name, voters, list.Members)
		}
		record, err := c.Record(ctx)
		if err == nil && record.Lists(name) {
			return fmt.Errorf("the record lists %v, and etcd has %d voters", record.Members, got)
		}
		return err
	})
	t.Logf("member %s was replaced after %s", name, took)
}

// stayed fails the test unless the cluster is the same, and so many members are who they were.
func stayed(t *testing.T, before, after harness.View, want int) {
	t.Helper()
	both := 0
	for name, id := range before.IDs() {
		if after.IDs()[name] == id {
			both++
		}
	}
	if after.ClusterID != before.ClusterID || both != want {
		harness.Unsafe(t, "cluster %s with %v became %s with %v, want %d of its members", before.ClusterID, before.IDs(), after.ClusterID, after.IDs(), want)
	}
}
