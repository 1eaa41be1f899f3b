package druid

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
)

// TestAckOfOtherTokenRemovesNoMember: an acknowledgement of another token removes no member.
func TestAckOfOtherTokenRemovesNoMember(t *testing.T) {
	x := newThief(t, false)
	x.believes()
	for _, by := range []string{x.other(), x.leaving} {
		x.acknowledge(by)
		x.pass()
		x.stays("acknowledged by a follower", leases.RemovalBegun)
		// The ID to remove is not the forged one.
		if mark, want := x.mark(x.leaving), leases.FormatID(uint64(slices.Index(x.names, x.leaving)+1)); mark.MemberID != want {
			t.Errorf("the removal request is %+v, want it to name member %s", mark, want)
		}
		x.after(10 * time.Minute)
		x.stays("ten minutes later", leases.RemovalBegun)
	}
	x.acknowledge(x.names[0])
	x.pass()
	x.goes("acknowledged by the leader")
}

// A text that the policy and druid could read differently forges no acknowledgement: the policy refuses it, and druid does not
// believe it where the policy is not in force.
func TestADuplicateKeyForgesNoAcknowledgement(t *testing.T) {
	x := newThief(t, false)
	x.believes()
	forger, leader := string(x.pods[x.other()].UID), string(x.pods[x.names[0]].UID)
	x.acknowledge(x.other())
	x.pass()
	x.stays("acknowledged by a follower", leases.RemovalBegun)
	begun := x.mark(x.leaving)
	for name, keys := range map[string]string{
		"a key in another case":  fmt.Sprintf(`"BY":%q,"State":"done"`, leader),
		"a key that comes twice": fmt.Sprintf(`"by":%q,"state":"done"`, leader),
	} {
		text := fmt.Sprintf(`{"state":"removing","mark":%q,"by":%q,"memberID":%q,"clusterID":%q,"raftTerm":2,"raftIndex":10,%s}`,
			begun.Mark, forger, begun.MemberID, begun.ClusterID, keys)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: x.leaving}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, leases.AnnotationRemoval, text))
		if err := x.tokens[x.other()].Patch(t.Context(), lease, patch, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s: the policy allows it: %v", name, err)
		}
		x.says(x.leaving, leases.AnnotationRemoval, text)
		x.believes()
		x.stays(name, leases.RemovalUnreadable)
	}
}

// TestAckNeedsSingleLeader: an acknowledgement is believed only while one member says that it leads.
func TestAckNeedsSingleLeader(t *testing.T) {
	for name, quiet := range map[string]func(x *thief, forger string){
		"it says that it follows": func(x *thief, forger string) { x.reports(forger, leases.RoleMember) },
		"it is silent": func(x *thief, forger string) {
			for range 3 { // the Lease expires after 45 s, and the agent of the leader renews its own
				x.after(16 * time.Second)
				x.stays("the Lease has not expired for 30 s", leases.RemovalDone)
				x.reports(x.names[0], leases.RoleLeader)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newThief(t, false)
			x.believes()
			forger := x.other()
			x.reports(forger, leases.RoleLeader)
			for _, by := range []string{forger, x.names[0]} {
				x.acknowledge(by)
				for range 3 {
					x.after(20 * time.Second)
					x.stays("two say that they lead", leases.RemovalDone)
					x.reports(x.names[0], leases.RoleLeader)
					x.reports(forger, leases.RoleLeader)
				}
				x.pass()
				if by == forger { // as if the removal were requested again
					x.says(x.leaving, leases.AnnotationRemoval, mustEncode(t, x.mark(x.leaving)))
				}
			}
			quiet(x, forger)
			x.pass()
			x.stays("the other one became quiet just now", leases.RemovalDone)
			x.after(20 * time.Second)
			x.stays("20 s ago", leases.RemovalDone)
			x.reports(x.names[0], leases.RoleLeader)
			x.after(11 * time.Second)
			x.goes("30 s ago")
		})
	}
}

// mustEncode returns the claim of the removal, as druid writes it when it asks again.
func mustEncode(t *testing.T, mark leases.RemovalRequest) string {
	t.Helper()
	mark.State, mark.RaftTerm, mark.RaftIndex = leases.RemovalBegun, 0, 0
	value, err := mark.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// While leadership moves, the only one that says that it leads can be a forger.
func TestForgerIgnoredWhileLeaderMoves(t *testing.T) {
	x := newThief(t, false)
	x.believes()
	forger, leader := x.other(), x.names[0]
	x.reports(leader, leases.RoleMember)
	x.reports(forger, leases.RoleLeader)
	x.acknowledge(forger)
	x.pass()
	x.stays("it alone says that it leads", leases.RemovalDone)
	x.after(29 * time.Second)
	x.stays("for 29 s", leases.RemovalDone)
	x.reports(leader, leases.RoleLeader)
	x.reports(forger, leases.RoleLeader)
	x.believes()
	x.stays("then the leader reports", leases.RemovalDone)
	x.reports(forger, leases.RoleMember)
	x.reports(leader, leases.RoleLeader)
	x.believes()
	x.stays("druid asks the leader", leases.RemovalBegun)
	// A druid that just started has to see that for itself.
	x.acknowledge(leader)
	x.clocked = x.stage.clocked()
	x.reports(leader, leases.RoleLeader)
	x.pass()
	x.stays("a druid that just started", leases.RemovalDone)
	x.believes()
	x.goes("it saw the leader for 30 s")
}

// TestDeletedMemberNeedsOwnToken: a member of a deleted cluster is believed only by its own token.
// All members leave a group that external members lead: each agent acknowledges the removal of its own member.
func TestDeletedMemberNeedsOwnToken(t *testing.T) {
	x := newThief(t, true)
	x.reports(x.names[0], leases.RoleMember)
	x.acknowledge(x.other())
	if x.leaving == x.names[0] {
		t.Fatalf("the leader %s leaves first", x.leaving)
	}
	x.pass()
	x.stays("leadership moved just now", leases.RemovalDone)
	x.believes()
	x.stays("acknowledged by another member", leases.RemovalBegun)
	x.acknowledge(x.leaving)
	// One of its members leads again, so the agent of that one has to answer.
	x.reports(x.names[0], leases.RoleLeader)
	x.believes()
	x.stays("acknowledged by itself while another member leads", leases.RemovalBegun)
	x.acknowledge(x.leaving)
	x.reports(x.names[0], leases.RoleMember)
	x.believes()
	x.goes("acknowledged by itself while an external member leads")
}

// The Pod of the last member ends while druid examines the acknowledgement, and no node has room for another Pod.
func TestAckOutlivesLastMembersPod(t *testing.T) {
	x := newThief(t, true)
	x.reports(x.names[0], leases.RoleMember)
	x.acknowledge(x.leaving)
	x.end(x.leaving)
	x.pass()
	x.stays("its Pod ended", leases.RemovalDone)
	if made := x.deeds.matching("POST", "/pods"); len(made) > 0 {
		t.Errorf("druid created %v", made)
	}
	// A druid that just started has nothing of it in memory.
	x.clocked = x.stage.clocked()
	x.pass()
	x.after(29 * time.Second)
	x.stays("for 29 s", leases.RemovalDone)
	x.believes()
	x.goes("for 30 s")
	if made := x.deeds.matching("POST", "/pods"); len(made) > 0 {
		t.Errorf("druid created %v", made)
	}
}

// TestLaterPodKeepsAck: a later Pod of the last member takes no acknowledgement back.
// A Pod that druid created before it read the acknowledgement does not take it back.
func TestLaterPodKeepsAck(t *testing.T) {
	x := newThief(t, true)
	x.reports(x.names[0], leases.RoleMember)
	x.acknowledge(x.leaving)
	x.end(x.leaving)
	later := x.pods[x.leaving].DeepCopy()
	later.ResourceVersion, later.UID, later.Spec.NodeName = "", "", ""
	if err := x.Create(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	x.pass()
	x.stays("another Pod is there", leases.RemovalDone)
	x.believes()
	x.goes("its Lease names the former Pod")
}

// An administrator deletes the record, or removes a name from it, while a forged acknowledgement stands.
func TestForgedAckNeedsItsRecord(t *testing.T) {
	published := func(r *leases.Record, names []string) {
		r.MemberList = &leases.MemberList{RaftTerm: 2, RaftIndex: 10}
		for i, name := range names {
			r.MemberList.Members = append(r.MemberList.Members, leases.ListedMember{ID: leases.FormatID(uint64(i + 1)), Name: name})
		}
	}
	for name, lose := range map[string]func(x *thief){
		"the record is deleted": func(x *thief) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: leases.RecordName("demo")}}
			if err := x.Delete(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		},
		"the name is removed": func(x *thief) {
			x.stage.changeRecord(func(r *leases.Record) {
				published(r, x.names)
				r.Members = slices.DeleteFunc(r.Members, func(name string) bool { return name == x.leaving })
				r.PendingRemoval = nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newThief(t, false)
			x.patchCluster(`{"spec":{"replicas":3}}`)
			x.acknowledge(x.other())
			lose(x)
			x.believes()
			record, err := x.record("demo")
			if err != nil || !slices.Equal(record.Members, slices.Sorted(slices.Values(x.names))) {
				t.Errorf("the record is %+v, %v; want it with %v", record, err, x.names)
			}
			if deletes := x.deeds.matching("DELETE", ""); len(deletes) > 0 {
				t.Errorf("druid deleted %v", deletes)
			}
			if mark := x.mark(x.leaving); mark.State != leases.RemovalNone {
				t.Errorf("the removal request is %+v, want none", mark)
			}
		})
	}
}
