package druid

import (
	"slices"
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/manifests"
)

// leftovers are the claims of earlier EtcdClusters of the cluster's name, sorted. They are never adopted: their data is of
// another raft group, and who makes an EtcdCluster again may want either.
func leftovers(o *observation) []string {
	var names []string
	for name, claim := range o.claims {
		uid := claim.Labels[manifests.LabelClusterUID]
		if uid != "" && uid != string(o.cluster.UID) && claim.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// tellLeftovers reports them once, when the cluster is formed next to them.
func (r *Reconciler) reportLeftovers(o *observation, step plan.Step) {
	names := leftovers(o)
	if len(names) == 0 {
		return
	}
	r.event(o, plan.Event{
		Warning: true, Reason: v1alpha1.EventRetainedVolumesFound,
		Note: "This cluster starts empty. PersistentVolumeClaims of an earlier EtcdCluster of this name exist and are not used: " +
			strings.Join(names, ", ") + ". Delete them, or copy their data first (docs/how-to/run/delete.md)",
	}, string(step.Kind))
}
