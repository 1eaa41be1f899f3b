package e2e

import (
	"testing"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// A user who takes a change back gets what he had, wherever the change stood. A phase may be over before it is seen: then
// the change is reverted in the next one.

func TestScaleUpIsRevertedInEveryPhase(t *testing.T) {
	stories.Begin(t)
	revert(t, 3, 5, []stand{
		{"the names are recorded", recorded(5)},
		{"a Pod is made", podsMade(4)},
		{"a learner has joined", joined(4)},
		{"a fourth member votes", voters(4)},
	})
}

func TestScaleDownIsRevertedInEveryPhase(t *testing.T) {
	stories.Begin(t)
	revert(t, 5, 3, []stand{
		{"a member is asked to go", marked("requested", "removing", "done")},
		{"its removal is claimed", marked("removing", "done")},
		{"it is removed", either(marked("done"), podGoes(5))},
		{"its Pod goes", podGoes(5)},
	})
}

// stand of a change of scale.
type stand struct {
	name    string
	reached phase
}

func revert(t *testing.T, from, to int, stands []stand) {
	t.Helper()
	c := rig.Apply(t, harness.Replicas(int32(from)))
	view := c.AwaitMembers(t, from, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	for _, at := range stands {
		t.Run(at.name, func(t *testing.T) {
			c.Scale(t, int32(to))
			await(t, c, at.name, at.reached)
			after := c.ScaleTo(t, from, scaleWithin)
			if after.ClusterID != view.ClusterID {
				t.Errorf("got cluster ID %s, want %s as before", after.ClusterID, view.ClusterID)
			}
			view = after
		})
	}
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}
