package policy

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// Members go away after druid ordered to prepare. You can approve that the order gives them up too: those that are needed, voters first.
func TestPreparedOrderGivesUpFurther(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rescue)
		giveUp []string // empty if druid waits
	}{
		"two voters and a learner are away":        {func(x *rescue) { x.away(4) }, []string{"demo-c"}},
		"the Pod of the learner does not exist":    {func(x *rescue) { x.without(4); x.member(4).Absent = true }, []string{"demo-c"}},
		"the Pod of the learner is replaced":       {func(x *rescue) { x.without(4) }, nil},
		"the volume of the learner is gone":        {func(x *rescue) { x.gone(4); x.unknownVoters("88") }, []string{"demo-c"}},
		"a learner is here and can acknowledge":    {func(x *rescue) { x.onlyDisk(4) }, nil},
		"a voter is here and can acknowledge":      {func(x *rescue) { x.away(4); x.nodeReturns(2) }, nil},
		"a voter on an empty disk can acknowledge": {func(x *rescue) { x.away(4); x.empty(2); x.member(2).Reports.Disk.Order = "" }, nil},
		"a member may be back":                     {func(x *rescue) { x.away(4); x.member(1).Liveness = leases.Unknown }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			x := prepared(t)
			test.change(x)
			x.report(0, leases.DiskIntact).Voters = "a,b,c,d"
			if len(test.giveUp) == 0 {
				x.wants(t, "await-acknowledgements")
				return
			}
			r := x.wants(t, "give-up-further")
			if !slices.Equal(r.plan.giveUp, test.giveUp) {
				t.Fatalf("it gives up %v, want %v", r.plan.giveUp, test.giveUp)
			}
			s := recoveryStatus(Evaluate(x.d, x.o), nil, metav1.NewTime(rescueStart))
			if s.Phase != v1alpha1.RecoveryProposed || !strings.Contains(s.Approve, r.plan.hash) || !strings.Contains(s.Message, "Not acknowledged yet: ") {
				t.Errorf("status %+v", s)
			}
			x.d.Recovery.Approved = r.plan.hash
			back := *x
			back.o.Members = slices.Clone(x.o.Members)
			x.wants(t, "execute")
			x.apply(t, ExecuteRecovery)
			if o := x.o.Record.Order(); !slices.Equal(o.GiveUp, test.giveUp) || !o.Approved || o.Chosen != "demo-a" {
				t.Errorf("order %+v", o)
			}
			// The approval does not give up a member that returned.
			back.nodeReturns(int(test.giveUp[0][5] - 'a'))
			back.wants(t, "await-acknowledgements")
		})
	}
}

// The policy is Automatic, and a member holds more than the one that druid selected. While its Pod is replaced, druid waits for it: it does not
// ask for an approval that the member makes useless when it acknowledges.
func TestPreparedOrderAwaitsAPodThatStarts(t *testing.T) {
	checkRules(t, func(t *testing.T) *rescue {
		x := newRescue(3)
		x.d.Recovery.Automatic = true
		x.report(1, leases.DiskEmpty)
		x.gone(2)
		x.wants(t, "prepare")
		x.apply(t, PrepareRecovery)
		x.report(0, leases.DiskIntact)
		x.report(1, leases.DiskEmpty)
		x.nodeReturns(2)
		m := x.member(2)
		m.Claim, m.Pod, m.Reports.Revision, m.Reports.Raft.Committed = ClaimPresent, PodLive, 200, 60
		return x
	}, map[string]ruleTest{
		"its Pod does not exist":            {func(x *rescue) { x.without(2) }, "await-acknowledgements"},
		"it has no container yet":           {func(x *rescue) { x.member(2).Pod = PodUnstarted }, "await-acknowledgements"},
		"its Lease is about the Pod before": {func(x *rescue) { x.member(2).PodUID = "next" }, "await-acknowledgements"},
		"it is being deleted":               {func(x *rescue) { x.member(2).Pod = PodTerminating }, "await-acknowledgements"},
		"it is being deleted for a minute":  {func(x *rescue) { x.member(2).Pod, x.member(2).Absent = PodTerminating, true }, "changed"},
		"its agent writes no Lease":         {func(x *rescue) { x.member(2).PodUID, x.member(2).Stuck = "next", true }, "changed"},
		"it does not exist for a minute":    {func(x *rescue) { x.without(2); x.member(2).Absent = true }, "changed"},
		"its node is unreachable":           {func(x *rescue) { x.without(2); x.away(2) }, "changed"},
		"its Lease cannot be read":          {func(x *rescue) { x.member(2).Readable = false }, "changed"},
	})
}

// without takes away the Pod of a member.
func (x *rescue) without(i int) { x.member(i).Pod = PodAbsent }

// The first two members replaced themselves while the third one was away, and one of them lost its data. The disk of the third one lists their
// earlier IDs, which nothing else has. Only your approval gives these up.
func TestStaleDiskListsUnknownVoters(t *testing.T) {
	for name, deleted := range map[string]bool{"the list is published": false, "the record was deleted": true} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			if deleted {
				x.o.Record.MemberList = nil
			}
			x.report(0, leases.DiskEmpty)
			x.away(1)
			x.d.Recovery.Approved = x.wants(t, "give-up").plan.hash
			x.apply(t, PrepareRecovery)
			x.report(0, leases.DiskEmpty)
			x.report(2, leases.DiskIntact).Voters = "5,6,c"
			phase := func() *v1alpha1.RecoveryStatus {
				return recoveryStatus(Evaluate(x.d, x.o), nil, metav1.NewTime(rescueStart))
			}
			r := x.wants(t, "give-up-further")
			if s := phase(); s.Phase != v1alpha1.RecoveryProposed || !strings.Contains(s.Message, "druid does not know which member has the voter ID 5:") {
				t.Errorf("status %+v", s)
			}
			x.member(1).Liveness = leases.Unknown
			x.wants(t, "await-acknowledgements")
			if s := phase(); s.Phase != v1alpha1.RecoveryPreparing || !strings.Contains(s.Message, "a member with ID 5") {
				t.Errorf("status %+v", s)
			}
			x.member(1).Liveness = leases.Stale
			x.d.Recovery.Approved = r.plan.hash
			x.apply(t, ExecuteRecovery)
			if o := x.o.Record.Order(); !o.Approved || !slices.Equal(o.GiveUp, []string{"5", "demo-b"}) {
				t.Errorf("order %+v", o)
			}
			x.wants(t, "executing")
		})
	}
}

// The record was deleted, and the only disk lists voters that nothing else has. The plan gives up as many as have to be.
func TestUnknownVotersAreGivenUp(t *testing.T) {
	x := newRescue(3)
	x.o.Record.MemberList = nil
	x.thirdDiskLists("5,6,c")
	x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions, x.d.Recovery.MaxSeconds = true, nil, new(int64(1<<40))
	r := x.wants(t, "give-up")
	if !slices.Equal(r.plan.giveUp, []string{"5", "6"}) {
		t.Fatalf("plan %+v", r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	x.thirdDiskLists("5,6,c")
	x.wants(t, "execute")
	// The disk of one of them is here after all.
	m := x.member(1)
	m.Reports.ID = 5
	x.report(1, leases.DiskIntact).Voters = "5,6,c"
	x.wants(t, "majority-returned")
}

// The record of a raft group that was joined was deleted. A voter that is no member of druid can be an external member that serves.
func TestForgottenExternalsAreNotGivenUp(t *testing.T) {
	for name, test := range map[string]struct{ voters, rule string }{
		"a voter is unknown":     {"5,6,c", "refused"},
		"all voters are members": {"a,b,c", "propose"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.d.Joins, x.o.Record.MemberList = true, nil
			x.thirdDiskLists(test.voters)
			if r := x.wants(t, test.rule); test.rule == "refused" && !strings.Contains(r.obstacle, "can be an external member") {
				t.Errorf("the obstacle is %q", r.obstacle)
			}
		})
	}
}

// A learner is away too. The plan does not give it up if the unknown voters are enough.
func TestPlanGivesUpNoMoreThanNeeded(t *testing.T) {
	x := newRescue(4)
	x.o.Record.MemberList = nil
	x.thirdDiskLists("5,6,c")
	x.member(3).Reports.Role = leases.RoleLearner
	x.away(3)
	if r := x.wants(t, "give-up"); !slices.Equal(r.plan.giveUp, []string{"5", "6"}) {
		t.Errorf("plan %+v", r.plan)
	}
}

// The learners of a voter that lost its data return to nodes that are away. With a vote each, they could be a quorum.
func TestPreparedOrderGivesUpLearners(t *testing.T) {
	x := newRescue(3).backedUp().learners(1, 2)
	x.report(0, leases.DiskEmpty)
	x.gone(1)
	x.gone(2)
	x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
	x.apply(t, PrepareRecovery)
	x.report(0, leases.DiskEmpty)
	for i := 1; i < 3; i++ {
		x.member(i).Claim, x.member(i).Pod = ClaimPresent, PodLive
		x.away(i)
	}
	r := x.wants(t, "give-up-further")
	if !slices.Equal(r.plan.giveUp, []string{"demo-b"}) || r.plan.hash == x.d.Recovery.Approved {
		t.Fatalf("plan %+v", r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); !slices.Equal(o.GiveUp, []string{"demo-b"}) {
		t.Errorf("order %+v", o)
	}
}

// The member that the order selects goes away before it acknowledges. Another one takes its place only by your approval.
func TestSelectedMemberIsGivenUp(t *testing.T) {
	x := newRescue(3)
	x.report(0, leases.DiskEmpty)
	x.d.Recovery.Approved = func() string { x.away(2); x.gone(2); return x.decide().plan.hash }()
	x.apply(t, PrepareRecovery)
	if o := x.o.Record.Order(); o.Chosen != "demo-b" {
		t.Fatalf("order %+v", o)
	}
	x.away(1)
	x.report(0, leases.DiskEmpty)
	x.wants(t, "await-acknowledgements") // nothing is left to recover from
	x.backedUp()
	r := x.wants(t, "give-up-further")
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); o.Chosen != "demo-a" || o.Mode != leases.RecoverBackup || !slices.Equal(o.GiveUp, []string{"demo-b"}) {
		t.Errorf("order %+v", o)
	}
}

// thirdDiskLists lets only the third of three disks have data, with these voters.
func (x *rescue) thirdDiskLists(voters string) {
	x.report(0, leases.DiskEmpty)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskIntact).Voters = voters
}

// empty lets a member return on an empty volume, which acknowledges the order.
func (x *rescue) empty(i int) {
	x.nodeReturns(i)
	x.report(i, leases.DiskEmpty)
}

// unknownVoters adds IDs to the published list that are those of no member.
func (x *rescue) unknownVoters(ids ...string) {
	for _, id := range ids {
		x.o.Record.MemberList.Members = append(x.o.Record.MemberList.Members, leases.ListedMember{ID: id})
	}
}
