package duties

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func TestTheMemberWhoseDataDiffersIsMarked(t *testing.T) {
	c := newCompared(t, names)
	c.flip(c.followers()[0])
	c.duties(c.leader, "mine")
	c.marks(c.followers()[0])
}

// The agents that follow must know whose backups can have the difference, also after that member has another ID.
func TestDifferedIDsAreReported(t *testing.T) {
	c := newCompared(t, names)
	differing := c.followers()[0]
	lease, err := c.store.Marks(t.Context(), differing)
	if err == nil {
		err = c.store.MarkDifference(t.Context(), differing, lease.LeaseVersion, leases.Difference{MemberID: "1f", Hash: "x", Majority: "y"})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.flip(c.leader)
	c.duties(c.leader, "mine")
	c.eventually("both IDs are reported", func() error {
		want := []uint64{0x1f, c.id(c.leader)}
		got := c.differed.Load()
		if got == nil {
			return errors.New("none is")
		}
		slices.Sort(*got)
		if !slices.Equal(*got, want) {
			return fmt.Errorf("%x are, want %x", *got, want)
		}
		return nil
	})
	followers := c.followers()
	majority := func() (ids []uint64, differ bool, err error) {
		cluster := uint64(c.members[followers[0]].Server.Cluster().ID())
		ids, differ, err = Majority(t.Context(), transport.NewClients(transport.Transport{}).Dial, c.endpoint(followers[0]), cluster)
		slices.Sort(ids)
		return ids, differ, err
	}
	ids, differ, err := majority()
	want := []uint64{c.id(followers[0]), c.id(followers[1])}
	slices.Sort(want)
	if err != nil || differ || !slices.Equal(ids, want) {
		t.Errorf("the majority is %x (%v), want %x", ids, err, want)
	}
	c.stop(followers[1])
	if ids, differ, err := majority(); !errors.Is(err, errNoMajority) || !differ {
		t.Errorf("with two members that differ, the majority is %x (%t, %v)", ids, differ, err)
	}
}

// A removal could leave only the bad copy: the leader's data differs, and a follower with good data is to be removed.
func TestNoGoodCopyIsRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		flip    func(c *compared) string
		down    bool // the member to remove
		removed bool
	}{
		"the leader differs":     {flip: func(c *compared) string { return c.leader }},
		"all are equal":          {removed: true},
		"the member is down":     {down: true, removed: true},
		"the member differs":     {flip: func(c *compared) string { return c.followers()[0] }, removed: true},
		"another member differs": {flip: func(c *compared) string { return c.followers()[1] }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompared(t, names)
			leaves := c.followers()[0]
			differing := ""
			if test.flip != nil {
				differing = test.flip(c)
				c.flip(differing)
			}
			d, id := &drainCluster{cluster: c.cluster}, c.id(leaves)
			if test.down {
				c.stop(leaves)
			}
			d.ask(leaves, "scale-down")
			c.duties(c.leader, "mine")
			if test.removed {
				d.done(leaves, "scale-down", id)
				return
			}
			c.eventually("the member whose data differs is marked", func() error {
				if mark := c.differs(differing); !mark.Of(c.id(differing)) {
					return fmt.Errorf("the mark of %s is %+v", differing, mark)
				}
				return nil
			})
			c.eventually("the removal waits", func() error {
				if testutil.ToFloat64(c.decisions.WithLabelValues(drainTable, "others-not-healthy")) == 0 {
					return errors.New("it does not")
				}
				return nil
			})
			if r := d.removalRequest(leaves); r.State != leases.RemovalRequested || len(c.listed(c.leader)) != len(names) {
				t.Errorf("the request is %+v, and etcd lists %x", r, c.listed(c.leader))
			}
		})
	}
}

// Comparisons without a result must not prevent the removal of a member without an end: what cannot be compared is not known to differ.
func TestRemovalContinuesWithoutComparison(t *testing.T) {
	every := func() time.Duration { return time.Hour }
	w := witness{view: membership.View{Members: []membership.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}}}, member: membership.Member{ID: 3}}
	content := func(id uint64, hash uint32) membership.Content {
		return membership.Content{MemberID: id, Revision: 9, Hash: hash}
	}
	for name, test := range map[string]struct {
		never   bool
		others  othersData
		regular []membership.Content
		want    rules.Answer
	}{
		"never compared":                    {never: true, want: rules.Yes},
		"not compared yet":                  {want: rules.Unknown},
		"without a result":                  {others: othersData{same: rules.Unknown, unanswered: maxUnanswered - 1}, want: rules.Unknown},
		"without a result, again and again": {others: othersData{same: rules.Unknown, unanswered: maxUnanswered}, want: rules.Yes},
		"they differ":                       {others: othersData{same: rules.No}, want: rules.No},
		"they differ, after no result":      {others: othersData{same: rules.No, unanswered: maxUnanswered}, want: rules.No},
		"they are equal":                    {others: othersData{same: rules.Yes}, want: rules.Yes},
		"they differ since":                 {others: othersData{same: rules.Yes}, regular: []membership.Content{content(1, 5), content(2, 6)}, want: rules.No},
		"the member differs": {
			others: othersData{same: rules.Yes}, regular: []membership.Content{content(1, 5), content(2, 5), content(3, 6)}, want: rules.Yes,
		},
		"differ by an earlier ID of another": {others: othersData{same: rules.Yes}, regular: []membership.Content{content(1, 5), content(7, 6)}, want: rules.Yes},
	} {
		r := &round{Duties: New(Options{Compare: every, PeerURL: func(string) string { return "" }})}
		if test.never {
			r.Compare = nil
		}
		r.record.Members = []string{"a", "b", "c"}
		r.comparison = &comparison{round: r, found: membership.Comparison{Contents: test.regular}}
		request := &removalRequest{round: r, draining: draining{others: test.others}}
		if got := request.othersAgree(w); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestTheLeaderWhoseDataDiffersIsMarked(t *testing.T) {
	c := newCompared(t, names)
	c.flip(c.leader)
	c.duties(c.leader, "mine")
	c.marks(c.leader)
}

// TestOneOfTwoDifferingMembersMarked: of two members whose data differs, one is marked.
func TestOneOfTwoDifferingMembersMarked(t *testing.T) {
	c := newCompared(t, []string{"demo-a", "demo-b", "demo-c", "demo-d", "demo-e"})
	c.flip(c.followers()[1])
	c.flip(c.followers()[0])
	c.duties(c.leader, "mine")
	c.marks(c.followers()[0])
}

// TestLastRevisionDifferenceWaits: a difference in the last revision waits for another one.
func TestLastRevisionDifferenceWaits(t *testing.T) {
	const value = "value of the last revision"
	c := newCompared(t, names)
	differing := c.followers()[0]
	c.put("last", value)
	c.flipValue(differing, value)
	c.duties(c.leader, "mine")
	c.eventually("a difference at one revision alone decides nothing", func() error { return c.hasDecided("incomplete") })
	if d := c.differs(differing); d != (leases.Difference{}) {
		t.Errorf("the mark of %s is %+v", differing, d)
	}
	c.put("k", "v")
	c.marks(differing)
}

func TestAMajorityOfAllVotersDecides(t *testing.T) {
	c := newCompared(t, names)
	away := c.followers()[1]
	c.stop(away)
	c.flip(c.followers()[0])
	c.duties(c.leader, "mine")
	began := time.Now()
	c.eventually("the record says that the members are undecided", func() error {
		record, _, err := c.store.Record(t.Context())
		if err == nil && (record.Undecided.Revision == 0 || record.Undecided.Confirmed == record.Undecided.Revision) {
			err = fmt.Errorf("it says %+v", record.Undecided)
		}
		return err
	})
	t.Logf("found after %s", time.Since(began))
	for _, name := range names {
		if name != away && c.differs(name) != (leases.Difference{}) {
			t.Errorf("member %s is marked without a majority", name)
		}
	}
	c.start(away)
	c.eventually("the differing member is marked when the third one is back", func() error {
		record, _, err := c.store.Record(t.Context())
		if err == nil && (record.Undecided != leases.Undecided{} || !c.differs(c.followers()[0]).Of(c.id(c.followers()[0]))) {
			err = fmt.Errorf("the record says %+v, and the Lease %+v", record.Undecided, c.differs(c.followers()[0]))
		}
		return err
	})
}

func TestAMarkIsRemovedWhenAllAreEqual(t *testing.T) {
	c := newCompared(t, names)
	equal := c.followers()[0]
	lease, err := c.store.Marks(t.Context(), equal)
	if err == nil {
		err = c.store.MarkDifference(t.Context(), equal, lease.LeaseVersion, leases.Difference{MemberID: leases.FormatID(c.id(equal)), Hash: "x", Majority: "y"})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.duties(c.leader, "mine")
	c.eventually("the mark is gone", func() error {
		if d := c.differs(equal); d != (leases.Difference{}) {
			return fmt.Errorf("it is %+v", d)
		}
		return c.hasDecided("same")
	})
}

// TestCorruptAlarmDisarmedWhenEqual: the alarm corrupt is disarmed when all are equal.
func TestCorruptAlarmDisarmedWhenEqual(t *testing.T) {
	c := newCompared(t, names)
	differing := c.followers()[0]
	c.flip(differing)
	c.raise(differing)
	c.duties(c.leader, "mine")
	c.marks(differing)
	if _, err := c.client(c.leader).Put(t.Context(), "k", "v"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Fatalf("a write while the alarm is raised: %v", err)
	}
	// The differing one leaves, as its replacement would have it. It does not run: an etcd that is not a member panics if it is asked for
	// its status.
	id := c.id(differing)
	c.stop(differing)
	if err := membership.Remove(t.Context(), c.client(c.leader), id); err != nil {
		t.Fatal(err)
	}
	c.eventually("writes succeed again", func() error {
		_, err := c.client(c.leader).Put(t.Context(), "k", "v")
		return err
	})
	if err := c.hasDecided("disarm"); err != nil {
		t.Error(err)
	}
}

// TestMarkedLeaderMovesLeadership: a marked leader takes the slot and moves leadership.
func TestMarkedLeaderMovesLeadership(t *testing.T) {
	c := newCompared(t, names)
	differing := c.leader
	c.flip(differing)
	c.duties(differing, "mine")
	c.marks(differing)
	select {
	case err := <-c.differingMember(differing, "mine"):
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(maxWait):
		t.Fatal("it does not stop its etcd")
	}
	record, _, err := c.store.Record(t.Context())
	want := leases.Replacing{Member: differing, PodUID: "mine", MemberID: leases.FormatID(c.id(differing))}
	if err != nil || record.Replacing == nil || *record.Replacing != want {
		t.Errorf("the slot is %+v, %v, want %+v", record.Replacing, err, want)
	}
	if leader, err := c.cluster.leader(); err != nil || leader == differing {
		t.Errorf("%s leads, %v", leader, err)
	}
}

func TestAMarkWithoutADifferenceStopsNoEtcd(t *testing.T) {
	c := newCompared(t, names)
	c.duties(c.leader, "mine")
	equal := c.followers()[0]
	c.eventually("the members are compared", func() error { return c.hasDecided("same") })
	lease, err := c.store.Marks(t.Context(), equal)
	if err != nil {
		t.Fatal(err)
	}
	mark := leases.Difference{MemberID: leases.FormatID(c.id(equal)), Hash: "x", Majority: "y"}
	stopped := c.differingMember(equal, "pod of "+equal)
	if err := c.store.MarkDifference(t.Context(), equal, lease.LeaseVersion, mark); err != nil {
		t.Fatal(err)
	}
	c.eventually("the mark is removed", func() error {
		if d := c.differs(equal); d != (leases.Difference{}) {
			return fmt.Errorf("it is %+v", d)
		}
		return nil
	})
	select {
	case err := <-stopped:
		t.Errorf("its etcd was stopped: %v", err)
	default:
	}
}
