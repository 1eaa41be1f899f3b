package policy

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestRecoveryPreconditions: a recovery needs a lost quorum, an approval and fences.
func TestRecoveryPreconditions(t *testing.T) {
	checkTable(t, recoveryRows, "recovery", "A lost quorum: druid/policy.recoveryRows", func(f recoveryFacts, d rules.Decision[recoveryVerdict]) string {
		orders := d.Verdict&(recoverPrepare|recoverExecute) != 0
		switch {
		case d.Verdict != recoverNothing && (f.applies == rules.No || f.corrects == rules.Yes):
			return "acts on a cluster that is not druid's to recover, or releases a record that is behind"
		case orders && f.quorum == rules.Yes:
			return "orders a recovery while a quorum serves"
		case d.Verdict == recoverPrepare && f.standing&standingVoid != 0 && (f.overdue == rules.No || f.approved == rules.No && f.automatic == rules.No):
			return "orders what was not approved, or too early"
		case d.Verdict == recoverPrepare && f.standing&standingVoid != 0 && f.returns != returnsNot && f.approved == rules.No:
			return "gives up a majority without an approval"
		case d.Verdict == recoverExecute && (f.standing != standingPrepare || f.acks == acksFew && (f.further == rules.No || f.approved == rules.No)):
			return "executes without fences"
		case d.Verdict == recoverExecute && f.worse == rules.Yes && f.approved == rules.No:
			return "loses more than was approved"
		case orders && f.returns == returnsFenced:
			return "replaces a raft group of which a quorum is intact"
		case f.applies == rules.Yes && f.corrects == rules.No && f.standing == standingExecute && f.returns == returnsFenced && d.Verdict != recoverRelease:
			return "lets an agent replace a raft group of which a quorum is intact"
		case d.Verdict == recoverRelease && f.quorum != rules.Yes && f.returns != returnsFenced:
			return "releases an order without a quorum"
		case d.Verdict == recoverPrepare && f.standing == standingExecute && f.chosen == rules.Yes && (f.better == rules.No || f.worse == rules.Yes) &&
			(f.failed == rules.No || f.otherwise == rules.No):
			return "replaces an order that an agent executes, without a better disk or a failure"
		case d.Verdict == recoverWait && f.standing == standingExecute && f.failed == rules.Yes:
			return "waits for an order that fails again and again"
		case d.Verdict == recoverPrepare && f.standing == standingPrepare:
			return "orders again what is prepared"
		case d.Verdict&(recoverPropose|recoverPrepare|recoverExecute) != 0 && (f.obstacle == rules.Yes || f.applies == rules.No || f.quorum == rules.Yes):
			return "needs a plan, and there is none"
		case d.Verdict == recoverWait && f.obstacle == rules.Yes && f.overdue == rules.Yes && f.standing&standingVoid != 0:
			return "waits for you, and no alert says so"
		}
		return ""
	})
}

// Two of three volumes are wiped: a plan is shown, approved, prepared and executed.
func TestASurvivorIsRecoveredAfterAnApproval(t *testing.T) {
	x := newRescue(3)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	r := x.wants(t, "propose")
	if r.plan.source.member.Name != "demo-a" || r.plan.source.mode != leases.RecoverSurvivor || len(r.plan.giveUp) != 0 || r.plan.revisions != 0 ||
		r.plan.seconds != 15 {
		t.Fatalf("plan %+v", r.plan)
	}
	if _, ok := Evaluate(x.d, x.o).recoveryStep(); ok {
		t.Fatal("a plan is carried out without an approval")
	}
	status := recoveryStatus(Evaluate(x.d, x.o), nil, metav1.NewTime(rescueStart))
	if status.Phase != v1alpha1.RecoveryProposed ||
		status.Approve != "kubectl annotate etcdcluster --namespace ns demo --overwrite etcd.druid.dev/recover="+r.plan.hash || status.Plan.Member != "demo-a" {
		t.Errorf("status %+v", status)
	}
	x.d.Recovery.Approved = "000000000000"
	x.wants(t, "propose")
	x.d.Recovery.Approved = r.plan.hash
	x.wants(t, "prepare")
	x.apply(t, PrepareRecovery)
	x.wants(t, "await-acknowledgements")
	x.report(1, leases.DiskEmpty)
	x.wants(t, "await-acknowledgements")
	x.report(0, leases.DiskIntact)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); o.Stage != leases.StageExecute || o.Chosen != "demo-a" || o.Report != x.member(0).Reports.Disk.Digest() || o.Epoch != 2 {
		t.Errorf("order %+v", o)
	}
	x.wants(t, "executing")
	// The group is formed. The old approval does nothing about the next loss.
	a := leases.RecoveryAttempt{Order: x.o.Record.Order().Name(), Nonce: "ff", PodUID: "pod-demo-a", ClusterID: "8"}
	claimed, err := x.o.Record.Claimed(a)
	if err != nil {
		t.Fatal(err)
	}
	formed, err := claimed.Reformed(a, leases.Recovered{Epoch: 2, Mode: leases.RecoverSurvivor, Member: "demo-a", Revision: 1000},
		leases.Fork{Parent: "00000001-aa", Revision: 7})
	if err != nil {
		t.Fatal(err)
	}
	x.o.Record, x.o.RecordState = formed, RecordFormed
	last := recoveryStatus(Evaluate(x.d, x.o), status, metav1.NewTime(rescueStart))
	if last == nil || last.Last == nil || last.Last.Epoch != 2 {
		t.Errorf("status %+v", last)
	}
	if step, ok := Evaluate(x.d, x.o).recoveryStep(); ok {
		t.Errorf("an approval is used twice: %+v", step)
	}
}

// TestAwayMajorityKeptByDruid: a majority that is away is not given up by druid.
// A majority that is merely away is not lost: only an approval that names its members gives it up.
func TestAwayMajorityKeptByDruid(t *testing.T) {
	x := newRescue(3)
	x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions, x.d.Recovery.MaxSeconds = true, nil, new(int64(1<<40))
	x.away(1)
	x.away(2)
	r := x.wants(t, "give-up")
	if !slices.Equal(r.plan.giveUp, []string{"demo-b", "demo-c"}) {
		t.Fatalf("plan %+v", r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	x.report(0, leases.DiskIntact)
	x.wants(t, "execute")
	// One of them comes back with its data: the approval asserted that it was destroyed, and it is not.
	x.member(1).NodeLost = false
	x.report(1, leases.DiskIntact)
	x.continues(t, 2)
}

func TestAnAutomaticRecoveryKeepsItsBounds(t *testing.T) {
	start := func(t *testing.T) *rescue {
		x := newRescue(3)
		x.d.Recovery.Automatic = true
		x.report(1, leases.DiskEmpty)
		x.report(2, leases.DiskEmpty)
		x.wants(t, "prepare")
		x.apply(t, PrepareRecovery)
		x.report(0, leases.DiskIntact)
		x.report(1, leases.DiskEmpty)
		return x
	}
	checkRules(t, start, map[string]ruleTest{
		"within the bounds":                 {func(*rescue) {}, "execute"},
		"a loss of one revision":            {func(x *rescue) { x.ahead(101) }, "changed"},
		"a survivor that was silent":        {func(x *rescue) { x.member(0).Renewed = rescueStart.Add(-time.Hour) }, "changed"},
		"no bound of revisions":             {func(x *rescue) { x.ahead(101); x.d.Recovery.MaxRevisions = nil }, "execute"},
		"no bound of seconds":               {func(x *rescue) { x.d.Recovery.MaxSeconds = nil }, "changed"},
		"writes of others that the log has": {func(x *rescue) { x.member(1).Reports.Revision, x.member(0).Reports.Disk.Tail = 101, 1 }, "execute"},
		"a log that ends with no writes": {func(x *rescue) {
			x.ahead(110)
			x.member(0).Reports.Disk.Tail, x.member(0).Reports.Disk.Last = 10, 59
		}, "changed"},
		"a backup of more than the database": {func(x *rescue) {
			x.member(0).Reports.Disk.Tail, x.member(0).Reports.Disk.Last = 10, 60
			x.o.Delta.Reports = leases.Backup{Revision: 105, Lineage: "00000001-aa"}
		}, "changed"},
		"a survivor that is stale":        {func(x *rescue) { x.member(0).Reports.Disk.State = leases.DiskStale }, "changed"},
		"a recovery ten minutes ago":      {func(x *rescue) { x.o.RecoveredRecently = true }, "changed"},
		"a quorum that serves":            {func(x *rescue) { x.member(0).Liveness = leases.Live }, "quorum-returned"},
		"a record that is behind":         {func(x *rescue) { x.member(2).Reports.Epoch = 2 }, "record-behind"},
		"a disk report of another volume": {func(x *rescue) { x.member(0).Reports.VolumeUID = "other" }, "await-acknowledgements"},
		"a disk report of another Pod":    {func(x *rescue) { x.member(1).Reports.PodUID = "other" }, "await-acknowledgements"},
		"a disk report twice": {func(x *rescue) {
			c := *x.member(0).Reports.Disk
			c.Pod, c.Volume = "pod-demo-c", "vol-demo-c"
			x.member(2).Reports.Disk = &c
		}, "await-acknowledgements"},
		"a disk report of another raft group": {func(x *rescue) { x.member(0).Reports.Disk.Cluster = "99" }, "await-acknowledgements"},
		"a list with more voters":             {func(x *rescue) { x.member(0).Reports.Disk.Voters = "a,b,c,d,e,f,1" }, "await-acknowledgements"},
		"an etcd that ends again":             {func(x *rescue) { x.member(0).Reports.Disk.State = leases.DiskFailing }, "refused"},
		"a survivor whose volume is full":     {func(x *rescue) { x.member(0).Reports.Disk.Size, x.member(0).Reports.Disk.Free = 9, 8 }, "refused"},
		"a volume with room for the database alone": {
			func(x *rescue) { x.member(0).Reports.Disk.Size, x.member(0).Reports.Disk.Free = 9, 8+newLogSpace }, "refused",
		},
		"a volume with room for a new log too": {
			func(x *rescue) { x.member(0).Reports.Disk.Size, x.member(0).Reports.Disk.Free = 9, 9+newLogSpace }, "execute",
		},
	})
}

func TestABackupIsTheSourceWhereItHoldsMore(t *testing.T) {
	x := newRescue(3)
	x.d.Backup = true
	for i := range 3 {
		x.report(i, leases.DiskEmpty)
	}
	x.wants(t, "refused")
	x.o.Full.Reports = leases.Backup{Revision: 90, Lineage: "00000001-aa"}
	x.o.Delta.Reports = leases.Backup{Revision: 98, Lineage: "00000001-aa"}
	x.o.SavedUntil = rescueStart.Add(-30 * time.Second)
	r := x.wants(t, "propose")
	if p := r.plan; p.source.mode != leases.RecoverBackup || p.source.revision != 98 || p.revisions != 2 || p.seconds != 45 {
		t.Errorf("plan %+v", r.plan)
	}
	x.d.Recovery.Approved = r.plan.hash
	x.apply(t, PrepareRecovery)
	x.report(0, leases.DiskEmpty)
	x.report(1, leases.DiskEmpty)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); o.Mode != leases.RecoverBackup || o.Chosen != "demo-a" || o.Revision != 98 || o.Lineage != "00000001-aa" {
		t.Errorf("order %+v", o)
	}
	// The chosen disk changes after the order: another member takes its place, by a later order.
	x.gone(0)
	x.wants(t, "chosen-lost")
	x.apply(t, PrepareRecovery)
	if o := x.o.Record.Order(); o.Epoch != 3 || o.Chosen != "demo-b" || o.Stage != leases.StagePrepare || o.Seconds != 45 {
		t.Errorf("order %+v", o)
	}
	// The others change too while it is executed: nothing is left that could restore the backup.
	x.report(1, leases.DiskEmpty)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	for _, i := range []int{1, 2} {
		x.gone(i)
	}
	x.wants(t, "chosen-lost-refused")
	if s := recoveryStatus(Evaluate(x.d, x.o), nil, metav1.NewTime(rescueStart)); s.Phase != v1alpha1.RecoveryRefused ||
		!strings.Contains(s.Message, "Bring back a node") {
		t.Errorf("status %+v", s)
	}
}

// A backup is restored by a member that is here, whatever one that is away reported before.
func TestABackupIsRestoredByAMemberThatIsHere(t *testing.T) {
	x := newRescue(3)
	x.d.Backup, x.o.SavedUntil = true, rescueStart
	x.o.Full.Reports = leases.Backup{Revision: 90, Lineage: "00000001-aa"}
	for i := range 3 {
		x.report(i, leases.DiskEmpty)
	}
	x.report(0, leases.DiskIntact).Lineage = "00000001-aa"
	x.away(0)
	if p := x.wants(t, "propose").plan; p.source.mode != leases.RecoverBackup || p.source.member.Name != "demo-b" {
		t.Errorf("plan %+v", p)
	}
}

// TestNewerAwayMemberNeedsApproval: a member that is away and holds more needs an approval.
// A member that is away committed more than the best log that is here has: druid does not decide alone.
func TestNewerAwayMemberNeedsApproval(t *testing.T) {
	x := newRescue(5)
	for _, i := range []int{1, 2, 3} {
		x.report(i, leases.DiskEmpty)
	}
	x.report(0, leases.DiskIntact)
	x.away(4)
	x.d.Recovery.Automatic, x.d.Recovery.MaxRevisions = true, nil
	x.wants(t, "prepare")
	x.member(4).Reports.Raft = leases.Raft{Term: 2, Committed: 51} // as agents report it
	r := x.wants(t, "propose")
	if !strings.Contains(r.plan.words(), "demo-e is away and holds more") {
		t.Errorf("the plan says %s", r.plan.words())
	}
}

// The raft group that was formed again is lost before another member voted, and the record does not say where it came from. The disks of
// the earlier one are named.
func TestTheDataOfAnEarlierRaftGroupIsNamed(t *testing.T) {
	x := newRescue(3)
	x.report(1, leases.DiskIntact)
	x.report(2, leases.DiskIntact)
	x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch, x.o.Record.MemberList = 8, 2, 2, nil
	x.gone(0)
	for i := range 3 {
		x.member(i).Reports.ID = 0
	}
	if r := x.decide(); !strings.Contains(r.obstacle, "The volumes of demo-b, demo-c have the data of an earlier raft group: do not delete them") {
		t.Errorf("by rule %s, the obstacle is %q", r.rule, r.obstacle)
	}
}

// TestNoRaftGroupAfterLargestEpoch: no raft group is formed after the largest epoch.
// An epoch that no agent reaches by counting is no reason to begin at the first one again.
func TestNoRaftGroupAfterLargestEpoch(t *testing.T) {
	x := newRescue(3)
	x.report(0, leases.DiskIntact)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	x.member(1).Reports.Disk.Prepared = math.MaxUint32
	x.d.Recovery.Automatic = true
	if r := x.decide(); r.plan != nil || !strings.Contains(r.obstacle, "reports the largest epoch") {
		t.Errorf("by rule %s, the obstacle is %q, the plan %+v", r.rule, r.obstacle, r.plan)
	}
	if step, ok := Evaluate(x.d, x.o).recoveryStep(); ok {
		t.Errorf("druid takes step %+v", step)
	}
}

// A hash is of no use for another cluster, epoch, source or loss, also if the same members go away again.
func TestTheHashOfAPlanCoversWhatYouApprove(t *testing.T) {
	base := func(change func(*rescue)) string {
		x := newRescue(3)
		x.report(1, leases.DiskEmpty)
		x.report(2, leases.DiskEmpty)
		change(x)
		return x.decide().plan.hash
	}
	first := base(func(*rescue) {})
	if again := base(func(*rescue) {}); again != first {
		t.Errorf("the hash changes without a cause: %s, %s", first, again)
	}
	for name, change := range map[string]func(*rescue){
		"EtcdCluster": func(x *rescue) { x.d.Recovery.Cluster = "other" },
		"raft group":  func(x *rescue) { x.o.Record.ClusterID = 8; x.member(0).Reports.ClusterID = 8 },
		"epoch":       func(x *rescue) { x.o.Record.Released = 5 },
		"loss":        func(x *rescue) { x.ahead(200) },
		"later loss": func(x *rescue) {
			for i := range 3 {
				x.member(i).Renewed = rescueStart.Add(time.Hour)
			}
		},
		"source": func(x *rescue) { x.report(0, leases.DiskEmpty); x.report(1, leases.DiskIntact) },
	} {
		if base(change) == first {
			t.Errorf("the hash does not cover: %s", name)
		}
	}
}
