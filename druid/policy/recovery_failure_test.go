package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// TestFailedOrderSaysWhatToDo: an order that cannot be carried out says what to do.
// The selected member cannot restore the backup. druid says what to do, and replaces its Pod when the spec was corrected. It takes another
// source if there is one by then, and the plan for that needs its own approval.
func TestFailedOrderSaysWhatToDo(t *testing.T) {
	for failure, repair := range map[leases.RestoreFailure]string{
		leases.FailedQuota: "Increase spec.etcd.quotaBackendBytes", leases.FailedVersion: "Set spec.version", leases.FailedKey: "Add the key",
		leases.FailedBackups: "Put good copies", leases.FailedSpace: "Increase spec.storage.size", leases.FailedAuth: "Set spec.auth", "later": "See the message",
	} {
		x := fromBackup(t)
		x.member(0).Reports.Disk.Failed, x.member(0).Reports.Reason = failure, "the database has 9 bytes."
		r := x.wants(t, "cannot-execute")
		if want := "member demo-a cannot restore the backup (" + string(failure) + ": the database has 9 bytes). " + repair; !strings.HasPrefix(r.obstacle, want) {
			t.Errorf("it says %q, want %q", r.obstacle, want)
		}
		if p, ok := recoveryProblem(r); !ok || p.Reason != v1alpha1.ReasonRecoveryRefused {
			t.Errorf("the problem is %+v", p)
		}
	}
	replaced := func(change func(*rescue, *Member)) bool {
		x := fromBackup(t)
		m := x.member(0)
		m.Reports.Disk.Failed, m.Make = leases.FailedQuota, MakeOutdated
		change(x, m)
		return slices.ContainsFunc(Steps(Evaluate(x.d, x.o)), func(s Step) bool {
			if s.Kind == DeletePod && s.Member != "demo-a" {
				t.Errorf("step %+v", s)
			}
			return s.Kind == DeletePod
		})
	}
	for name, test := range map[string]struct {
		want   bool
		change func(*rescue, *Member)
	}{
		"a corrected spec":              {true, func(*rescue, *Member) {}},
		"the same spec":                 {false, func(_ *rescue, m *Member) { m.Make = MakeCurrent }},
		"an order that does not fail":   {false, func(_ *rescue, m *Member) { m.Reports.Disk.Failed = "" }},
		"a failure of an earlier order": {false, func(_ *rescue, m *Member) { m.Reports.Disk.Order = "1-aa" }},
		"a Pod that ended":              {false, func(_ *rescue, m *Member) { m.Pod = PodTerminating }},
		"a node that is away":           {false, func(x *rescue, _ *Member) { x.away(0) }},
		"nothing in the Pod":            {true, func(_ *rescue, m *Member) { m.Claim = ClaimUnwanted }},
		"data in the Pod":               {false, func(x *rescue, m *Member) { m.Claim, m.Reports.Disk.State = ClaimUnwanted, leases.DiskStale }},
	} {
		if got := replaced(test.change); got != test.want {
			t.Errorf("%s: the Pod is replaced: %t", name, got)
		}
	}
	x := fromBackup(t)
	x.member(0).Reports.Disk.Failed = leases.FailedBackups
	x.nodeReturns(1)
	less := func() {
		c := x.report(1, leases.DiskIntact)
		c.Revision, c.Last = 30, 20
	}
	less()
	if r := x.wants(t, "cannot-execute"); !strings.Contains(r.obstacle, "Or remove spec.backup, to recover from the disk of member demo-b, up to revision 30") {
		t.Errorf("it does not name the disk: %q", r.obstacle)
	}
	x.d.Backup = false
	x.wants(t, "cannot-execute-otherwise")
	x.apply(t, PrepareRecovery)
	x.report(0, leases.DiskEmpty)
	less()
	x.d.Recovery.Approved = x.wants(t, "changed").plan.hash
	x.wants(t, "execute")
}

// fromDisk is a cluster whose first member forms the raft group from its disk by an order that you approved. The other disks are empty.
func fromDisk(t *testing.T) *rescue {
	t.Helper()
	x := newRescue(3)
	return x.executes(t, leases.RecoverSurvivor, func() {
		x.report(0, leases.DiskIntact)
		x.report(1, leases.DiskEmpty)
		x.report(2, leases.DiskEmpty)
	})
}

// TestFailedDiskOrderKeepsItsSource: an order to use a disk that cannot be carried out says what to do, and keeps its source.
// druid replaces the Pod by one of the corrected spec, if no data is in the Pod. It orders nothing else by itself, also if another disk has
// other data or a backup is there, because the approval named this disk and what is lost with it.
func TestFailedDiskOrderKeepsItsSource(t *testing.T) {
	for failure, repair := range map[leases.RestoreFailure]string{
		leases.FailedSpace: "Increase spec.storage.size", leases.FailedVersion: "Set spec.version to the version of etcd that wrote the data",
		leases.FailedData: "Keep the volume", "later": "See the message",
	} {
		x := fromDisk(t)
		x.member(0).Reports.Disk.Failed, x.member(0).Reports.Reason = failure, "9 MiB are free."
		r := x.wants(t, "cannot-execute")
		want := "member demo-a cannot form the cluster again from its disk (" + string(failure) + ": 9 MiB are free). " + repair
		if !strings.HasPrefix(r.obstacle, want) {
			t.Errorf("it says %q, want %q", r.obstacle, want)
		}
		if p, ok := recoveryProblem(r); !ok || p.Reason != v1alpha1.ReasonRecoveryRefused {
			t.Errorf("the problem is %+v", p)
		}
	}
	for name, test := range map[string]struct {
		rule     string
		replaced bool
		change   func(*rescue, *Member)
	}{
		"nothing else is known":             {"cannot-execute", false, func(*rescue, *Member) {}},
		"an order that does not fail":       {"executing", false, func(_ *rescue, m *Member) { m.Reports.Disk.Failed = "" }},
		"the volume is full":                {"cannot-execute", false, func(_ *rescue, m *Member) { m.Reports.Disk.Size, m.Reports.Disk.Free = 9, 1 }},
		"a corrected spec":                  {"cannot-execute", true, func(_ *rescue, m *Member) { m.Make = MakeOutdated }},
		"a corrected spec, data in the Pod": {"cannot-execute", false, func(_ *rescue, m *Member) { m.Make, m.Claim = MakeOutdated, ClaimUnwanted }},
		"another disk has less": {"cannot-execute", false, func(x *rescue, _ *Member) {
			c := x.report(1, leases.DiskStale)
			c.Last, c.Commit, c.Revision = 40, 40, 90
			x.report(2, leases.DiskEmpty)
		}},
		"a backup has less, and the policy permits every loss": {"cannot-execute", false, func(x *rescue, _ *Member) {
			x.d.Recovery.Automatic, x.d.Backup, x.o.SavedUntil = true, true, rescueStart
			x.d.Recovery.MaxSeconds = new(int64(unbounded))
			x.d.Recovery.MaxRevisions = nil
			x.o.Full.Reports = leases.Backup{Revision: 40, Lineage: "00000001-aa"}
		}},
	} {
		x := fromDisk(t)
		x.member(0).Reports.Disk.Failed = leases.FailedSpace
		test.change(x, x.member(0))
		x.wants(t, test.rule)
		steps := Steps(Evaluate(x.d, x.o))
		if got := slices.ContainsFunc(steps, func(s Step) bool { return s.Kind == DeletePod && s.Member == "demo-a" }); got != test.replaced {
			t.Errorf("%s: the Pod is replaced: %t", name, got)
		}
		if slices.ContainsFunc(steps, func(s Step) bool { return s.Recovery != nil || s.Kind == ReleaseRecovery }) {
			t.Errorf("%s: druid changes the order: %+v", name, steps)
		}
	}
}

// Another disk has the same data as the one that the order selects, and its member can carry out the order. It is used by the same
// approval. druid never comes back to a member that failed.
func TestDiskOfSameDataIsUsedInstead(t *testing.T) {
	const otherwise, same = "cannot-execute-otherwise", "cannot-execute"
	for name, test := range map[string]struct {
		failure leases.RestoreFailure
		change  func(x *rescue, selected, other *Member)
		rule    string
	}{
		"data that cannot be used":        {leases.FailedData, func(*rescue, *Member, *Member) {}, otherwise},
		"more free space":                 {leases.FailedSpace, func(_ *rescue, _, other *Member) { other.Reports.Disk.Free = 2 * newLogSpace }, otherwise},
		"as much free space":              {leases.FailedSpace, func(*rescue, *Member, *Member) {}, same},
		"a Pod of the new version":        {leases.FailedVersion, func(_ *rescue, selected, _ *Member) { selected.Make = MakeOutdated }, otherwise},
		"two Pods of the new version":     {leases.FailedVersion, func(*rescue, *Member, *Member) {}, same},
		"no failure":                      {"", func(*rescue, *Member, *Member) {}, "executing"},
		"another failure":                 {"later", func(*rescue, *Member, *Member) {}, same},
		"a failure of an earlier order":   {leases.FailedData, func(_ *rescue, selected, _ *Member) { selected.Reports.Disk.Order = "1-aa" }, "executing"},
		"no acknowledgement":              {leases.FailedData, func(_ *rescue, _, other *Member) { other.Reports.Disk.Order = "" }, same},
		"a log that ends before":          {leases.FailedData, func(_ *rescue, _, other *Member) { other.Reports.Disk.Last = 49 }, same},
		"a log of an earlier term":        {leases.FailedData, func(_ *rescue, _, other *Member) { other.Reports.Disk.LastTerm = 1 }, same},
		"a log that ends after":           {leases.FailedData, func(_ *rescue, _, other *Member) { other.Reports.Disk.Last = 51 }, "better-disk-report"},
		"a third log that ends after":     {leases.FailedData, func(x *rescue, _, _ *Member) { x.report(2, leases.DiskIntact).Last = 51 }, "better-disk-report"},
		"older data":                      {leases.FailedData, func(_ *rescue, _, other *Member) { other.Reports.Disk.State = leases.DiskStale }, same},
		"data that a comparison disputes": {leases.FailedData, func(x *rescue, _, _ *Member) { x.o.Record.Undecided.Hashes = "a,b" }, same},
		"a longer tail of the same log":   {leases.FailedData, func(_ *rescue, _, other *Member) { other.Reports.Disk.Tail = 9 }, otherwise},
		"a Lease that was renewed before": {leases.FailedData, func(_ *rescue, _, other *Member) {
			other.Renewed = rescueStart.Add(-10 * time.Second)
		}, otherwise},
	} {
		t.Run(name, func(t *testing.T) {
			x := twoDisks(t)
			selected, other := x.member(0), x.member(1)
			selected.Reports.Disk.Failed = test.failure
			test.change(x, selected, other)
			if r := x.wants(t, test.rule); r.plan.source.class != dataIntact {
				t.Errorf("the source is %+v", r.plan.source)
			}
			if test.rule != otherwise {
				return
			}
			x.apply(t, PrepareRecovery)
			for i := range 7 {
				x.acknowledges(i) // no agent reports a failure of this order
				x.member(i).Reports.Disk.Failed = ""
			}
			selected.Reports.Disk.Tail = 50 // its log can have more revisions, and ends in the same entry
			x.wants(t, "execute")
			x.apply(t, ExecuteRecovery)
			if o := x.o.Record.Order(); o.Chosen != "demo-b" || o.Mode != leases.RecoverSurvivor {
				t.Fatalf("order %+v", o)
			}
			x.wants(t, "executing")
			x.member(1).Reports.Disk.Failed, x.member(1).Make = leases.FailedData, MakeOutdated
			x.wants(t, same)
		})
	}
}

// A newer agent may carry out what the agent of the selected member cannot. It is replaced in its Pod, because data in the Pod stays then, and
// no other agent is.
func TestTheAgentThatFailedIsReplaced(t *testing.T) {
	const agent, pod = "ReplaceAgent cannot-execute-agent-outdated demo-a", "DeletePod cannot-execute-corrected demo-a"
	for name, test := range map[string]struct {
		change func(*Member)
		want   string
	}{
		"an outdated agent":                     {func(*Member) {}, agent},
		"data in the Pod":                       {func(m *Member) { m.Claim = ClaimUnwanted }, agent},
		"data in the Pod, and a corrected spec": {func(m *Member) { m.Claim, m.Make = ClaimUnwanted, MakeOutdated }, agent},
		"a corrected spec":                      {func(m *Member) { m.Make = MakeOutdated }, pod},
		"a current agent":                       {func(m *Member) { m.Agent = AgentCurrent }, ""},
		"an order that does not fail":           {func(m *Member) { m.Reports.Disk.Failed = "" }, ""},
		"a node that is away":                   {func(m *Member) { m.NodeLost = true }, ""},
	} {
		x := fromDisk(t)
		for i := range 3 {
			x.member(i).Agent = AgentOutdated
		}
		x.member(0).Reports.Disk.Failed = leases.FailedData
		test.change(x.member(0))
		var got []string
		for _, s := range Steps(Evaluate(x.d, x.o)) {
			if s.Kind == ReplaceAgent || s.Kind == DeletePod {
				got = append(got, strings.Join([]string{string(s.Kind), s.Rule, s.Member}, " "))
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: druid takes %q, want %q", name, got, test.want)
		}
	}
}

// twoDisks is a cluster of seven whose first member forms the raft group from its disk by an order that you approved. The second one has the
// same data, and the other disks are empty.
func twoDisks(t *testing.T) *rescue {
	t.Helper()
	x := newRescue(7)
	return x.executes(t, leases.RecoverSurvivor, func() {
		for i := range 7 {
			x.report(i, map[bool]leases.DiskState{true: leases.DiskIntact, false: leases.DiskEmpty}[i < 2]).Free = newLogSpace
		}
	})
}

// Two raft groups can have logs that end at the same position.
func TestDisksOfTwoEpochsDiffer(t *testing.T) {
	one := source{report: &leases.DiskReport{}, epoch: 1, lastTerm: 2, last: 50}
	two := one
	if !one.holdsAs(two) {
		t.Error("disks of one raft group that end in the same entry differ")
	}
	if two.epoch = 2; one.holdsAs(two) {
		t.Error("disks of two raft groups are the same")
	}
}
