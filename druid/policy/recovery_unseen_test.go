package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// learners makes members learn, by their Leases and the published list.
func (x *rescue) learners(is ...int) *rescue {
	for _, i := range is {
		x.o.Record.MemberList.Members[i].Learner, x.member(i).Reports.Role = true, leases.RoleLearner
	}
	return x
}

// learns reports the disk of a learner. The IDs of the first four members are its voters.
func (x *rescue) learns(i int) { x.report(i, leases.DiskIntact).Voters = "a,b,c,d" }

// Four members vote, and the fifth one learns. The second to the fourth can have promoted it before the second one was lost, and the first
// one did not see that. The last three are then a quorum of five.
func TestUnseenPromotionIsCounted(t *testing.T) {
	few, enough := "give-up-further", "execute"
	for name, test := range map[string]struct {
		change func(*rescue)
		rule   string
	}{
		"the learner is away":             {func(x *rescue) { x.away(4) }, few},
		"its Lease says that it votes":    {func(x *rescue) { x.away(4); x.votesAlone(4) }, few},
		"no list is published":            {func(x *rescue) { x.away(4); x.o.Record.MemberList = nil }, few},
		"only the list has the learner":   {func(x *rescue) { x.away(4); x.member(4).Reports = leases.Member{} }, few},
		"the Lease cannot be read":        {func(x *rescue) { x.away(4); x.member(4).Readable = false }, few},
		"only its disk says that it is":   {func(x *rescue) { x.onlyDisk(4); x.away(4) }, few},
		"it has no data, by an old claim": {func(x *rescue) { x.report(4, leases.DiskEmpty).Order = ""; x.away(4) }, few},
		"it acknowledges":                 {func(x *rescue) { x.learns(4) }, enough},
		"it acknowledged and is away":     {func(x *rescue) { x.learns(4); x.away(4) }, enough},
		"its volume is gone":              {func(x *rescue) { x.gone(4) }, enough},
		"you gave it up":                  {func(x *rescue) { x.away(4); o := x.o.Record.Recovery; o.GiveUp, o.Approved = []string{"demo-e"}, true }, enough},
		"it is not desired any more":      {func(x *rescue) { x.away(4); x.member(4).Listed = false }, enough},
		"it learned in a group before": {func(x *rescue) {
			x.away(4)
			x.member(4).Reports.ClusterID, x.o.Record.MemberList.Members = 6, x.o.Record.MemberList.Members[:4]
		}, enough},
		"it joined again, and one ID of it votes in the list": {func(x *rescue) {
			x.away(4)
			x.o.Record.MemberList.Members[4] = leases.ListedMember{ID: "99", Name: "demo-d", Learner: true}
			x.member(4).Listed, x.member(3).Reports.ID, x.member(3).Reports.Role = false, 0x99, leases.RoleLearner
		}, enough},
	} {
		t.Run(name, func(t *testing.T) {
			x := prepared(t)
			test.change(x)
			x.report(0, leases.DiskIntact).Voters = "a,b,c,d"
			r := x.wants(t, test.rule)
			if says := r.unacknowledged(); test.rule == few && !strings.HasSuffix(says, ", demo-e") {
				t.Errorf("it says %q", says)
			}
		})
	}
}

// prepared is a cluster of four voters and a learner, whose first voter is here. The volume of the second one is gone, and the two others are
// away. They were lost when druid ordered to prepare.
func prepared(t *testing.T) *rescue {
	t.Helper()
	x := newRescue(5).learners(4)
	x.gone(1)
	for i := 2; i < 5; i++ {
		x.gone(i)
	}
	x.d.Recovery.Automatic = true
	x.apply(t, PrepareRecovery)
	for i := 2; i < 5; i++ {
		x.member(i).Claim, x.member(i).Pod = ClaimPresent, PodLive
	}
	x.away(2)
	x.away(3)
	return x
}

// votesAlone lets a learner report its vote, while the Lease of another voter that is away cannot be read.
func (x *rescue) votesAlone(i int) {
	x.member(i).Reports.Role = leases.RoleMember
	x.member(3).Readable = false
}

// Four members vote, and the volumes of the first and the last one are lost. The last one, or the one that druid lets leave, can have been
// removed before: the two others are then a quorum of three.
func TestUnseenRemovalIsCounted(t *testing.T) {
	mark := func(state leases.RemovalState, cluster, id string) func(*rescue) {
		return func(x *rescue) {
			x.member(3).Reports.Removal = leases.RemovalRequest{State: state, ClusterID: cluster, MemberID: id}
		}
	}
	leaves := func(name string) func(*rescue) {
		return func(x *rescue) { x.o.Record.PendingRemoval = &leases.PendingRemoval{Member: name, Mark: "m"} }
	}
	replaces := func(name, id string) func(*rescue) {
		return func(x *rescue) { x.o.Record.Replacing = &leases.Replacing{Member: name, MemberID: id} }
	}
	for name, test := range map[string]struct {
		change func(*rescue)
		giveUp []string
	}{
		"no removal":                  {func(*rescue) {}, nil},
		"it is requested":             {mark(leases.RemovalRequested, "", ""), nil},
		"it is claimed":               {mark(leases.RemovalBegun, "7", "d"), []string{"demo-b"}},
		"it is done":                  {mark(leases.RemovalDone, "7", "d"), []string{"demo-b"}},
		"of another raft group":       {mark(leases.RemovalBegun, "6", "d"), nil},
		"of another ID":               {mark(leases.RemovalBegun, "7", "9"), nil},
		"of a voter that can serve":   {mark(leases.RemovalBegun, "7", "b"), nil},
		"it replaces itself":          {replaces("demo-d", "d"), []string{"demo-b"}},
		"another one replaces itself": {replaces("demo-b", "b"), nil},
		"it has the slot to leave":    {leaves("demo-d"), []string{"demo-b"}},
		"another one has that slot":   {leaves("demo-b"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(4).backedUp()
			x.o.Full.Reports.Revision = 100
			report := func() {
				x.report(0, leases.DiskEmpty)
				x.report(3, leases.DiskEmpty)
				test.change(x)
			}
			report()
			x.away(1)
			x.away(2)
			x.executesWithout(t, report, test.giveUp...)
		})
	}
}

// Two members vote, and the quorum is lost while druid lets the second one leave. If it was removed already, the first one would serve. It is
// here and finds no leader, so it needs the second one, which is lost or can be given up.
func TestLastVoterIsRecovered(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rescue)
		rule   string
		giveUp []string
	}{
		"the one that leaves is away":                  {func(x *rescue) { x.away(1) }, "give-up", []string{"demo-b"}},
		"its volume is gone":                           {func(x *rescue) { x.gone(1) }, "propose", nil},
		"its volume is empty":                          {func(x *rescue) { x.report(1, leases.DiskEmpty) }, "propose", nil},
		"its volume is gone, and the other one serves": {func(x *rescue) { x.gone(1); x.member(0).EtcdReady = true }, "refused", nil},
		"both are here":                                {func(*rescue) {}, "refused", nil},
		"both are away":                                {func(x *rescue) { x.away(0); x.away(1) }, "refused", nil},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(2)
			x.o.Record.PendingRemoval = &leases.PendingRemoval{Member: "demo-b", Mark: "m"}
			test.change(x)
			r := x.wants(t, test.rule)
			if test.rule == "refused" {
				return
			}
			if !slices.Equal(r.plan.giveUp, test.giveUp) || r.plan.source.member.Name != "demo-a" {
				t.Fatalf("plan %+v", r.plan)
			}
			x.d.Recovery.Approved = r.plan.hash
			x.apply(t, PrepareRecovery)
			x.report(0, leases.DiskIntact)
			if x.member(1).Reports.Disk != nil {
				x.report(1, leases.DiskEmpty)
			}
			x.wants(t, "execute")
		})
	}
}

// executesWithout approves a plan that gives up these members, and executes it after reports. An order that does not give them up waits.
func (x *rescue) executesWithout(t *testing.T, reports func(), giveUp ...string) {
	t.Helper()
	r := x.decide()
	if r.plan == nil || !slices.Equal(r.plan.giveUp, giveUp) {
		t.Fatalf("by rule %s, the obstacle is %q, the plan %+v", r.rule, r.obstacle, r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	reports()
	x.wants(t, "execute")
	x.o.Record.Recovery.GiveUp, x.d.Recovery.Approved = nil, ""
	if len(giveUp) > 0 {
		x.wants(t, "give-up-further")
	}
}

// The only voter acknowledges with its data. Its log would have a promotion, so learners that are away are no quorum.
func TestAnIntactVoterSawEachPromotion(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*leases.DiskReport)
		want   acks
	}{
		"its data is intact":     {func(*leases.DiskReport) {}, acksEnough},
		"it does not say voters": {func(c *leases.DiskReport) { c.Voters = "" }, acksFew},
		"its data is lost":       {func(c *leases.DiskReport) { c.State = leases.DiskEmpty }, acksFew},
		"its ID is another one":  {func(c *leases.DiskReport) { c.Member = "f" }, acksFew},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3).backedUp().learners(1, 2)
			x.report(0, leases.DiskEmpty)
			x.gone(1)
			x.gone(2)
			x.d.Recovery.Approved = x.decide().plan.hash
			x.apply(t, PrepareRecovery)
			for i := 1; i < 3; i++ {
				x.member(i).Claim, x.member(i).Pod = ClaimPresent, PodLive
				x.away(i)
			}
			c := x.report(0, leases.DiskIntact)
			c.Voters = "a"
			test.change(c)
			if got := x.decide().facts.acks; got != test.want {
				t.Errorf("acknowledged by %v", got)
			}
		})
	}
}

// A learner that is away can have got a vote, and more data than the source.
func TestLearnerWithMoreNeedsApproval(t *testing.T) {
	x := newRescue(4).learners(3)
	x.gone(1)
	x.gone(2)
	x.away(3)
	x.report(0, leases.DiskIntact).Voters = "a,b,c"
	for revision, needs := range map[int64]bool{90: false, 5000: true} {
		x.member(3).Reports.Revision, x.member(3).Reports.Raft.Committed = revision, uint64(revision/2)
		if got := strings.Contains(strings.Join(x.decide().plan.needs, " "), "demo-d is away and holds more"); got != needs {
			t.Errorf("revision %d: an approval is needed: %t", revision, got)
		}
	}
}

// onlyDisk leaves the disk report of a learner, which does not acknowledge the order, as the only evidence of its raft ID.
func (x *rescue) onlyDisk(i int) {
	x.learns(i)
	x.member(i).Reports.Disk.Order, x.member(i).Reports.Disk.Prepared = "", 0
	x.member(i).Reports.ID, x.member(i).Reports.Role, x.o.Record.MemberList = 0, "", nil
}

// No combination of voters and learners leads to Execute if those that can serve could be a quorum, whichever of the learners got a vote. And an
// approved plan is executed when the members that are here acknowledge the order: it gives up as many as that needs.
func TestPlansCountEachPromotion(t *testing.T) {
	kinds := []string{"here", "empty", "away", "gone"}
	executed, gaveUp := 0, 0
	for size := 1; size <= 5; size++ {
		for voters := 1; voters <= size; voters++ {
			for n := range power(len(kinds), size) {
				x, words := newRescue(size).backedUp(), []string{}
				if x.o.Full.Reports.Revision = 100; voters < size {
					x.learners(rangeOf(voters, size)...)
				}
				open := map[bool]int{}
				for i := range size {
					kind := kinds[n/power(len(kinds), i)%len(kinds)]
					words = append(words, kind)
					x.state(i, kind, voters)
				}
				r := x.decide()
				if !r.is(recoverPropose) {
					continue
				}
				x.d.Recovery.Approved = r.plan.hash
				x.apply(t, PrepareRecovery)
				for i, kind := range words {
					x.state(i, kind, voters)
					if kind == "away" && !slices.Contains(r.plan.giveUp, x.member(i).Name) {
						open[i < voters]++
					}
				}
				if gaveUp += len(r.plan.giveUp); x.decide().facts.acks != acksEnough {
					t.Errorf("%d voters of %v: the plan gives up %v, and waits for acknowledgements", voters, words, r.plan.giveUp)
				}
				for promoted := range size - voters + 1 {
					if serve := open[true] + min(promoted, open[false]); serve >= quorum(voters+promoted) {
						t.Errorf("%d voters of %v: with %d promotions, %d can serve", voters, words, promoted, serve)
					}
				}
				executed++
			}
		}
	}
	if executed < 500 || gaveUp < 500 {
		t.Errorf("only %d plans are executed, and %d members given up", executed, gaveUp)
	}
}

// state is what a member of TestPlansCountEachPromotion is.
func (x *rescue) state(i int, kind string, voters int) {
	switch kind {
	case "here":
		x.report(i, leases.DiskIntact).Voters = strings.Join([]string{"a", "b", "c", "d", "e"}[:voters], ",")
	case "empty":
		x.report(i, leases.DiskEmpty)
	case "away":
		x.away(i)
	default:
		x.gone(i)
	}
}

func power(base, exponent int) int {
	n := 1
	for range exponent {
		n *= base
	}
	return n
}

func rangeOf(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// Only your approval gives up learners that are away and could be a quorum with a vote. One that returns is not given up any more.
func TestPlanGivesUpLearners(t *testing.T) {
	for name, test := range map[string]struct {
		voters int
		kinds  []string
		giveUp []string
	}{
		"two learners of one voter":                {1, []string{"empty", "away", "away"}, []string{"demo-b"}},
		"one learner of one voter":                 {1, []string{"empty", "away"}, nil},
		"one learner is here":                      {1, []string{"empty", "away", "here"}, nil},
		"a voter first":                            {2, []string{"empty", "away", "away"}, []string{"demo-b"}},
		"two learners, and a voter that is here":   {3, []string{"here", "gone", "empty", "away", "away"}, []string{"demo-d"}},
		"two learners that are here":               {3, []string{"here", "gone", "empty", "here", "here"}, nil},
		"a voter first, also if learners are away": {3, []string{"here", "away", "empty", "away", "away"}, []string{"demo-b", "demo-d"}},
		"two voters, next to a learner":            {4, []string{"here", "away", "empty", "away", "away"}, []string{"demo-b", "demo-d"}},
	} {
		x := newRescue(len(test.kinds)).backedUp().learners(rangeOf(test.voters, len(test.kinds))...)
		for i, kind := range test.kinds {
			x.state(i, kind, test.voters)
		}
		if r := x.decide(); r.plan == nil || !slices.Equal(r.plan.giveUp, test.giveUp) {
			t.Errorf("%s: by rule %s, the obstacle is %q, the plan %+v", name, r.rule, r.obstacle, r.plan)
		}
	}
	x := newRescue(3).backedUp().learners(1, 2)
	report := func() { x.report(0, leases.DiskEmpty) }
	report()
	x.away(1)
	x.away(2)
	x.d.Recovery.Approved = x.wants(t, "give-up").plan.hash
	x.apply(t, PrepareRecovery)
	report()
	x.nodeReturns(1)
	x.report(1, leases.DiskEmpty)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); len(o.GiveUp) > 0 {
		t.Errorf("order %+v", o)
	}
}

// The published list does not have the vote of the third member yet, and its Lease does. The third member and one of the others are a quorum.
func TestAVoteThatIsNotListedCounts(t *testing.T) {
	x := newRescue(3)
	x.o.Record.MemberList.Members = x.o.Record.MemberList.Members[:2]
	x.away(0)
	x.away(1)
	if r := x.wants(t, "give-up"); !slices.Equal(r.plan.giveUp, []string{"demo-a", "demo-b"}) {
		t.Errorf("the plan gives up %s", r.plan.giveUp)
	}
	x.nodeReturns(1) // the two that are here find no leader: the vote can have been removed
	x.gone(0)
	if r := x.wants(t, "propose"); len(r.plan.giveUp) > 0 {
		t.Errorf("the plan gives up %s", r.plan.giveUp)
	}
}
