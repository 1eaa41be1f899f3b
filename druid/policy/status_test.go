package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rulestest"
)

// after is the status that follows from an observation.
func after(before v1alpha1.EtcdClusterStatus, change ...func(*Observed)) v1alpha1.EtcdClusterStatus {
	return Status(Evaluate(Desired{Replicas: 3}, whole(change...)), before, nil, 1, metav1.Now())
}

func TestRoleIsReportedOnlyWhileItIsKnown(t *testing.T) {
	leader := func(o *Observed) { o.Members[0].Reports.Role, o.Members[0].Reports.Raft.Term = leases.RoleLeader, 2 }
	successor := func(o *Observed) { o.Members[1].Reports.Role, o.Members[1].Reports.Raft.Term = leases.RoleLeader, 3 }
	silent := func(l leases.Liveness) func(*Observed) {
		return func(o *Observed) { o.Members[0].Liveness = l }
	}
	before := after(v1alpha1.EtcdClusterStatus{}, leader)
	tests := map[string]struct {
		change []func(*Observed)
		want   string
	}{
		"all renew":                                         {[]func(*Observed){leader}, "Leader Member Member"},
		"the leader went silent":                            {[]func(*Observed){leader, silent(leases.Stale)}, " Member Member"},
		"it went silent and another leads":                  {[]func(*Observed){leader, silent(leases.Stale), successor}, " Leader Member"},
		"another leads before the old one's Lease is stale": {[]func(*Observed){leader, successor}, " Leader Member"},
		"druid just started":                                {[]func(*Observed){silent(leases.Unknown)}, "Leader Member Member"},
		"druid just started, and the leader changed before": {[]func(*Observed){silent(leases.Unknown), successor}, " Leader Member"},
		"the leader's Lease was deleted and not written":    {[]func(*Observed){silent(leases.Never)}, " Member Member"},
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
			if words, ok := sentences[r.Verdict.reason]; !ok || words(messageContext{}) == "" {
				t.Errorf("row %s: reason %s says nothing to an operator", r.Name, r.Verdict.reason)
			}
		}
	}
}

func TestMessagesOfConditions(t *testing.T) {
	tests := map[string]struct {
		change func(*Observed)
		want   map[string]string
	}{
		"a whole cluster": {func(*Observed) {}, map[string]string{
			v1alpha1.ConditionReady:           "3 of 3 voters serve; a quorum is 2",
			v1alpha1.ConditionAllMembersReady: "3 of 3 members ready",
			v1alpha1.ConditionProgressing:     "3 members as requested",
			v1alpha1.ConditionDegraded:        "no problem is known",
		}},
		"a Pod is gone": {func(o *Observed) { o.Members[1].Pod, o.Members[1].EtcdReady = PodAbsent, false }, map[string]string{
			v1alpha1.ConditionReady:           "2 of 3 voters serve; a quorum is 2",
			v1alpha1.ConditionAllMembersReady: "2 of 3 members ready. Member c-b: it has no Pod",
			v1alpha1.ConditionProgressing:     "member c-b is being restarted or replaced",
		}},
		"a member waits": {func(o *Observed) { o.Members[2].EtcdReady, o.Members[2].Reports.Reason = false, "no quorum answers" }, map[string]string{
			v1alpha1.ConditionAllMembersReady: "2 of 3 members ready. Member c-c: no quorum answers",
		}},
		"a node is off": {func(o *Observed) { o.Members[0].NodeLost, o.Members[0].Liveness = true, leases.Stale }, map[string]string{
			v1alpha1.ConditionAllMembersReady: "2 of 3 members ready. Member c-a: its node is unreachable",
		}},
		"a member joins": {func(o *Observed) {
			m := &o.Members[2]
			m.Reports, m.Voter, m.Serving, m.EtcdReady, m.Liveness = leases.Member{}, false, false, false, leases.Never
		}, map[string]string{
			v1alpha1.ConditionProgressing:     "2 of 3 members joined",
			v1alpha1.ConditionAllMembersReady: "2 of 3 members ready. Member c-c: its etcd is not ready",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := after(v1alpha1.EtcdClusterStatus{}, test.change)
			for _, c := range status.Conditions {
				if want, ok := test.want[c.Type]; ok && c.Message != AsSentences(want) {
					t.Errorf("%s says %q, want %q", c.Type, c.Message, want)
				}
			}
		})
	}
}

// TestUnknownGroupSizeHasNoQuorum: no quorum is counted of a group whose size is not known.
func TestUnknownGroupSizeHasNoQuorum(t *testing.T) {
	wiped := func(o *Observed) {
		for i := range o.Members {
			m := &o.Members[i]
			m.EtcdReady = false
			if i > 0 {
				m.Reports, m.Liveness, m.Voter = leases.Member{}, leases.Never, false
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
		"the record was made again too":    {[]func(*Observed){wiped}, v1alpha1.ReasonUnknown, "The number of voters is unknown"},
		"the leader published the members": {[]func(*Observed){wiped, listed}, v1alpha1.ReasonQuorumLost, "0 of 3 voters serve; a quorum is 2"},
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

func TestAnAlarmIsReportedByWhoLeads(t *testing.T) {
	const words = "full: delete keys"
	well := Member{
		Name: "demo-a", Lease: LeaseOurs, Readable: true, Liveness: leases.Live, Reports: leases.Member{ID: 1, Role: leases.RoleLeader, Alarm: words},
	}
	for name, tc := range map[string]struct {
		change func(*Member)
		want   bool
	}{
		"by the leader's agent":               {func(*Member) {}, true},
		"not where none stands":               {func(m *Member) { m.Reports.Alarm = "" }, false},
		"not by one that does not lead":       {func(m *Member) { m.Reports.Role = leases.RoleMember }, false},
		"not by one that is not reachable":    {func(m *Member) { m.Liveness = leases.Stale }, false},
		"not by one of whom nothing is known": {func(m *Member) { m.Liveness = leases.Unknown }, false},
		"not by a Lease that is not ours":     {func(m *Member) { m.Lease = LeaseForeign }, false},
		"not by one that is unreadable":       {func(m *Member) { m.Readable = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := well
			tc.change(&m)
			reason, message := describe(append(alarmProblems([]Member{m}), Problem{Reason: v1alpha1.ReasonOrphanedObjects}))
			if reported := reason == v1alpha1.ReasonAlarmRaised && strings.Contains(message, words); reported != tc.want {
				t.Errorf("%s: %s", reason, message)
			}
		})
	}
}

func TestEventsReportTransitionsOnce(t *testing.T) {
	down := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].Pod, o.Members[i].EtcdReady = PodAbsent, false }
	}
	slot := func(o *Observed) { o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-c", Mark: "m"} }
	none := v1alpha1.EtcdClusterStatus{}
	tests := map[string]struct {
		before v1alpha1.EtcdClusterStatus
		change []func(*Observed)
		want   []string
	}{
		"a cluster formed": {none, nil, []string{
			"Normal ClusterFormed: The cluster formed with ID 9.",
			"Normal MemberReady c-a: Member c-a with ID 1 is a ready voter.",
			"Normal MemberReady c-b: Member c-b with ID 2 is a ready voter.",
			"Normal MemberReady c-c: Member c-c with ID 3 is a ready voter.",
		}},
		"nothing new": {after(none), nil, nil},
		"a member went": {after(none), []func(*Observed){down(1)}, []string{
			"Warning MemberNotReady c-b: Member c-b is NotReady (PodNotReady): It has no Pod.",
		}},
		"it is still gone": {after(none, down(1)), []func(*Observed){down(1)}, nil},
		"it came back under another ID": {
			after(none, down(1)), []func(*Observed){func(o *Observed) { o.Members[1].Reports.ID = 7 }},
			[]string{
				"Normal MemberReplaced c-b: Member c-b joined again with ID 7, replacing 2.",
				"Normal MemberReady c-b: Member c-b with ID 7 is a ready voter.",
			},
		},
		"the quorum went": {after(none, down(1)), []func(*Observed){down(1), down(2)}, []string{
			"Warning MemberNotReady c-c: Member c-c is NotReady (PodNotReady): It has no Pod.",
			"Warning QuorumLost: 1 of 3 voters serve; a quorum is 2. etcd refuses writes and linearizable reads.",
		}},
		"the quorum came back": {after(none, down(1), down(2)), []func(*Observed){down(1)}, []string{
			"Normal MemberReady c-c: Member c-c with ID 3 is a ready voter.",
			"Normal QuorumRestored: 2 of 3 voters serve; a quorum is 2.",
		}},
		"a member is to leave": {after(none), []func(*Observed){slot}, []string{
			"Normal ScalingDown c-c: Member c-c is to be removed.",
		}},
		"it goes further": {after(none, slot), []func(*Observed){slot, func(o *Observed) {
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: leases.RemovalBegun, Mark: "m"}
		}}, nil},
		"it stays": {after(none, slot), nil, []string{
			"Normal ScaleDownCancelled c-c: Member c-c stays, because it is desired again or cannot be removed now.",
		}},
		"a name is taken": {after(none), []func(*Observed){func(o *Observed) { o.LeaderLease = LeaseForeign }}, []string{
			"Warning ObjectNotOwned: Lease of the leader exists and has another owner. If nothing uses it, delete it. Otherwise give this EtcdCluster another name.",
		}},
		"it is free again": {after(none, func(o *Observed) { o.LeaderLease = LeaseForeign }), nil, []string{
			"Normal ProblemResolved: ObjectNotOwned is over.",
		}},
		"a Lease is all that is unknown": {after(none), []func(*Observed){func(o *Observed) { o.Members[0].Liveness = leases.Unknown }}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range Events(test.before, after(test.before, test.change...)) {
				kind, about := "Normal ", ""
				if e.Warning {
					kind = "Warning "
				}
				if e.Member != "" {
					about = " " + e.Member
				}
				got = append(got, fmt.Sprint(kind, e.Reason, about, ": ", e.Note))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// checkTable decides all facts by a table, compares each decision with the promises, and writes the table into docs/reference/decisions.md.
func checkTable[F, V any](t *testing.T, table *rules.Table[F, V], name, title string, wrong func(F, rules.Decision[V]) string) {
	t.Helper()
	checkTableAbout(t, table, name, title, "", wrong)
}

// checkTableAbout writes some words above the table too.
func checkTableAbout[F, V any](t *testing.T, table *rules.Table[F, V], name, title, about string, wrong func(F, rules.Decision[V]) string) {
	t.Helper()
	// Each in a test of its own: the lock on the document is held until a test ends.
	t.Run(name, func(t *testing.T) {
		rulestest.Section(t, "../../docs/reference/decisions.md", name, title, about, table, rulestest.Check(t, table, wrong))
	})
}

// TestReadyMembersOfDesiredOnly: ready members are of those that the spec asks for.
func TestReadyMembersOfDesiredOnly(t *testing.T) {
	gone := func(o *Observed) { o.Members[1].Pod, o.Members[1].EtcdReady = PodAbsent, false }
	terminates := func(o *Observed) { o.Members[1].Pod = PodTerminating } // its etcd is still ready, and its agent renews
	for name, test := range map[string]struct {
		replicas int
		change   []func(*Observed)
		want     string
	}{
		"all":            {3, nil, "3/3"},
		"one is down":    {3, []func(*Observed){gone}, "2/3"},
		"one terminates": {3, []func(*Observed){terminates}, "2/3"},
		"one terminates on a node that may be off": {3,
			[]func(*Observed){terminates, func(o *Observed) { o.Members[1].NodeLost, o.Members[1].Liveness = true, leases.Stale }}, "2/3"},
		"one leaves and still serves the raft group": {1, []func(*Observed){func(o *Observed) {
			o.Members[2].Serving, o.Record.PendingRemoval = false, &leases.PendingRemoval{Member: "c-c", Mark: "m"}
		}}, "3/1"},
		"one leaves, and its Pod terminates": {1, []func(*Observed){func(o *Observed) {
			o.Members[2].Serving, o.Members[2].Pod, o.Record.PendingRemoval = false, PodTerminating, &leases.PendingRemoval{Member: "c-c", Mark: "m"}
		}}, "2/1"},
		"members leave":   {1, nil, "3/1"},
		"members are due": {5, nil, "3/5"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Status(Evaluate(Desired{Replicas: test.replicas}, whole(test.change...)), v1alpha1.EtcdClusterStatus{}, nil, 1,
				metav1.Now()).ReadyMembers; got != test.want {
				t.Errorf("%s are ready, want %s", got, test.want)
			}
		})
	}
}
