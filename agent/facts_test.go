package agent

import (
	"testing"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// The next leader's agent looks at an alarm within a minute. Until then its Lease says that one stands, else druid would report that it is over.
func TestTheLeadersAgentReportsOfAnAlarmBeforeItDecided(t *testing.T) {
	raised := []string{"memberID:1 alarm:" + membership.AlarmNoSpace + " "}
	for name, tc := range map[string]struct {
		role     membership.Role
		errors   []string
		notified string
		want     string
	}{
		"none stands":            {membership.RoleLeader, nil, "", ""},
		"one stands":             {membership.RoleLeader, raised, "", undecided},
		"it is decided on":       {membership.RoleLeader, raised, "disarm", "disarm"},
		"it is another's":        {membership.RoleMember, raised, "", ""},
		"it is no alarm":         {membership.RoleLeader, []string{"etcdserver: no leader"}, "", ""},
		"what was decided lasts": {membership.RoleLeader, nil, "disarm", "disarm"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts("1", leases.Snapshots{})
			f.observe(State{Reachable: true, Healthy: true, Status: membership.Status{MemberID: 1, ClusterID: 2, Role: tc.role, Errors: tc.errors}})
			f.alarmed(tc.notified)
			if got := f.fact(datadir.Stamp{Formed: true, MemberID: 1, ClusterID: 2}, true).Member.Alarm; got != tc.want {
				t.Errorf("the Lease says %q, want %q", got, tc.want)
			}
		})
	}
}

// Before the first etcd of this Pod starts, the Lease says what the Pod lets it do: what an earlier Pod said holds no more.
func TestTheAgentSaysWhenItsEtcdTakesSnapshots(t *testing.T) {
	own := leases.Snapshots{Entries: 200_000, PodUID: "this"}
	f := newFacts("1", own)
	if got := f.fact(datadir.Stamp{}, false).Member.Snapshots; got != own {
		t.Errorf("before etcd runs: %+v, want %+v", got, own)
	}
	f.observe(State{Reachable: true, Healthy: true, Status: membership.Status{MemberID: 1, ClusterID: 2, Role: membership.RoleMember}})
	if got := f.fact(datadir.Stamp{Formed: true, MemberID: 1, ClusterID: 2}, true).Member.Snapshots; got != own {
		t.Errorf("while etcd runs: %+v, want %+v", got, own)
	}
}
