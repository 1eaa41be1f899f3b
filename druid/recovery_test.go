package druid

import (
	"strings"
	"testing"
	"time"

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

func TestStatusSaysWhatIsLeftAfterALossOfTheQuorum(t *testing.T) {
	c, names, nodes := onNodes(t, true)
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
	if got := c.recovery(); got.Phase != "" {
		t.Fatalf("a cluster that serves has %+v", got)
	}
	c.away(names[0], nodes[0])
	c.away(names[1], nodes[1])
	c.kubelet(names[2], false)
	c.after(2 * time.Hour)
	if got := c.recovery(); got.Phase != v1alpha1.RecoveryWaiting || !strings.Contains(got.Message, "away: "+names[0]+", "+names[1]) {
		t.Errorf("two nodes are away: %+v", got)
	}
	c.node(nodes[0], false, outOfService)
	c.node(nodes[1], false, outOfService)
	c.after(time.Minute)
	got := c.recovery()
	if got.Phase != v1alpha1.RecoveryProposed || got.Plan == nil || got.Plan.Source != v1alpha1.RecoveryFromSurvivor || got.Plan.Member != names[2] || got.Plan.Revision != 7 {
		t.Errorf("two nodes are declared lost: %+v", got)
	}
	if condition := c.degraded(t); condition.Reason != v1alpha1.ReasonRecoveryProposed || !strings.HasPrefix(condition.Message, strings.TrimSuffix(got.Message, ".")) {
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
