package policy

import (
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// TestDiskVerdictOfReportingAgent: the verdict on a disk is that of an agent which reports now.
// The verdict is that of an agent which renews its Lease now. Only a druid that has just started keeps an earlier one.
func TestDiskVerdictOfReportingAgent(t *testing.T) {
	very := leases.Fsync{Speed: leases.SpeedVerySlow, P99: 1}
	for name, tc := range map[string]struct {
		change  func(*Member)
		want    string
		problem bool
	}{
		"very slow":             {func(*Member) {}, "VerySlow", true},
		"slow":                  {func(m *Member) { m.Reports.Fsync.Speed = leases.SpeedSlow }, "Slow", false},
		"fast enough":           {func(m *Member) { m.Reports.Fsync.Speed = leases.SpeedOK }, "OK", false},
		"not measured":          {func(m *Member) { m.Reports.Fsync = leases.Fsync{} }, "", false},
		"its agent is silent":   {func(m *Member) { m.Liveness = leases.Stale }, "", false},
		"it never reported":     {func(m *Member) { m.Liveness = leases.Never }, "", false},
		"druid has just begun":  {func(m *Member) { m.Liveness = leases.Unknown }, "before", false},
		"another owner's Lease": {func(m *Member) { m.Lease = LeaseForeign }, "", false},
		"an unreadable Lease":   {func(m *Member) { m.Readable = false }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := Member{Name: "c-a", Lease: LeaseOurs, Readable: true, Liveness: leases.Live, Reports: leases.Member{Fsync: very}}
			tc.change(&m)
			if got := diskSpeed(m, "before"); got != tc.want {
				t.Errorf("the verdict is %q, want %q", got, tc.want)
			}
			problems := diskProblems([]Member{m})
			if reported := len(problems) == 1 && problems[0].Reason == v1alpha1.ReasonSlowDisk && problems[0].Member == m.Name; reported != tc.problem {
				t.Errorf("problems %+v", problems)
			}
		})
	}
}

// TestSameVerdictKeepsProblem: a measurement of the same verdict changes no problem.
// A new measurement of the same verdict writes no status.
func TestSameVerdictKeepsProblem(t *testing.T) {
	m := Member{Name: "c-a", Lease: LeaseOurs, Readable: true, Liveness: leases.Live,
		Reports: leases.Member{Fsync: leases.Fsync{Speed: leases.SpeedVerySlow, P99: 1}}}
	before := diskProblems([]Member{m})
	m.Reports.Fsync.P99 = 2
	if after := diskProblems([]Member{m}); len(after) != 1 || after[0] != before[0] {
		t.Errorf("%+v, and then %+v", before, after)
	}
}
