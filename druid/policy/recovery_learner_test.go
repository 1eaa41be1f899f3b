package policy

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
)

// A member joined again and learns under another raft ID. The published list still has its earlier ID, whose data does not exist any more.
func TestAnEarlierIDOfALearnerIsLost(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rescue)
		rule   string
	}{
		"it runs under another ID": {func(x *rescue) {
			x.member(2).Reports.ID, x.member(2).Reports.Role = 99, leases.RoleLearner
		}, "propose"},
		"it runs under the ID of the list":               {func(*rescue) {}, "refused"},
		"its Lease has no ID":                            {func(x *rescue) { x.member(2).Reports.ID = 0 }, "refused"},
		"its Lease reports another raft group":           {func(x *rescue) { x.member(2).Reports.ID, x.member(2).Reports.ClusterID = 99, 8 }, "refused"},
		"it is away, and can come back with either data": {func(x *rescue) { x.member(2).Reports.ID = 99; x.away(2) }, "give-up"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(5)
			x.report(3, leases.DiskEmpty)
			x.report(4, leases.DiskEmpty)
			test.change(x)
			x.wants(t, test.rule)
		})
	}
}

// Only a learner is left, and its etcd runs. Its disk is the source of a plan that needs your approval, and the order stops its etcd.
func TestALearnerThatRunsIsASource(t *testing.T) {
	for name, published := range map[string]bool{"the list has its earlier ID": true, "no list is published": false} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			m := x.member(2)
			m.Reports.ID, m.Reports.Role = 99, leases.RoleLearner
			if !published {
				x.o.Record.MemberList = nil
			}
			// What is measured of the loss says nothing about how far a learner is behind.
			x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions, x.d.Recovery.MaxSeconds = true, nil, new(int64(1<<40))
			report := func() {
				x.report(0, leases.DiskEmpty)
				x.report(1, leases.DiskEmpty)
			}
			report()
			r := x.wants(t, "propose")
			if r.plan.source.member.Name != "demo-c" {
				t.Fatalf("the plan is %+v", r.plan)
			}
			x.d.Recovery.Approved = r.plan.hash
			m.Renewed = m.Renewed.Add(time.Hour) // an etcd that learns does not notice that the leader is gone
			x.apply(t, PrepareRecovery)
			report()
			x.wants(t, "await-acknowledgements")
			x.report(2, leases.DiskIntact).Voters = "a,b"
			x.wants(t, "execute")
			x.apply(t, ExecuteRecovery)
			if o := x.o.Record.Order(); o.Chosen != "demo-c" || o.Mode != leases.RecoverSurvivor {
				t.Errorf("the order is %+v", o)
			}
		})
	}
}

// The etcd of a learner runs, and a voter is the source. The log of the learner can have its vote, so it is stopped before a raft group is
// formed. An agent that does not know orders never stops it.
func TestALearnerThatRunsIsAwaited(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*rescue, *Member)
		rule    string
		message string
	}{
		"it runs": {func(*rescue, *Member) {}, "await-acknowledgements", "Not acknowledged yet: demo-d"},
		"it is about to run": {func(x *rescue, _ *Member) { c := x.report(3, leases.DiskIntact); c.Order, c.Prepared = "", 0 }, "await-acknowledgements",
			"Not acknowledged yet: demo-d"},
		"it is fenced by an earlier order": {func(x *rescue, _ *Member) { x.report(3, leases.DiskIntact).Order = "" }, "execute", ""},
		"it acknowledges":                  {func(x *rescue, _ *Member) { x.report(3, leases.DiskIntact) }, "execute", ""},
		"it has no data":                   {func(x *rescue, _ *Member) { x.report(3, leases.DiskEmpty).Order = "" }, "execute", ""},
		"it has the data of another group": {func(x *rescue, _ *Member) {
			x.report(3, leases.DiskIntact).Order, x.member(3).Reports.Disk.Cluster = "", "6"
		}, "execute", ""},
		"its data is older than it was":        {func(x *rescue, _ *Member) { x.report(3, leases.DiskStale).Order = "" }, "execute", ""},
		"its node is away":                     {func(x *rescue, _ *Member) { x.away(3) }, "execute", ""},
		"its etcd runs in another group":       {func(_ *rescue, m *Member) { m.Reports.ClusterID = 6 }, "execute", ""},
		"an older agent":                       {func(_ *rescue, m *Member) { m.Agent = AgentOutdated }, "await-acknowledgements", "Not acknowledged yet: demo-d"},
		"an older agent on an empty disk":      {func(x *rescue, m *Member) { x.report(3, leases.DiskEmpty).Orders, m.Agent = false, AgentOutdated }, "execute", ""},
		"an older agent that knows orders too": {func(x *rescue, m *Member) { x.report(3, leases.DiskIntact); m.Agent = AgentOutdated }, "execute", ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(4)
			m := x.member(3)
			x.o.Record.MemberList.Members[3].Learner, m.Reports.Role = true, leases.RoleLearner
			x.d.Recovery.Automatic = true
			report := func() {
				x.report(0, leases.DiskIntact).Voters = "a,b,c"
				x.report(1, leases.DiskEmpty)
				x.report(2, leases.DiskEmpty)
			}
			report()
			x.apply(t, PrepareRecovery)
			report()
			test.change(x, m)
			x.wants(t, test.rule)
			if s := recoveryStatus(Evaluate(x.d, x.o), nil, metav1.NewTime(rescueStart)); !strings.Contains(s.Message, test.message) {
				t.Errorf("it says %q", s.Message)
			}
		})
	}
	// Before there is an order, druid says what to do about an agent that would never acknowledge it.
	const old = "the agent of member demo-d does not know recovery orders. Wait until druid has updated the agents"
	for name, test := range map[string]struct {
		change func(*Member)
		rule   string
		words  string
	}{
		"an agent with the image of druid":      {func(*Member) {}, "prepare", ""},
		"an agent that never wrote its version": {func(m *Member) { m.Agent = AgentOutdated }, "refused", old},
		"an agent of an earlier release":        {func(m *Member) { m.Agent, m.Reports.AgentVersion = AgentOutdated, "v0.1.0" }, "prepare", ""},
	} {
		x := newRescue(4)
		x.o.Record.MemberList.Members[3].Learner, x.member(3).Reports.Role = true, leases.RoleLearner
		test.change(x.member(3))
		x.d.Recovery.Automatic = true
		x.report(0, leases.DiskIntact).Voters = "a,b,c"
		x.report(1, leases.DiskEmpty)
		x.report(2, leases.DiskEmpty)
		if r := x.wants(t, test.rule); r.obstacle != test.words {
			t.Errorf("%s: the obstacle is %q", name, r.obstacle)
		}
	}
}

// A learner has committed entries that the disks of the voters lost. Its disk is no source, and what it has more counts as lost.
func TestWhatOnlyALearnerHasIsALoss(t *testing.T) {
	for name, test := range map[string]struct {
		cluster string
		last    uint64
		rule    string
		lost    int64
	}{
		"it has more":            {"7", 60, "propose", 40},
		"it has the same":        {"7", 50, "prepare", 0},
		"it is of another group": {"6", 60, "prepare", 0},
	} {
		x := newRescue(4)
		x.o.Record.MemberList.Members[3].Learner, x.member(3).Reports.Role = true, leases.RoleLearner
		x.d.Recovery.Automatic = true
		x.d.Recovery.MaxRevisions = new(int64(0))
		x.report(0, leases.DiskIntact).Voters = "a,b,c"
		x.report(1, leases.DiskEmpty)
		x.report(2, leases.DiskEmpty)
		c := x.report(3, leases.DiskIntact)
		c.Voters, c.Cluster = "a,b,c", test.cluster
		if c.Last = test.last; test.last > 50 {
			c.Revision += 40
		}
		if r := x.wants(t, test.rule); r.plan.revisions != test.lost || r.plan.source.member.Name != "demo-a" {
			t.Errorf("%s: %d revisions of the disk of %s are lost, want %d", name, r.plan.revisions, r.plan.source.member.Name, test.lost)
		}
	}
}

// The volume of the only voter is lost. The disk of a learner has more than the backup: it is the source, and needs your approval.
func TestALearnerWithMoreThanTheBackup(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rescue)
		rule   string
		mode   leases.RecoveryMode
	}{
		"its disk has more":                 {func(*rescue) {}, "propose", leases.RecoverSurvivor},
		"its disk has as much":              {func(x *rescue) { x.o.Full.Reports.Revision = 100 }, "prepare", leases.RecoverBackup},
		"the backup has more":               {func(x *rescue) { x.o.Full.Reports.Revision = 101 }, "prepare", leases.RecoverBackup},
		"its disk is of another lineage":    {func(x *rescue) { x.member(1).Reports.Disk.Lineage = "00000001-bb" }, "prepare", leases.RecoverBackup},
		"its disk is of another raft group": {func(x *rescue) { x.member(1).Reports.Disk.Cluster = "6" }, "prepare", leases.RecoverBackup},
		"its disk is older than it was":     {func(x *rescue) { x.member(1).Reports.Disk.State = leases.DiskStale }, "prepare", leases.RecoverBackup},
		"its etcd runs":                     {func(x *rescue) { x.member(1).Reports.Disk = nil }, "propose", leases.RecoverSurvivor},
		"it knows that it has a vote":       {func(x *rescue) { x.member(1).Reports.Disk.Voters = "a,b" }, "prepare", leases.RecoverSurvivor},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(2).backedUp()
			x.o.SavedUntil = rescueStart
			x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions, x.d.Recovery.MaxSeconds = true, nil, new(int64(60))
			x.o.Record.MemberList.Members[1].Learner, x.member(1).Reports.Role = true, leases.RoleLearner
			x.report(0, leases.DiskEmpty)
			x.report(1, leases.DiskIntact).Voters = "a"
			test.change(x)
			r := x.decide()
			if r.plan == nil {
				t.Fatalf("rule %s, obstacle %q", r.rule, r.obstacle)
			}
			needs := strings.Join(r.plan.needs, "; ")
			if r.rule != test.rule || r.plan.source.mode != test.mode || (r.rule == "propose") != strings.Contains(needs, "demo-b was a learner") {
				t.Errorf("by rule %s the source is %s of %s; the plan needs %q", r.rule, r.plan.source.mode, r.plan.source.member.Name, needs)
			}
		})
	}
}

// While a restore in place is ordered, a learner cannot serve without a voter, and its data is undone.
func TestARestoreAwaitsNoLearnerAlone(t *testing.T) {
	for open, want := range map[bool]bool{true: true, false: false} {
		order := leases.Recovery{Mode: leases.RecoverRestore, Epoch: 2, Nonce: "bb", Chosen: "demo-a"}
		r := recovery{order: &order, voters: []oldVoter{{id: "a", closed: true}, {id: "b", closed: !open}}}
		if got := r.awaits(oldVoter{member: Member{Name: "demo-d"}, learner: true, holds: holdsHere}); got != want {
			t.Errorf("with a voter that can serve %t, the learner is awaited: %t", open, got)
		}
	}
}
