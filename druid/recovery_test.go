package druid

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// recovery is status.recovery, empty if there is none.
func (c *clocked) recovery() v1alpha1.RecoveryStatus {
	c.Helper()
	if s := c.cluster().Status.Recovery; s != nil {
		return *s
	}
	return v1alpha1.RecoveryStatus{}
}

// listsMembers is a cluster on local volumes whose record has the member list and whose Leases have a revision.
func listsMembers(t *testing.T) (c *clocked, names, nodes []string) {
	t.Helper()
	c, names, nodes = onNodes(t, true)
	c.stage.changeRecord(func(r *leases.Record) {
		r.MemberList = &leases.MemberList{RaftTerm: 2, RaftIndex: 9}
		for i, name := range names {
			r.MemberList.Members = append(r.MemberList.Members, leases.ListedMember{ID: leases.FormatID(uint64(i + 1)), Name: name})
		}
	})
	for _, name := range names {
		c.says(name, leases.Prefix+"revision", "7")
	}
	c.pass()
	return c, names, nodes
}

// TestStatusAfterQuorumLoss: the status says what is left after a loss of the quorum.
func TestStatusAfterQuorumLoss(t *testing.T) {
	c, names, nodes := listsMembers(t)
	if got := c.recovery(); got.Phase != "" {
		t.Fatalf("a cluster that serves has %+v", got)
	}
	c.losesTwo(names, nodes)
	if got := c.recovery(); got.Phase != v1alpha1.RecoveryProposed || got.Plan == nil || len(got.Plan.GiveUp) != 2 ||
		!strings.Contains(got.Message, "your approval asserts") {
		t.Errorf("two nodes are away: %+v", got)
	}
	c.node(nodes[0], false, outOfService)
	c.node(nodes[1], false, outOfService)
	c.after(time.Minute)
	got := c.recovery()
	if got.Phase != v1alpha1.RecoveryProposed || got.Plan == nil || got.Plan.Source != v1alpha1.RecoveryFromSurvivor ||
		got.Plan.Member != names[2] || got.Plan.Revision != 7 {
		t.Errorf("two nodes are declared lost: %+v", got)
	}
	if condition := c.degraded(t); condition.Reason != v1alpha1.ReasonRecoveryProposed || !strings.Contains(condition.Message, got.Plan.Member) {
		t.Errorf("condition is %s: %s", condition.Reason, condition.Message)
	}
	for _, name := range names {
		if c.terminates(name) || c.claimGoes(name) {
			t.Errorf("something of %s is deleted", name)
		}
	}
	before := len(c.deeds.writes())
	c.after(time.Hour)
	if writes := c.deeds.writes(); len(writes) > before {
		t.Errorf("a state that does not change is written again: %v", writes[before:])
	}
	// The quorum serves again.
	c.node(nodes[0], true)
	c.kubelet(names[0], true)
	c.kubelet(names[2], true)
	c.renew(names, 0)
	c.renew(names, 2)
	c.pass()
	if got := c.recovery(); got.Phase != "" {
		t.Errorf("the quorum serves again, and the status is %+v", got)
	}
}

// The etcd of all members stops, and all kubelets report it. That is no problem while a restart can explain it.
func TestDegradedReportsALostQuorumThatLasts(t *testing.T) {
	c, names := renewed(t)
	for _, name := range names {
		c.kubelet(name, false)
	}
	c.pass()
	if condition := c.degraded(t); condition.Reason != v1alpha1.ReasonAsExpected {
		t.Errorf("at once, the condition is %s: %s", condition.Reason, condition.Message)
	}
	c.after(startMaxWait + time.Second)
	if condition := c.degraded(t); !strings.Contains(condition.Message, "he quorum is lost") {
		t.Errorf("half a minute later, the condition is %s: %s", condition.Reason, condition.Message)
	}
}

// approve annotates the EtcdCluster, as the command in status.recovery does.
func (c *clocked) approve(hash string) {
	c.Helper()
	c.patchCluster(`{"metadata":{"annotations":{"` + v1alpha1.RecoverAnnotation + `":"` + hash + `"}}}`)
	c.pass()
}

// ordered is the order in the record, nil for none.
func (c *clocked) ordered() (leases.Record, *leases.Recovery) {
	c.Helper()
	record, err := c.record("demo")
	if err != nil {
		c.Fatal(err)
	}
	return record, record.Order()
}

// losesTwo takes away the nodes of the first two of three members, with taints after druid saw that they are away. The etcd of the third
// member is not ready, and the quorum is lost for two hours.
func (c *clocked) losesTwo(names, nodes []string, taints ...corev1.Taint) {
	c.Helper()
	for i := range 2 {
		c.away(names[i], nodes[i])
		if len(taints) > 0 {
			c.node(nodes[i], false, taints...)
		}
	}
	c.kubelet(names[2], false)
	c.after(2 * time.Hour)
}

// executes approves a plan, and acknowledges its order as the agent of the survivor, the third in the list. It returns the record and
// the order that is executed then.
func (c *clocked) executes(hash, survivor string) (leases.Record, *leases.Recovery) {
	c.Helper()
	c.approve(hash)
	_, order := c.ordered()
	c.acknowledges(survivor, 2, order, "")
	c.pass()
	record, order := c.ordered()
	if order == nil || order.Stage != leases.StageExecute {
		c.Fatalf("the order is %+v", order)
	}
	return record, order
}

// formsAgain records the raft group of an order, as the agent of the chosen member does.
func (c *clocked) formsAgain(order *leases.Recovery, fork leases.Fork) {
	c.Helper()
	c.stage.changeRecord(func(r *leases.Record) {
		a := leases.RecoveryAttempt{Order: order.Name(), Nonce: "cc", PodUID: "pod", ClusterID: "99"}
		claimed, err := r.Claimed(a)
		if err != nil {
			c.Fatal(err)
		}
		recovered := leases.Recovered{Epoch: order.Epoch, Mode: order.Mode, Member: order.Chosen, Revision: 1_000_000_007}
		if *r, err = claimed.Reformed(a, recovered, fork); err != nil {
			c.Fatal(err)
		}
	})
}

// Two nodes are declared lost. Only the approval of the present plan orders a recovery, once, and it is executed only after
// the survivor acknowledged it. Clients that you cut off before stay cut off.
func TestAnApprovedRecoveryIsOrderedOnce(t *testing.T) {
	c, names, nodes := listsMembers(t)
	c.patchCluster(`{"spec":{"clientService":{"serving":false}}}`)
	c.losesTwo(names, nodes, outOfService)
	plan := c.recovery().Plan
	if plan == nil || plan.Hash == "" || !strings.Contains(c.recovery().Approve, plan.Hash) {
		t.Fatalf("%+v; want a plan and the command that approves it", c.recovery())
	}
	c.approve("0123456789ab")
	if record, order := c.ordered(); order != nil || record.Phase != leases.PhaseFormed {
		t.Fatalf("the approval of another plan orders %+v", order)
	}
	c.approve(plan.Hash)
	_, order := c.ordered()
	if order == nil || order.Stage != leases.StagePrepare || order.Chosen != names[2] || !order.Approved {
		t.Fatalf("the order is %+v", order)
	}
	if phase := c.recovery().Phase; phase != v1alpha1.RecoveryPreparing {
		t.Errorf("the status is %s", phase)
	}
	c.acknowledges(names[2], 2, order, "")
	c.pass()
	executed, order := c.ordered()
	if order == nil || order.Stage != leases.StageExecute || order.Report == "" {
		t.Fatalf("the order is %+v", order)
	}
	c.formsAgain(order, leases.Fork{Parent: "00000001-aa", Revision: 7})
	c.kubelet(names[2], true)
	c.renew(names, 2)
	report := leases.MemberPatch{Member: leases.Member{ID: 0x77, Role: leases.RoleLeader, ClusterID: 0x99, Epoch: order.Epoch,
		Lineage: leases.LineageOf(order.Epoch, "cc")}}
	if _, err := c.stage.store("demo").PatchMember(t.Context(), names[2], report); err != nil {
		t.Fatal(err)
	}
	c.pass()
	got, status := c.recovery(), c.cluster().Status
	if got.Phase != v1alpha1.RecoveryRecovered || got.Last == nil || got.Last.Epoch != int64(order.Epoch) || status.ClusterID != "99" ||
		status.Epoch != int64(order.Epoch) {
		t.Errorf("after the recovery: %+v, cluster %s of epoch %d", got, status.ClusterID, status.Epoch)
	}
	if c.servesClients(names[2]) {
		t.Errorf("%s is in the client Service after the recovery", names[2])
	}
	c.patchCluster(`{"spec":{"clientService":{"serving":true}}}`)
	c.pass()
	if !c.servesClients(names[2]) {
		t.Errorf("%s is not in the client Service again", names[2])
	}
	c.after(2 * time.Hour)
	if record, order := c.ordered(); order != nil || record.FormedEpoch != executed.Recovery.Epoch {
		t.Errorf("the approval is used again: %+v", order)
	}
}

// TestDruidEndsOrderOfReturnedMajority: a majority that returns ends an order that is executed.
// You gave two members up, and one of them returns with its data while an agent carries out the order. With the agent's own disk, that is a
// quorum: druid releases the order, and the agent can record no raft group any more.
func TestDruidEndsOrderOfReturnedMajority(t *testing.T) {
	c, names, nodes := listsMembers(t)
	c.losesTwo(names, nodes)
	plan := c.recovery().Plan
	if plan == nil || len(plan.GiveUp) != 2 {
		t.Fatalf("the status is %+v", c.recovery())
	}
	executed, order := c.executes(plan.Hash, names[2])
	c.node(nodes[0], true)
	c.acknowledges(names[0], 0, order, "")
	c.pass()
	record, order := c.ordered()
	if order != nil || record.Phase != leases.PhaseFormed || record.Released != executed.Recovery.Epoch || record.ClusterID != executed.ClusterID {
		t.Fatalf("the order is %+v, and the record %+v", order, record)
	}
	if _, err := record.Claimed(leases.RecoveryAttempt{Order: executed.Recovery.Name(), Nonce: "cc", PodUID: "pod", ClusterID: "99"}); err == nil {
		t.Error("an order that was released can be carried out")
	}
}

// TestFailedOrderGetsCorrectedPod: an order that cannot be carried out gets a corrected Pod.
// The selected member cannot restore the backup with its quota. The status says what to do, and the Pod with the corrected quota replaces
// the idle one.
func TestFailedOrderGetsCorrectedPod(t *testing.T) {
	c, names, nodes := listsMembers(t)
	c.losesTwo(names, nodes, outOfService)
	_, order := c.executes(c.recovery().Plan.Hash, names[2])
	c.acknowledges(names[2], 2, order, leases.FailedQuota)
	c.says(names[2], leases.Prefix+"reason", "the database has 9 bytes")
	c.pass()
	if got := c.recovery(); got.Phase != v1alpha1.RecoveryRefused || !strings.Contains(got.Message, "Increase spec.etcd.quotaBackendBytes") {
		t.Fatalf("the status is %+v", got)
	}
	if c.terminates(names[2]) {
		t.Fatal("a Pod of the same spec is replaced")
	}
	c.patchCluster(`{"spec":{"etcd":{"quotaBackendBytes":"1Gi"}}}`)
	c.pass()
	if !c.terminates(names[2]) {
		t.Errorf("the Pod keeps the old quota: %+v", c.recovery())
	}
}

// The raft group that was formed again is lost before it has a backup or a second voter. druid proposes what a member of the one before
// holds, says what is lost, and orders it after an approval.
func TestLostRaftGroupFormedFromFormer(t *testing.T) {
	c, names, nodes := listsMembers(t)
	c.patchCluster(`{"spec":{"recovery":{"policy":"Automatic","maxDataLoss":{"seconds":1000000}}}}`)
	c.losesTwo(names, nodes)
	executed, order := c.executes(c.recovery().Plan.Hash, names[2])
	c.acknowledges(names[0], 0, order, "") // it returns at the moment of Formed
	c.formsAgain(order, leases.Fork{Parent: executed.Lineage, Revision: 7, At: time.Date(2026, 11, 24, 11, 0, 0, 0, time.UTC)})
	c.node(nodes[0], true)
	c.kubelet(names[0], false)
	c.away(names[2], nodes[2], outOfService)
	c.after(2 * time.Hour)
	got := c.recovery()
	if got.Phase != v1alpha1.RecoveryProposed || got.Plan == nil || got.Plan.Source != v1alpha1.RecoveryFromSurvivor || got.Plan.Member != names[0] ||
		got.Plan.LostRevisions != nil || !strings.Contains(got.Message,
		"verything that was written since member "+names[2]+" formed it at 2026-11-24T11:00:00Z is lost") {
		t.Fatalf("the status is %+v, with plan %+v", got, got.Plan)
	}
	c.approve(got.Plan.Hash)
	if _, order := c.ordered(); order == nil || order.Chosen != names[0] || order.Known < 1_000_000_007 {
		t.Errorf("the order is %+v", order)
	}
}

// acknowledges writes the claim of a member, the i-th in the list, as its agent does. A failure says that it cannot carry out the order.
func (c *clocked) acknowledges(name string, i int, order *leases.Recovery, failure leases.RestoreFailure) {
	c.Helper()
	record, _ := c.ordered()
	member, err := c.store("demo").Member(c.Context(), name)
	if err != nil {
		c.Fatal(err)
	}
	var voters []string
	for _, m := range record.MemberList.Members {
		voters = append(voters, m.ID)
	}
	report := leases.DiskReport{
		Pod: member.PodUID, Volume: member.VolumeUID, State: leases.DiskIntact, Cluster: leases.FormatID(record.ClusterID), Member: voters[i],
		Epoch: record.FormedEpoch, Lineage: record.Lineage, Prepared: order.Epoch, LastTerm: 2, Last: 9, Commit: 9, Applied: 9, Revision: 7,
		Voters: strings.Join(voters, ","), Orders: true, Order: order.Name(), Failed: failure,
	}
	text, err := report.Encode()
	if err != nil {
		c.Fatal(err)
	}
	c.says(name, leases.Prefix+"disk", text)
}
