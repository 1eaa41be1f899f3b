package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// mark makes the leader's agent report that the data of the first member differs from that of a majority.
func (x *rescue) mark() {
	m := x.member(0)
	m.Reports.Differs = leases.Difference{MemberID: leases.FormatID(m.Reports.ID), Revision: 90, Confirmed: 80, Hash: "a", Majority: "b"}
}

// Data that is known to differ becomes the data of the cluster only by an approval that knows it, also under the policy Automatic.
func TestDifferingDataNeedsAnApproval(t *testing.T) {
	const differs, undecided, alarm = "differs from that of a majority", "no majority has the same", "etcd raised an alarm CORRUPT for member demo-a"
	for name, test := range map[string]struct {
		change func(*rescue)
		rule   string
		source string
		needs  string // "" for none
	}{
		"no mark": {func(x *rescue) { x.report(1, leases.DiskEmpty) }, "prepare", "demo-a", ""},
		"the only disk": {func(x *rescue) {
			x.report(1, leases.DiskEmpty)
			x.mark()
		}, "propose", "demo-a", differs},
		"the only disk, and its Lease has no member ID": {func(x *rescue) {
			x.report(1, leases.DiskEmpty)
			x.mark()
			x.member(0).Reports.ID = 0
		}, "propose", "demo-a", differs},
		"the mark of an earlier member ID": {func(x *rescue) {
			x.report(1, leases.DiskEmpty)
			x.member(0).Reports.Differs.MemberID = "99"
		}, "prepare", "demo-a", ""},
		"an etcd that runs": {func(x *rescue) {
			x.report(1, leases.DiskEmpty)
			x.mark()
			x.member(0).Reports.Disk, x.member(0).Reports.Reason = nil, ""
		}, "propose", "demo-a", differs},
		"an alarm on its own disk": {func(x *rescue) {
			x.report(1, leases.DiskEmpty)
			x.member(0).Reports.Disk.Corrupt = "a"
		}, "propose", "demo-a", alarm},
		"an alarm on another disk": {func(x *rescue) {
			c := x.report(1, leases.DiskCorrupt)
			c.WholeDB, c.Applied, c.Tail, c.Corrupt = true, 40, 10, "a"
		}, "propose", "demo-a", alarm},
		"an alarm on another disk that ends before its own": {func(x *rescue) {
			c := x.report(1, leases.DiskCorrupt)
			c.WholeDB, c.Applied, c.Corrupt = true, 40, "a"
		}, "prepare", "demo-a", ""},
		"an alarm without a member": {func(x *rescue) {
			x.report(1, leases.DiskEmpty)
			x.member(0).Reports.Disk.Corrupt = "0"
		}, "propose", "demo-a", alarm},
		"an alarm for another member": {func(x *rescue) {
			x.report(1, leases.DiskEmpty)
			x.member(0).Reports.Disk.Corrupt = "b"
		}, "prepare", "demo-a", ""},
		"a tie": {func(x *rescue) {
			x.report(1, leases.DiskEmpty)
			x.o.Record.Undecided = leases.Undecided{Hashes: "a,b"}
		}, "propose", "demo-a", undecided},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.d.Recovery.Automatic = true
			x.report(0, leases.DiskIntact)
			x.report(2, leases.DiskEmpty)
			test.change(x)
			r := x.wants(t, test.rule)
			if r.plan.source.member.Name != test.source {
				t.Errorf("the source is %s, want %s", r.plan.source.member.Name, test.source)
			}
			knows := func(words string) bool {
				return slices.ContainsFunc(r.plan.needs, func(n string) bool { return strings.Contains(n, words) })
			}
			for _, words := range []string{differs, undecided, alarm} {
				if got := knows(words); got != (words == test.needs) {
					t.Errorf("the plan says %q: %t, and is %v", words, got, r.plan.needs)
				}
			}
		})
	}
}

// The disk of another member is better, although that of the differing member comes first by name.
func TestDifferingDiskIsNotTheBest(t *testing.T) {
	x := newRescue(5)
	x.d.Recovery.Automatic = true
	for i := range 5 {
		x.report(i, leases.DiskEmpty)
	}
	x.report(0, leases.DiskIntact)
	x.report(1, leases.DiskIntact)
	if r := x.wants(t, "prepare"); r.plan.source.member.Name != "demo-a" {
		t.Fatalf("without a mark, the source is %s", r.plan.source.member.Name)
	}
	x.mark()
	if r := x.wants(t, "prepare"); r.plan.source.member.Name != "demo-b" || len(r.plan.needs) > 0 {
		t.Errorf("the source is %s, which needs %v", r.plan.source.member.Name, r.plan.needs)
	}
}

// A mark that comes after the order is noticed before the order is executed.
func TestDifferingDataStopsAutomaticOrder(t *testing.T) {
	x := newRescue(3)
	x.d.Recovery.Automatic = true
	x.report(0, leases.DiskIntact)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	x.apply(t, PrepareRecovery)
	for i, state := range []leases.DiskState{leases.DiskIntact, leases.DiskEmpty, leases.DiskEmpty} {
		x.report(i, state)
	}
	x.wants(t, "execute")
	x.mark()
	x.wants(t, "changed")
}

// An alarm on an earlier disk does not stand any more if a later one has none. What is not certain keeps it.
func TestDisarmedAlarmIsNoDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		change func(earlier, later *Member)
		doubt  bool
	}{
		"a stale disk from before":                    {func(_, _ *Member) {}, false},
		"any member":                                  {func(earlier, _ *Member) { earlier.Reports.Disk.Corrupt = "0" }, false},
		"a damaged log from before":                   {func(earlier, _ *Member) { damagedUpTo(earlier.Reports.Disk, 40) }, false},
		"a damaged log that ends with the later disk": {func(earlier, _ *Member) { damagedUpTo(earlier.Reports.Disk, 50) }, true},
		"a disk that ends with the later one":         {func(earlier, _ *Member) { earlier.Reports.Disk.Last = 50 }, true},
		"a disk that goes on after the later one":     {func(earlier, _ *Member) { earlier.Reports.Disk.Last = 51 }, true},
		"a later disk that is not known to be committed up to there": {func(_, later *Member) {
			later.Reports.Disk.Commit, later.Reports.Disk.Applied = 39, 39
		}, true},
		"a later disk that did not get the end": {func(earlier, later *Member) {
			earlier.Reports.Disk.Commit, earlier.Reports.Disk.LastTerm, later.Reports.Disk.LastTerm = 39, 2, 3
		}, true},
		"a later disk of the same leader": {func(earlier, later *Member) {
			earlier.Reports.Disk.Commit, earlier.Reports.Disk.LastTerm, later.Reports.Disk.LastTerm = 39, 3, 3
		}, false},
		"a later database that is":            {func(_, later *Member) { later.Reports.Disk.Commit = 39 }, false},
		"a later disk with the alarm":         {func(_, later *Member) { later.Reports.Disk.Corrupt = "a" }, true},
		"a later disk with one of another ID": {func(_, later *Member) { later.Reports.Disk.Corrupt = "b" }, false},
		"a later disk that is stale":          {func(_, later *Member) { later.Reports.Disk.State = leases.DiskStale }, true},
		"a later disk with a damaged log":     {func(_, later *Member) { damagedUpTo(later.Reports.Disk, 50) }, true},
		"a later disk of another volume":      {func(_, later *Member) { later.Reports.VolumeUID = "other" }, true},
		"a later disk of a later raft group":  {func(_, later *Member) { later.Reports.Disk.Cluster, later.Reports.Disk.Epoch = "8", 2 }, true},
		"an older agent":                      {func(_, later *Member) { later.Agent = AgentOutdated }, true},
		"a later disk whose data differs": {func(_, later *Member) {
			later.Reports.Differs = leases.Difference{MemberID: leases.FormatID(later.Reports.ID), Hash: "a", Majority: "b"}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(5)
			earlier := x.report(1, leases.DiskStale)
			earlier.Last, earlier.Commit, earlier.Applied, earlier.Corrupt = 40, 40, 40, "a"
			x.report(2, leases.DiskIntact)
			x.report(0, leases.DiskStale)
			x.member(0).Reports.Disk.Last = 30
			test.change(x.member(1), x.member(2))
			if got := x.member(0).calledCorrupt(x.o); got != test.doubt {
				t.Errorf("the first member is in doubt: %t", got)
			}
		})
	}
	x := newRescue(5)
	x.report(1, leases.DiskStale).Corrupt = "99"
	x.report(2, leases.DiskIntact).Last = 60
	x.report(0, leases.DiskIntact).Member = "99" // a learner, about which the other disks report nothing
	if !x.member(0).calledCorrupt(x.o) {
		t.Error("a disk that has no vote of the member disarms the alarm")
	}
}

// damagedUpTo is a disk whose log is damaged, and is known to be committed up to an index.
func damagedUpTo(c *leases.DiskReport, end uint64) {
	c.State, c.WholeDB, c.Applied, c.Tail, c.Last = leases.DiskCorrupt, true, end-10, 10, 90
}

// You approved a loss from a disk that nothing measures. It is no approval of another source.
func TestUnmeasuredLossIsOfItsSource(t *testing.T) {
	x := newRescue(3).backedUp()
	disks := func(first leases.DiskState) {
		x.report(0, first)
		x.report(1, leases.DiskEmpty)
		x.report(2, leases.DiskEmpty)
	}
	disks(leases.DiskStale)
	r := x.wants(t, "propose")
	if r.plan.source.mode != leases.RecoverSurvivor || r.plan.measured {
		t.Fatalf("the plan is %+v", r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	disks(leases.DiskEmpty)
	if r := x.wants(t, "changed"); r.plan.source.mode != leases.RecoverBackup {
		t.Errorf("the plan is %+v", r.plan)
	}
	disks(leases.DiskStale)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	x.gone(0)
	x.wants(t, "chosen-lost")
	x.apply(t, PrepareRecovery)
	x.member(0).Claim, x.member(0).Pod = ClaimPresent, PodLive
	disks(leases.DiskEmpty)
	x.wants(t, "changed")
}

// The approved disk is lost before it is used. Another disk with an unknown loss, or with data that differs, needs its own approval.
func TestAnApprovedDiskIsNoOtherDisk(t *testing.T) {
	x := newRescue(3)
	x.report(0, leases.DiskStale)
	x.report(1, leases.DiskIntact)
	x.member(1).Reports.Differs = leases.Difference{MemberID: x.member(1).Reports.Disk.Member, Hash: "a", Majority: "b"}
	x.report(2, leases.DiskEmpty)
	r := x.wants(t, "propose")
	if r.plan.source.member.Name != "demo-a" || r.plan.measured {
		t.Fatalf("the plan is %+v", r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	x.report(0, leases.DiskCorrupt)
	x.report(1, leases.DiskIntact)
	x.report(2, leases.DiskEmpty)
	if r := x.wants(t, "changed"); r.plan.source.member.Name != "demo-b" {
		t.Errorf("the plan is %+v", r.plan)
	}
}

// You approved a disk whose loss nothing measures. That its data differs needs an approval that knows it, also if it is found later.
func TestADoubtFoundLaterNeedsAnApproval(t *testing.T) {
	for name, doubt := range map[string]func(*rescue){
		"a mark":   (*rescue).mark,
		"an alarm": func(x *rescue) { x.member(0).Reports.Disk.Corrupt = "a" },
		"a tie":    func(x *rescue) { x.o.Record.Undecided = leases.Undecided{Hashes: "a,b"} },
	} {
		for known, rule := range map[bool]string{true: "execute", false: "changed"} {
			x := newRescue(3)
			disks := func(doubted bool) {
				x.report(0, leases.DiskStale)
				x.report(1, leases.DiskEmpty)
				x.report(2, leases.DiskEmpty)
				if doubted {
					doubt(x)
				}
			}
			disks(known)
			x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
			x.apply(t, PrepareRecovery)
			disks(true)
			if r := x.decide(); r.rule != rule {
				t.Errorf("%s, which the approval knows: %t: by rule %s, want %s", name, known, r.rule, rule)
			}
			x.d.Recovery.Approved = x.decide().plan.hash
			x.wants(t, "execute")
		}
	}
}

// No majority has the same data, and you approved one disk. The other one does not take its place because its log is longer.
func TestATieIsNotDecidedByLogs(t *testing.T) {
	x := newRescue(5)
	x.o.Record.Undecided = leases.Undecided{Hashes: "a,b"}
	disks := func(last uint64) {
		x.report(0, leases.DiskIntact)
		x.report(1, leases.DiskIntact).Last = last
		for i := range 3 {
			x.report(2+i, leases.DiskEmpty)
		}
	}
	disks(50)
	r := x.wants(t, "propose")
	if r.plan.source.member.Name != "demo-a" {
		t.Fatalf("the plan is %+v", r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	disks(51)
	x.d.Recovery.Approved = ""
	if r := x.wants(t, "changed"); r.plan.source.member.Name != "demo-b" {
		t.Errorf("the plan is %+v", r.plan)
	}
	x.d.Recovery.Approved = x.decide().plan.hash
	x.wants(t, "execute")
	// The second one is lost. The first one needs its own approval again.
	x.apply(t, ExecuteRecovery)
	x.gone(1)
	x.wants(t, "chosen-lost")
	x.apply(t, PrepareRecovery)
	for _, i := range []int{0, 2, 3, 4} {
		x.acknowledges(i)
	}
	x.d.Recovery.Approved = ""
	x.wants(t, "changed")
}

// Of two disks with the same data, the one with room is used.
func TestADiskWithRoomIsUsed(t *testing.T) {
	x := newRescue(5)
	for i := range 5 {
		x.report(i, leases.DiskEmpty)
	}
	x.report(0, leases.DiskIntact).Free = 1
	x.report(1, leases.DiskIntact)
	if r := x.wants(t, "propose"); r.plan.source.member.Name != "demo-b" {
		t.Errorf("the plan is %+v", r.plan)
	}
}

// You approve a plan while an order stands that was written for another loss. The order then has the limits of your approval, so that a
// better disk that comes back is within them.
func TestAnApprovalOfAStandingOrderIsItsLimit(t *testing.T) {
	x := newRescue(3)
	x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions = true, new(int64(0))
	disks := func(tail uint64) {
		x.report(0, leases.DiskIntact).Last = 50 - tail
		x.member(0).Reports.Disk.Revision = 100 - int64(tail)
		x.report(1, leases.DiskEmpty)
		x.report(2, leases.DiskEmpty)
	}
	disks(0)
	x.apply(t, PrepareRecovery)
	disks(20)
	r := x.wants(t, "changed")
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); !o.Approved || o.Unmeasured || o.Disputed || o.Revisions != r.plan.revisions || o.Seconds != r.plan.seconds {
		t.Errorf("the order is %+v, and the plan was %+v", o, r.plan)
	}
}
