package policy

import (
	"testing"

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
