package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/leases"
)

// rescue builds a cluster of three members that lost its quorum.
type rescue struct {
	d Desired
	o Observed
	// draws counts the nonces of requests.
	draws int
}

var rescueStart = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func newRescue(members int) *rescue {
	x := &rescue{
		d: Desired{Replicas: members, ClusterID: 7, Recovery: RecoveryWish{Cluster: "uid", Namespace: "ns", Name: "demo", Renewal: 15 * time.Second}},
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

// report makes the agent of member i report a state of its disk, and acknowledge the order if there is one.
func (x *rescue) report(i int, state leases.DiskState) *leases.DiskReport {
	m := x.member(i)
	c := &leases.DiskReport{Pod: m.PodUID, Volume: m.ClaimUID, State: state, Orders: true}
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
	if x.o.Record.MemberList == nil {
		return ""
	}
	for _, m := range x.o.Record.MemberList.Members {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, ",")
}

// ahead makes the second member report a revision, and a log that ends after those of the others.
func (x *rescue) ahead(revision int64) {
	m := x.member(1)
	m.Reports.Revision, m.Reports.Raft.Committed = revision, 60
}

func (x *rescue) away(i int) {
	m := x.member(i)
	m.NodeLost, m.Node, m.Volume = true, NodeAway, VolumeLocal
}

// nodeReturns takes back that the node of member i is away.
func (x *rescue) nodeReturns(i int) { x.member(i).NodeLost, x.member(i).Node = false, NodeReady }

// gone takes away the Pod and the volume of a member.
func (x *rescue) gone(i int) { x.member(i).Claim, x.member(i).Pod = ClaimAbsent, PodAbsent }

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

// continues checks that the raft group goes on, because a majority of it returned: the order of that epoch is released.
func (x *rescue) continues(t *testing.T, epoch uint32) {
	t.Helper()
	x.wants(t, "majority-returned")
	x.apply(t, ReleaseRecovery)
	if x.o.Record.Phase != leases.PhaseFormed || x.o.Record.Released != epoch || x.o.Record.ClusterID != 7 {
		t.Errorf("record %+v", x.o.Record)
	}
}

// ruleTest is a change of a cluster, and the rule that applies to it then.
type ruleTest struct {
	change func(*rescue)
	rule   string
}

// checkRules applies each change to a cluster of its own.
func checkRules(t *testing.T, start func(*testing.T) *rescue, tests map[string]ruleTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			x := start(t)
			test.change(x)
			x.wants(t, test.rule)
		})
	}
}

// executes approves the plan of a cluster whose agents report, and carries it out until the first member has the order.
func (x *rescue) executes(t *testing.T, mode leases.RecoveryMode, report func()) *rescue {
	t.Helper()
	report()
	x.d.Recovery.Approved = x.decide().plan.hash
	x.apply(t, PrepareRecovery)
	report()
	x.apply(t, ExecuteRecovery)
	if o := x.o.Record.Order(); o.Mode != mode || o.Chosen != "demo-a" {
		t.Fatalf("order %+v", o)
	}
	return x
}

// backedUp gives the cluster a backup that is a minute old.
func (x *rescue) backedUp() *rescue {
	x.d.Backup, x.o.SavedUntil = true, rescueStart.Add(-time.Minute)
	x.o.Full.Reports = leases.Backup{Revision: 40, Lineage: "00000001-aa"}
	return x
}

// fromBackup is a cluster whose first member restores a backup by an order that you approved. The others are away, and given up where
// they have to be.
func fromBackup(t *testing.T) *rescue {
	t.Helper()
	x := newRescue(3).backedUp()
	x.away(1)
	x.away(2)
	return x.executes(t, leases.RecoverBackup, func() { x.report(0, leases.DiskEmpty) })
}
