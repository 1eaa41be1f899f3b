package policy

import (
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// measured says whether the agent of the member reports how fast its disk is now.
func (m Member) measured() bool {
	return m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Reports.Fsync.Known()
}

// diskSpeed returns the verdict of the member's agent on its disk, or "" while it is unknown. A druid that has just started keeps the
// previous verdict.
func diskSpeed(m Member, before string) string {
	switch {
	case m.measured():
		return string(m.Reports.Fsync.Speed)
	case m.Liveness == leases.Unknown:
		return before
	default:
		return ""
	}
}

// diskProblems reports members whose disk is very slow. A slow disk is no problem yet: the leadership moves away from it. The message
// has no measured time, which changes with each report.
func diskProblems(listed []Member) (all []Problem) {
	for _, m := range listed {
		if m.measured() && m.Reports.Fsync.Speed == leases.SpeedVerySlow {
			all = append(all, Problem{Reason: v1alpha1.ReasonSlowDisk, Member: m.Name, Message: "its disk is very slow: one in a hundred writes to the log of " +
				"etcd takes half a second or longer, so that a leader can lose the leadership. Use a faster disk, or move other load away from it. " +
				"See docs/how-to/rescue/slow-disk.md"})
		}
	}
	return all
}
