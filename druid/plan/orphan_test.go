package plan

import (
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

func TestOrphansAreReportedAsWhatDruidCleansUp(t *testing.T) {
	left := func(o *Observed) {
		o.Record.Members, o.Members[2].Listed, o.Members[2].Lingers = o.Record.Members[:2], false, true
		o.Members[2].Pod = PodTerminating
	}
	tests := map[string]struct {
		change func(*Observed)
		orphan bool
	}{
		"nothing speaks for it": {func(*Observed) {}, true},
		"acknowledged by our group": {func(o *Observed) {
			o.Members[2].Says.Retire = leases.Retirement{State: leases.RetireDone, Mark: "m", ClusterID: "9"}
		}, false},
		"acknowledged by another group": {func(o *Observed) {
			o.Members[2].Says.Retire = leases.Retirement{State: leases.RetireDone, Mark: "m", ClusterID: "8"}
		}, true},
		"acknowledged, while the group is recovered": {func(o *Observed) {
			o.RecordState = RecordRecovering
			o.Members[2].Says.Retire = leases.Retirement{State: leases.RetireDone, Mark: "m", ClusterID: "9"}
		}, false},
		"dropped before it was in any group": {func(o *Observed) {
			o.Members[2].Says = leases.Member{Retire: leases.Retirement{State: leases.RetireRequested, Mark: NotFormed}}
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := whole(left, test.change)
			notified := false
			for _, p := range problems(Desired{Replicas: 2}, o) {
				notified = notified || p.Reason == v1alpha1.ReasonOrphanedObjects
			}
			if notified != test.orphan {
				t.Errorf("reported as an orphan: %t, want %t", notified, test.orphan)
			}
		})
	}
}
