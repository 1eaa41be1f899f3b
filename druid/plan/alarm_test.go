package plan

import (
	"strings"
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

func TestAnAlarmIsReportedByWhoLeads(t *testing.T) {
	const words = "full: delete keys"
	well := Member{
		Name: "demo-a", Lease: LeaseOurs, Readable: true, Liveness: leases.Live, Says: leases.Member{ID: 1, Role: leases.RoleLeader, Alarm: words},
	}
	for name, tc := range map[string]struct {
		change func(*Member)
		want   bool
	}{
		"by the leader's agent":               {func(*Member) {}, true},
		"not where none stands":               {func(m *Member) { m.Says.Alarm = "" }, false},
		"not by one that does not lead":       {func(m *Member) { m.Says.Role = leases.RoleMember }, false},
		"not by one that is not reachable":    {func(m *Member) { m.Liveness = leases.Stale }, false},
		"not by one of whom nothing is known": {func(m *Member) { m.Liveness = leases.Unknown }, false},
		"not by a Lease that is not ours":     {func(m *Member) { m.Lease = LeaseForeign }, false},
		"not by one that is unreadable":       {func(m *Member) { m.Readable = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := well
			tc.change(&m)
			reason, message := describe(append(alarmProblems([]Member{m}), Problem{Reason: v1alpha1.ReasonOrphanedObjects}))
			if notified := reason == v1alpha1.ReasonAlarmRaised && strings.Contains(message, words); notified != tc.want {
				t.Errorf("%s: %s", reason, message)
			}
		})
	}
}
