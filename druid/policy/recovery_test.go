package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestARecoveryNeedsALostQuorumAnApprovalAndFences(t *testing.T) {
	checkTable(t, recoveryRows, "recovery", "A lost quorum: druid/policy.recoveryRows", func(f recoveryFacts, d rules.Decision[recoveryVerdict]) string {
		orders := d.Verdict&(recoverPrepare|recoverExecute) != 0
		switch {
		case d.Verdict != recoverNothing && (f.applies == rules.No || f.behind == rules.Yes):
			return "acts on a cluster that is not druid's to recover, or releases a record that is behind"
		case orders && f.quorum == rules.Yes:
			return "orders a recovery while a quorum serves"
		case d.Verdict == recoverPrepare && f.standing == standingNone && (f.overdue == rules.No || f.approved == rules.No && f.automatic == rules.No):
			return "orders what was not approved, or too early"
		case d.Verdict == recoverPrepare && f.standing == standingNone && f.returns != returnsNot && f.approved == rules.No:
			return "gives up a majority without an approval"
		case d.Verdict == recoverExecute && (f.standing != standingPrepare || f.acks != acksEnough):
			return "executes without fences"
		case d.Verdict == recoverExecute && f.worse == rules.Yes && f.approved == rules.No:
			return "loses more than was approved"
		case orders && f.returns == returnsFenced && f.standing != standingExecute:
			return "replaces a raft group of which a quorum is intact"
		case d.Verdict == recoverRelease && f.standing == standingExecute && f.quorum != rules.Yes:
			return "releases an order that an agent executes"
		case d.Verdict == recoverPrepare && f.standing == standingPrepare:
			return "orders again what is prepared"
		}
		return ""
	})
}

const testHour = time.Hour

// rescue builds a cluster of three members that lost its quorum.
type rescue struct {
	d Desired
	o Observed
}

var rescueStart = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func newRescue(members int) *rescue {
	x := &rescue{
		d: Desired{Replicas: members, ClusterID: 7, Recovery: RecoveryWish{Cluster: "uid", Namespace: "ns", Name: "demo"}},
		o: Observed{RecordState: RecordFormed, QuorumOverdue: true, Record: leases.Record{
			ClusterID: 7, Phase: leases.PhaseFormed, Epoch: 1, FormedEpoch: 1, Nonce: "aa", Lineage: "00000001-aa", MaxLearners: 16, MemberList: &leases.MemberList{},
		}},
	}
	x.d.Recovery.MaxRevisions, x.d.Recovery.MaxSeconds = BoundsOf(nil)
	for i := range members {
		name := fmt.Sprintf("demo-%c", 'a'+i)
		x.o.Record.Members = append(x.o.Record.Members, name)
		x.o.Record.MemberList.Members = append(x.o.Record.MemberList.Members, leases.ListedMember{ID: leases.FormatID(uint64(10 + i)), Name: name})
		x.o.Members = append(x.o.Members, Member{
			Name: name, Listed: true, Lease: LeaseOurs, Readable: true, Liveness: leases.Stale, Pod: PodLive, PodUID: "pod-" + name,
			Claim: ClaimPresent, ClaimUID: "vol-" + name, Agent: AgentCurrent, Renewed: rescueStart,
			Reports: leases.Member{
				ID: uint64(10 + i), Role: leases.RoleMember, ClusterID: 7, Epoch: 1, Lineage: "00000001-aa", PodUID: "pod-" + name, VolumeUID: "vol-" + name,
				Revision: 100, Raft: leases.Raft{Term: 2, Committed: 50, LastTerm: 2, LastIndex: 50},
			},
		})
	}
	return x
}

func (x *rescue) member(i int) *Member { return &x.o.Members[i] }

// claim makes the agent of member i report a state of its disk, and acknowledge the order if there is one.
func (x *rescue) claim(i int, state leases.DiskState) *leases.Claim {
	m := x.member(i)
	c := &leases.Claim{Pod: m.PodUID, Volume: m.ClaimUID, State: state, Orders: true}
	if state != leases.DiskEmpty {
		c.Cluster, c.Member, c.Epoch, c.Lineage = "7", leases.FormatID(m.Reports.ID), 1, "00000001-aa"
		c.LastTerm, c.Last, c.Commit, c.Applied, c.Revision, c.Voters = 2, 50, 50, 50, 100, x.voters()
	}
	if o := x.o.Record.Order(); o != nil {
		c.Order, c.Prepared = o.Name(), o.Epoch
	}
	m.Reports.Disk = c
	return c
}

func (x *rescue) voters() string {
	var ids []string
	for _, m := range x.o.Record.MemberList.Members {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, ",")
}

func (x *rescue) away(i int) {
	m := x.member(i)
	m.NodeLost, m.Node, m.Volume = true, NodeAway, VolumeLocal
}

func (x *rescue) decide() recovery { return recoveryOf(x.d, x.o, x.o.listed()) }

// apply carries out the step that follows, and reports whether there was one.
func (x *rescue) apply(t *testing.T, kind Kind) {
	t.Helper()
	step, ok := Evaluate(x.d, x.o).recoveryStep()
	if !ok || step.Kind != kind {
		t.Fatalf("the step is %+v by rule %s, want %s", step, x.decide().rule, kind)
	}
	record, ok := step.ChangeRecovery(x.o.Record, "0123")
	if !ok {
		t.Fatalf("%+v does not apply to %+v", step, x.o.Record)
	}
	x.o.Record = record
	x.o.RecordState = map[leases.Phase]RecordState{leases.PhaseFormed: RecordFormed, leases.PhaseRecovering: RecordRecovering}[record.Phase]
}

func (x *rescue) wants(t *testing.T, rule string) recovery {
	t.Helper()
	r := x.decide()
	if r.rule != rule {
		t.Fatalf("rule %s, want %s: facts %+v, obstacle %q, plan %+v", r.rule, rule, r.facts, r.obstacle, r.plan)
	}
	return r
}

// Two of three volumes are wiped: a plan is shown, approved, prepared and executed.
func TestASurvivorIsRecoveredAfterAnApproval(t *testing.T) {
	x := newRescue(3)
	x.claim(1, leases.DiskEmpty)
	x.claim(2, leases.DiskEmpty)
	r := x.wants(t, "propose")
	if r.plan.source.member.Name != "demo-a" || r.plan.source.mode != leases.RecoverSurvivor || len(r.plan.giveUp) != 0 || r.plan.revisions != 0 || r.plan.seconds != 15 {
		t.Fatalf("plan %+v", r.plan)
	}
	if _, ok := Evaluate(x.d, x.o).recoveryStep(); ok {
		t.Fatal("a plan is carried out without an approval")
	}
	status := recoveryStatus(Evaluate(x.d, x.o), nil, metav1.NewTime(rescueStart))
	if status.Phase != v1alpha1.RecoveryProposed || status.Approve != "kubectl annotate etcdcluster --namespace ns demo --overwrite etcd.druid.dev/recover="+r.plan.hash || status.Plan.Member != "demo-a" {
		t.Errorf("status %+v", status)
	}
	x.d.Recovery.Approved = "000000000000"
	x.wants(t, "propose")
	x.d.Recovery.Approved = r.plan.hash
	x.wants(t, "prepare")
	x.apply(t, PrepareRecovery)
	x.wants(t, "await-acknowledgements")
	x.claim(1, leases.DiskEmpty)
	x.wants(t, "await-acknowledgements")
	x.claim(0, leases.DiskIntact)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); o.Stage != leases.StageExecute || o.Chosen != "demo-a" || o.Claim != x.member(0).Reports.Disk.Digest() || o.Epoch != 2 {
		t.Errorf("order %+v", o)
	}
	x.wants(t, "executing")
	// The group is formed. The old approval does nothing about the next loss.
	a := leases.RecoveryAttempt{Order: x.o.Record.Order().Name(), Nonce: "ff", PodUID: "pod-demo-a", ClusterID: "8"}
	claimed, err := x.o.Record.Claimed(a)
	if err != nil {
		t.Fatal(err)
	}
	formed, err := claimed.Reformed(a, leases.Recovered{Epoch: 2, Mode: leases.RecoverSurvivor, Member: "demo-a", Revision: 1000})
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

// A majority that is merely away is not lost: only an approval that names its members gives it up.
func TestAMajorityThatIsAwayIsNotGivenUpByDruid(t *testing.T) {
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
	x.claim(0, leases.DiskIntact)
	x.wants(t, "execute")
	// One of them comes back with its data: the approval asserted that it was destroyed, and it is not.
	x.member(1).NodeLost = false
	x.claim(1, leases.DiskIntact)
	x.wants(t, "majority-returned")
	x.apply(t, ReleaseRecovery)
	if x.o.Record.Phase != leases.PhaseFormed || x.o.Record.Released != 2 || x.o.Record.ClusterID != 7 {
		t.Errorf("record %+v", x.o.Record)
	}
}

func TestAnAutomaticRecoveryKeepsItsBounds(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rescue)
		rule   string
	}{
		"within the bounds":          {func(*rescue) {}, "execute"},
		"a loss of one revision":     {func(x *rescue) { x.member(1).Reports.Revision = 101 }, "changed"},
		"a survivor that was silent": {func(x *rescue) { x.member(0).Renewed = rescueStart.Add(-testHour) }, "changed"},
		"no bound of revisions":      {func(x *rescue) { x.member(1).Reports.Revision = 101; x.d.Recovery.MaxRevisions = nil }, "execute"},
		"a survivor that is stale":   {func(x *rescue) { x.member(0).Reports.Disk.State = leases.DiskStale }, "changed"},
		"a recovery ten minutes ago": {func(x *rescue) { x.o.RecoveredRecently = true }, "changed"},
		"a quorum that serves":       {func(x *rescue) { x.member(0).Liveness = leases.Live }, "quorum-returned"},
		"a record that is behind":    {func(x *rescue) { x.member(2).Reports.Epoch = 2 }, "record-behind"},
		"a claim of another volume":  {func(x *rescue) { x.member(0).Reports.VolumeUID = "other" }, "await-acknowledgements"},
		"a claim of another Pod":     {func(x *rescue) { x.member(1).Reports.PodUID = "other" }, "await-acknowledgements"},
		"a claim twice": {func(x *rescue) {
			c := *x.member(0).Reports.Disk
			c.Pod, c.Volume = "pod-demo-c", "vol-demo-c"
			x.member(2).Reports.Disk = &c
		}, "await-acknowledgements"},
		"a claim of another raft group":   {func(x *rescue) { x.member(0).Reports.Disk.Cluster = "99" }, "await-acknowledgements"},
		"a list with more voters":         {func(x *rescue) { x.member(0).Reports.Disk.Voters = "a,b,c,d,e,f,1" }, "await-acknowledgements"},
		"an etcd that ends again":         {func(x *rescue) { x.member(0).Reports.Disk.State = leases.DiskFailing }, "refused"},
		"a survivor whose volume is full": {func(x *rescue) { x.member(0).Reports.Disk.Size, x.member(0).Reports.Disk.Free = 9, 8 }, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.d.Recovery.Automatic = true
			x.claim(1, leases.DiskEmpty)
			x.claim(2, leases.DiskEmpty)
			x.wants(t, "prepare")
			x.apply(t, PrepareRecovery)
			x.claim(0, leases.DiskIntact)
			x.claim(1, leases.DiskEmpty)
			test.change(x)
			x.wants(t, test.rule)
		})
	}
}

func TestABackupIsTheSourceWhereItHoldsMore(t *testing.T) {
	x := newRescue(3)
	x.d.Backup = true
	for i := range 3 {
		x.claim(i, leases.DiskEmpty)
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
	x.claim(0, leases.DiskEmpty)
	x.claim(1, leases.DiskEmpty)
	x.wants(t, "execute")
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); o.Mode != leases.RecoverBackup || o.Chosen != "demo-a" || o.Revision != 98 || o.Lineage != "00000001-aa" {
		t.Errorf("order %+v", o)
	}
	// The chosen disk changes after the order: another member takes its place, by a later order.
	x.member(0).Claim, x.member(0).Pod = ClaimAbsent, PodAbsent
	x.wants(t, "chosen-lost")
	x.apply(t, PrepareRecovery)
	if o := x.o.Record.Order(); o.Epoch != 3 || o.Chosen != "demo-b" || o.Stage != leases.StagePrepare || o.Seconds != 45 {
		t.Errorf("order %+v", o)
	}
}

// A hash is of no use for another cluster, epoch, source or loss.
func TestTheHashOfAPlanCoversWhatYouApprove(t *testing.T) {
	base := func(change func(*rescue)) string {
		x := newRescue(3)
		x.claim(1, leases.DiskEmpty)
		x.claim(2, leases.DiskEmpty)
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
		"loss":        func(x *rescue) { x.member(1).Reports.Revision = 200 },
		"source":      func(x *rescue) { x.claim(0, leases.DiskEmpty); x.claim(1, leases.DiskIntact) },
	} {
		if base(change) == first {
			t.Errorf("the hash does not cover: %s", name)
		}
	}
}

// No combination of what three members report leads to Execute while a quorum of the published list could still serve.
func TestNoOrderIsExecutedWhileAQuorumIsNotFenced(t *testing.T) {
	kinds := []string{"running", "away", "gone", "intact", "empty", "corrupt", "stale", "failing", "intact-old", "empty-old"}
	executed := 0
	for n := range len(kinds) * len(kinds) * len(kinds) {
		x := newRescue(3)
		x.d.Backup, x.o.Full.Reports, x.o.SavedUntil = true, leases.Backup{Revision: 100, Lineage: "00000001-aa"}, rescueStart
		order, err := x.o.Record.Prepare(leases.Recovery{Epoch: 2, Nonce: "ab", Mode: leases.RecoverSurvivor, Chosen: "demo-a", Unmeasured: true, Approved: true})
		if err != nil {
			t.Fatal(err)
		}
		x.o.Record, x.o.RecordState = order, RecordRecovering
		open, intact, words := 0, 0, []string{}
		for i := range 3 {
			kind := kinds[n/pow(len(kinds), i)%len(kinds)]
			words = append(words, kind)
			state, old := strings.CutSuffix(kind, "-old")
			switch state {
			case "running":
				open++
			case "away":
				x.away(i)
				open++
			case "gone":
				x.member(i).Claim, x.member(i).Pod = ClaimAbsent, PodAbsent
			default:
				c := x.claim(i, leases.DiskState(state))
				if old {
					c.Order, c.Prepared = "", 0
					open++
				} else if state == "intact" {
					intact++
				}
			}
		}
		r := x.decide()
		if r.is(recoverExecute) {
			executed++
			if open >= 2 || intact >= 2 {
				t.Errorf("%v: executes although %d voters are not fenced and %d are intact", words, open, intact)
			}
			if step, ok := Evaluate(x.d, x.o).recoveryStep(); !ok || step.Recovery.Claim == "" {
				t.Errorf("%v: executes without an acknowledged claim: %+v", words, step)
			}
		}
		if r.is(recoverRelease) && intact < 2 {
			t.Errorf("%v: releases although only %d are intact", words, intact)
		}
	}
	if executed < 100 {
		t.Errorf("only %d combinations are executed", executed)
	}
}

func pow(base, exponent int) int {
	n := 1
	for range exponent {
		n *= base
	}
	return n
}

// Members that acknowledged an order which the record lost wait for a release, and get it where they are a quorum.
func TestMembersPreparedByALostOrderAreReleased(t *testing.T) {
	x := newRescue(3)
	for i := range 2 {
		x.claim(i, leases.DiskIntact).Prepared = 4
	}
	x.wants(t, "majority-returned")
	x.apply(t, ReleaseRecovery)
	if x.o.Record.Released != 4 || x.o.Record.Phase != leases.PhaseFormed {
		t.Errorf("record %+v", x.o.Record)
	}
	x = newRescue(3)
	x.claim(0, leases.DiskIntact).Prepared = 4
	x.claim(2, leases.DiskEmpty)
	x.wants(t, "majority-returned") // the other one runs, and has no quorum without it
	x.claim(1, leases.DiskIntact)
	x.away(1)
	x.member(1).Reports.Disk.Last = 60
	if r := x.wants(t, "give-up"); !slices.Equal(r.plan.giveUp, []string{"demo-b"}) || r.plan.source.member.Name != "demo-a" {
		t.Errorf("the plan gives up %v", r.plan.giveUp) // what it claimed before its node was off says nothing about now
	}
}

// While an order stands, druid takes no step that could lose a disk.
func TestNothingIsDeletedWhileAnOrderStands(t *testing.T) {
	x := newRescue(3)
	x.d.Replicas = 5
	x.claim(1, leases.DiskEmpty)
	x.claim(2, leases.DiskEmpty)
	x.d.Recovery.Automatic = true
	x.apply(t, PrepareRecovery)
	for i := range 3 {
		x.member(i).Stuck, x.member(i).Serving = true, true
	}
	cleared := 0
	for _, s := range Steps(Evaluate(x.d, x.o)) {
		switch s.Kind {
		case LabelPod:
			if s.Serving != nil && !*s.Serving {
				cleared++
			}
		case DeletePod, DeleteClaim, UpdateRecord, OpenSlot, StrikeName, RequestRemoval, DeleteLease:
			t.Errorf("step %+v", s)
		default:
		}
	}
	if cleared != 3 {
		t.Errorf("%d labels are cleared, want 3", cleared)
	}
}

// Two nodes are out of service, so their volumes need no acknowledgement. The survivor, which is here, still has to
// acknowledge: before that, neither a backup nor nothing is the best source.
func TestASurvivorThatIsHereIsAwaited(t *testing.T) {
	x := newRescue(3)
	for i := range 2 {
		x.away(i)
		x.member(i).Node = NodeOutOfService
	}
	x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
	x.apply(t, PrepareRecovery)
	x.wants(t, "await-acknowledgements")
	x.d.Backup = true
	x.o.Full.Reports = leases.Backup{Revision: 100, Lineage: "00000001-aa", Taken: rescueStart, Size: 1}
	x.wants(t, "await-acknowledgements")
	x.claim(2, leases.DiskIntact)
	if r := x.wants(t, "execute"); r.plan.source.mode != leases.RecoverSurvivor {
		t.Errorf("it is executed from %+v", r.plan.source)
	}
}

// The disk that acknowledged is from before the last change of the members, and so is the published list. The Leases name voters
// that can be a quorum without it.
func TestVotersThatOnlyTheirLeasesNameCount(t *testing.T) {
	x := newRescue(5)
	x.o.Record.MemberList.Members = x.o.Record.MemberList.Members[:2]
	for _, i := range []int{2, 3, 4} {
		x.away(i)
	}
	claims := func() {
		x.claim(0, leases.DiskIntact)
		x.claim(1, leases.DiskEmpty)
	}
	claims()
	x.d.Recovery.Approved = x.wants(t, "propose").plan.hash
	x.apply(t, PrepareRecovery)
	claims()
	x.wants(t, "await-acknowledgements")
	x.member(4).Claim, x.member(4).Pod = ClaimAbsent, PodAbsent // two of five voters are left that nothing fences
	x.wants(t, "execute")
}

// A member of the raft group before still renews its Lease: it was away when the cluster was formed again. It gets no clients,
// and it is no quorum.
func TestAMemberOfAnEarlierRaftGroupDoesNotServe(t *testing.T) {
	x := newRescue(3)
	x.o.Record.ClusterID, x.o.Record.Epoch, x.o.Record.FormedEpoch, x.o.Record.Released = 8, 2, 2, 0
	x.d.ClusterID, x.d.Epoch = 8, 2
	for i := range 3 {
		m := x.member(i)
		m.Liveness, m.EtcdReady = leases.Live, true
		if i == 0 {
			m.Reports.ClusterID, m.Reports.Epoch = 8, 2
		}
		served := servingRows.Decide(labelFactsOf(*m, false, x.o, x.o.listed())).Verdict == labelSet
		if served != (i == 0) {
			t.Errorf("member %d gets clients: %t", i, served)
		}
	}
	if got := groupQuorum(x.o, x.o.listed()); got != rules.Yes {
		t.Errorf("the member of the new raft group is no quorum: %v", got)
	}
	x.member(1).EtcdReady, x.member(2).EtcdReady = false, false
	if got := groupQuorum(x.o, x.o.listed()[1:]); got != rules.No {
		t.Errorf("members of the raft group before are a quorum: %v", got)
	}
}

// An order does not prevent the deletion of the cluster.
func TestADeletedClusterIsNotRecovered(t *testing.T) {
	x := newRescue(3)
	x.claim(1, leases.DiskEmpty)
	x.claim(2, leases.DiskEmpty)
	x.d.Recovery.Automatic = true
	x.apply(t, PrepareRecovery)
	x.d.Deleted = true
	if steps, only := recoverySteps(Evaluate(x.d, x.o)); only {
		t.Errorf("only the steps of a recovery are left: %+v", steps)
	}
}
