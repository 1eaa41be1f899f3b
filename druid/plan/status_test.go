package plan

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// after is the status that follows from an observation.
func after(before v1alpha1.EtcdClusterStatus, change ...func(*Observed)) v1alpha1.EtcdClusterStatus {
	return Status(Desired{Replicas: 3}, whole(change...), before, nil, 1, metav1.Now())
}

func TestRoleIsReportedOnlyWhileItIsKnown(t *testing.T) {
	leader := func(o *Observed) { o.Members[0].Says.Role, o.Members[0].Says.Raft.Term = leases.RoleLeader, 2 }
	successor := func(o *Observed) { o.Members[1].Says.Role, o.Members[1].Says.Raft.Term = leases.RoleLeader, 3 }
	silent := func(l leases.Liveness) func(*Observed) {
		return func(o *Observed) { o.Members[0].Liveness = l }
	}
	before := after(v1alpha1.EtcdClusterStatus{}, leader)
	tests := map[string]struct {
		change []func(*Observed)
		want   string
	}{
		"all renew":                                          {[]func(*Observed){leader}, "Leader Member Member"},
		"the leader went silent":                             {[]func(*Observed){leader, silent(leases.Stale)}, " Member Member"},
		"it went silent and another leads":                   {[]func(*Observed){leader, silent(leases.Stale), successor}, " Leader Member"},
		"another leads before the old one's Lease is stale":  {[]func(*Observed){leader, successor}, " Leader Member"},
		"druid just started":                                 {[]func(*Observed){silent(leases.Unknown)}, "Leader Member Member"},
		"druid just started, and the leader changed before":  {[]func(*Observed){silent(leases.Unknown), successor}, " Leader Member"},
		"the leader's Lease was deleted and no one wrote it": {[]func(*Observed){silent(leases.Never)}, " Member Member"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var roles []string
			for _, m := range after(before, test.change...).Members {
				roles = append(roles, m.Role)
			}
			if got := strings.Join(roles, " "); got != test.want {
				t.Errorf("roles are %q, want %q", got, test.want)
			}
		})
	}
}

func TestEveryReasonHasASentence(t *testing.T) {
	for _, table := range conditionTables {
		for _, r := range table.rows.Rows() {
			if r.Verdict.reason == "" {
				continue // the problems' own words
			}
			if words, ok := sentences[r.Verdict.reason]; !ok || words(picture{}) == "" {
				t.Errorf("row %s: reason %s says nothing to a person", r.Name, r.Verdict.reason)
			}
		}
	}
}

func TestConditionsReportAPersonWhatIs(t *testing.T) {
	tests := map[string]struct {
		change func(*Observed)
		want   map[string]string
	}{
		"a whole cluster": {func(*Observed) {}, map[string]string{
			v1alpha1.ConditionReady:           "3 of 3 voters serve, a quorum is 2",
			v1alpha1.ConditionAllMembersReady: "3 of 3 members ready",
			v1alpha1.ConditionProgressing:     "3 members as requested",
			v1alpha1.ConditionDegraded:        "no problem is known",
		}},
		"a Pod is gone": {func(o *Observed) { o.Members[1].Pod, o.Members[1].EtcdReady = PodAbsent, false }, map[string]string{
			v1alpha1.ConditionReady:           "2 of 3 voters serve, a quorum is 2",
			v1alpha1.ConditionAllMembersReady: "2 of 3 members ready; member c-b: it has no Pod",
			v1alpha1.ConditionProgressing:     "member c-b is started again or replaced",
		}},
		"a member waits": {func(o *Observed) { o.Members[2].EtcdReady, o.Members[2].Says.Reason = false, "no quorum answers" }, map[string]string{
			v1alpha1.ConditionAllMembersReady: "2 of 3 members ready; member c-c: no quorum answers",
		}},
		"a node is off": {func(o *Observed) { o.Members[0].NodeLost, o.Members[0].Liveness = true, leases.Stale }, map[string]string{
			v1alpha1.ConditionAllMembersReady: "2 of 3 members ready; member c-a: its node is unreachable",
		}},
		"a member joins": {func(o *Observed) {
			m := &o.Members[2]
			m.Says, m.Voter, m.Serving, m.EtcdReady, m.Liveness = leases.Member{}, false, false, false, leases.Never
		}, map[string]string{
			v1alpha1.ConditionProgressing:     "2 of 3 members joined",
			v1alpha1.ConditionAllMembersReady: "2 of 3 members ready; member c-c: its etcd is not ready",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := after(v1alpha1.EtcdClusterStatus{}, test.change)
			for _, c := range status.Conditions {
				if want, ok := test.want[c.Type]; ok && c.Message != want {
					t.Errorf("%s says %q, want %q", c.Type, c.Message, want)
				}
			}
		})
	}
}

func TestNoQuorumIsCountedOfAGroupWhoseSizeIsNotKnown(t *testing.T) {
	wiped := func(o *Observed) {
		for i := range o.Members {
			m := &o.Members[i]
			m.EtcdReady = false
			if i > 0 {
				m.Says, m.Liveness, m.Voter = leases.Member{}, leases.Never, false
			}
		}
	}
	listed := func(o *Observed) {
		o.Record.MemberList = &leases.MemberList{Members: []leases.ListedMember{{Name: "c-a"}, {Name: "c-b"}, {Name: "c-c"}}}
	}
	formed := func(o *Observed) { o.Record.Executor = "pod-c-a" }
	for name, test := range map[string]struct {
		change []func(*Observed)
		reason string
		words  string
	}{
		"the record was made again too":    {[]func(*Observed){wiped}, v1alpha1.ReasonUnknown, "the number of voters is unknown"},
		"the leader published the members": {[]func(*Observed){wiped, listed}, v1alpha1.ReasonQuorumLost, "0 of 3 voters serve, a quorum is 2"},
		"members are about to join":        {[]func(*Observed){wiped, formed}, v1alpha1.ReasonQuorumLost, "0 of 1 voters serve"},
	} {
		t.Run(name, func(t *testing.T) {
			s := after(v1alpha1.EtcdClusterStatus{}, test.change...)
			ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
			if ready.Reason != test.reason || !strings.Contains(ready.Message, test.words) {
				t.Errorf("Ready is %s: %q, want %s: %q", ready.Reason, ready.Message, test.reason, test.words)
			}
		})
	}
}
