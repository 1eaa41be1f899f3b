package druid

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/leases"
)

// savingPause between two looks at what is backed up of a member that is about to stop.
const savingPause = 2 * time.Second

// observeSaving looks again while the last member's backup is awaited.
func observeSaving(o *observation) {
	if plan.Saving(o.desired, o.observed) {
		o.lookAgain(savingPause)
	}
}

// observePause forgets what druid saw of Leases that no one renews, because no one runs who could: a Lease that was silent
// throughout a pause must not count as silent when the cluster is resumed.
func (r *Reconciler) observePause(o *observation) {
	if !plan.Paused(o.desired, o.observed) {
		return
	}
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		r.memory.forget(types.NamespacedName{Namespace: o.cluster.Namespace, Name: m.Name})
		m.Liveness, m.Expired = leases.Unknown, false
	}
	for _, component := range []leases.Component{leases.ComponentFullSnapshot, leases.ComponentDeltaSnapshot} {
		name := leases.SnapshotName(o.cluster.Name, component)
		r.memory.forget(types.NamespacedName{Namespace: o.cluster.Namespace, Name: name})
		r.memory.lasts(fact{o.cluster.UID, reportedNothing(name)}, false, 0, r.now())
	}
}
