package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// sharing makes the raft group one that was joined, in which so many of the cluster that was there before are left.
func sharing(left ...string) func(*Observed) {
	return func(o *Observed) {
		o.Record.Externals = []string{"a1", "a2"}
		o.Record.MemberList = &leases.MemberList{}
		for _, name := range append(left, o.Record.Members...) {
			o.Record.MemberList.Members = append(o.Record.MemberList.Members, leases.ListedMember{ID: name, Name: name})
		}
	}
}

// While others are in the raft group, whose health druid does not know, none of its own voters may be spared.
func TestOthersInARaftGroupThatWasJoined(t *testing.T) {
	raised := []string{"ApplyBudget budget-raised  3"}
	untold := func(o *Observed) { o.Record.Externals = []string{"a1", "a2"} }
	tests := map[string]struct {
		release bool
		o       Observed
		want    []string
		reason  string
		words   string
	}{
		"they are kept, and no voter is evicted": {
			o: whole(sharing("etcd-0", "etcd-1")), want: raised, reason: v1alpha1.ReasonExternalMembersPresent,
			words: "joined; of the former cluster there are still 2 members (etcd-0, etcd-1): set spec.bootstrap.join.removeOthers",
		},
		"before they are listed they are taken to be there": {
			o: whole(untold), want: raised, reason: v1alpha1.ReasonExternalMembersPresent, words: "joined; of the former cluster there are still 2 members: set",
		},
		"they go by the user's word": {
			release: true, o: whole(sharing("etcd-1")), want: raised, reason: v1alpha1.ReasonRemovingExternalMembers,
			words: "of the former cluster there is still 1 member (etcd-1). The leader's agent removes them one at a time",
		},
		"once they are gone the cluster is as any other": {
			release: true, o: whole(sharing()), want: []string{}, reason: v1alpha1.ReasonReconciled, words: "3 members as requested",
		},
		"no Pod is replaced next to them": {
			o: edited(sharing("etcd-0")), want: []string{}, reason: v1alpha1.ReasonExternalMembersPresent, words: "joined; of the former cluster there is still 1 member (etcd-0)",
		},
		"nor before they are listed": {
			o: edited(untold), want: []string{}, reason: v1alpha1.ReasonExternalMembersPresent, words: "joined; of the former",
		},
		"a member that heals is informed of first": {
			o: whole(sharing("etcd-0"), func(o *Observed) {
				o.Members[2].EtcdReady = false
				o.Members[2].Serving, o.BudgetMin = false, 3
			}), want: []string{}, reason: v1alpha1.ReasonRepairingMember, words: "member c-c is started again",
		},
		"an unknown member in a group that was formed here is no external member": {
			o: whole(sharing("etcd-0"), func(o *Observed) { o.Record.Externals = nil }), want: []string{}, reason: v1alpha1.ReasonReconciled,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := Desired{Replicas: 3, RemoveOthers: test.release}
			if diff := cmp.Diff(test.want, short(Steps(d, test.o))); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			s := Status(d, test.o, v1alpha1.EtcdClusterStatus{ClusterID: "9"}, nil, 1, metav1.Time{})
			c := condition(s, v1alpha1.ConditionProgressing)
			if c.Reason != test.reason || !strings.HasPrefix(c.Message, test.words) {
				t.Errorf("condition is %s %q, want %s %q", c.Reason, c.Message, test.reason, test.words)
			}
		})
	}
}

// What another member's loss costs is not known before the others are listed: until then they are voters that may be down.
func TestOthersThatAreNotListedYetCount(t *testing.T) {
	o := whole(func(o *Observed) { o.Record.Externals, o.Record.MemberList = []string{"a1", "a2", "a3"}, nil })
	if got := votersOf(o, o.listed()); got != 6 {
		t.Errorf("%d voters, want 6", got)
	}
	if spared(o.Members[0], o, o.listed()) == rules.Yes {
		t.Error("two members that serve are taken for a quorum of six")
	}
}
