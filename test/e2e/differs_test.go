package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// replacedWithin is how soon after a comparison a member whose data differs has the data of the others and votes.
const replacedWithin = time.Minute

// TestDifferingMemberReplaced: a member whose data differs is replaced under a writer.
// One byte in the database of a follower changes. The next leader's agent compares the members, and the agent of the follower replaces
// it. A writer notices nothing, and the former data is kept.
func TestDifferingMemberReplaced(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.AwaitMembers(t, 3, formWithin)
	const value = "value of which one byte changes on one disk"
	etcd := c.Etcd(t)
	for _, key := range []string{"damaged", "later", "last"} { // a difference in the last revision could not be confirmed
		if _, err := etcd.Put(t.Context(), key, map[bool]string{true: value, false: "intact"}[key == "damaged"]); err != nil {
			t.Fatal(err)
		}
	}
	differing := view.Follower()
	volume := c.VolumeOf(t, differing)
	volume.FlipByte(t, value)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 50, scaleWithin)
	began := time.Now()
	for _, member := range c.MemberNames(t) {
		if member != differing && member != view.Leader() {
			c.MoveLeader(t, member) // its agent compares when it begins to lead
		}
	}
	harness.Eventually(t, healWithin, differing+" votes under another ID", func(ctx context.Context) error {
		m, err := c.Member(ctx, differing)
		if err == nil && (m.ID == 0 || leases.FormatID(m.ID) == view.Members[differing].ID || m.Role != leases.RoleMember || m.DataDiffers()) {
			err = fmt.Errorf("its Lease says %s, and %+v", m.HolderIdentity(), m.Differs)
		}
		return err
	})
	t.Logf("replaced %s after leadership moved", time.Since(began).Round(time.Second))
	if took := time.Since(began); took > replacedWithin {
		t.Errorf("the member was replaced after %s, want %s at most", took.Round(time.Second), replacedWithin)
	}
	if !volume.Has(t, "data.quarantine-*-differs") {
		t.Error("the former data is not kept")
	}
	after := c.Agree(t, 3, healWithin)
	replaced(t, view, after, differing)
	w.AwaitWrites(t, 50, scaleWithin)
	w.Stop(t, c.Etcd(t))
	harness.Eventually(t, healWithin, differing+" has the value", func(ctx context.Context) error {
		got, err := c.Etcd(t, differing).Get(ctx, "damaged")
		if err == nil && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != value) {
			err = errors.New("it has another one")
		}
		return err
	})
}
