package bootstrap

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/leases"
)

// What a catalog of backups means for a bootstrap. Pure, as pure.go.

// epochAbove is above the epoch of every lineage in the catalog: lineages of one place are ordered by it.
func epochAbove(c chain.Catalog) (uint32, error) {
	var highest uint32
	for _, h := range c.Histories {
		highest = max(highest, h.Lineage.Epoch())
	}
	if highest == math.MaxUint32 {
		return 0, fmt.Errorf("below %s stands a lineage of the highest epoch that there is, and none can follow it; move it away", c.Prefix)
	}
	return highest + 1, nil
}

// formedBefore is the error that names a lineage which says that this EtcdCluster, the one with this UID, was formed
// before. Those of others that bore its name say nothing. The record of a bootstrap that cannot be read may be ours; but where
// a restore is ordered, which is when a cluster is lost, one broken object must not forbid it. And a lineage that nothing
// was saved of is then of an attempt that was lost: the record of its bootstrap is written before the cluster is formed.
func formedBefore(c chain.Catalog, uid string, ordered bool) error {
	for _, h := range c.Histories {
		switch saved := len(h.Fulls)+len(h.Deltas) > 0; {
		case h.Formation == nil && saved && !ordered:
			return fmt.Errorf("nothing reports whose lineage %s below %s is: %s", h.Lineage, c.Prefix, h.BootstrapProblem)
		case h.Formation != nil && h.Formation.ClusterUID == uid && (saved || !ordered):
			return fmt.Errorf("lineage %s below %s is of this EtcdCluster; an EtcdCluster of another name can be restored from it",
				h.Lineage, c.Prefix)
		}
	}
	return nil
}

// withoutLost leaves out what attempts of ours have left: they are no history of what is to be restored.
func withoutLost(c chain.Catalog, uid string) chain.Catalog {
	c.Histories = slices.DeleteFunc(slices.Clone(c.Histories), func(h chain.History) bool {
		return h.Formation != nil && h.Formation.ClusterUID == uid
	})
	return c
}

// classifyPlan says what it means that there is no plan: what is not in the backups may yet come into them.
func classifyPlan(err error) Backup {
	switch {
	case errors.Is(err, chain.ErrEmpty), errors.Is(err, chain.ErrUnknown), errors.Is(err, chain.ErrOutside):
		return NoBackup
	default:
		return BackupUnusable
	}
}

// forkOf is the record of the bootstrap of a group that was restored. created is by our own clock.
func forkOf(stamp datadir.Stamp, etcdVersion string, created time.Time) chain.Formation {
	return chain.Formation{
		Lineage: chain.Lineage(stamp.Lineage), Parent: chain.Lineage(stamp.Parent), Fork: stamp.Fork, Reason: "restore", File: stamp.File,
		ClusterID: leases.FormatID(uint64(stamp.ClusterID)), ClusterUID: stamp.Cluster,
		EtcdVersion: etcdVersion, Created: created,
	}
}
