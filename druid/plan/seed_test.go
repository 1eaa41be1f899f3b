package plan

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// The seed may be moved to a member that was just marked to be dropped. It is not dropped any more, so it must lose the mark,
// which keeps it from forming the cluster.
func TestSeedIsNotKeptFromFormingByAMark(t *testing.T) {
	o := whole(func(o *Observed) {
		o.RecordState, o.Record.Phase, o.Record.ClusterID, o.Record.Seed = RecordForming, leases.PhaseForming, 0, "c-b"
		for i := range o.Members {
			m := &o.Members[i]
			m.Says = leases.Member{PodUID: m.PodUID, VolumeUID: m.ClaimUID}
			m.Serving, m.Voter, m.EtcdReady, m.Liveness, m.Readable = false, false, false, leases.Never, m.Name == "c-b"
		}
		o.Members[1].Says.Retire = leases.Retirement{State: leases.RetireRequested, Mark: NotFormed}
	})
	steps := Steps(Desired{Replicas: 1}, o)
	for _, s := range steps {
		if s.Kind == UnretireLease && s.Member == "c-b" {
			return
		}
	}
	t.Errorf("the seed keeps the mark: %v", short(steps))
}
