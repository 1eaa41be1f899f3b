package situations

import (
	"testing"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/leases"
)

// The Leases of the backups name objects as the agents name them.
func TestBackupsHaveKeysOfTheCatalog(t *testing.T) {
	for _, s := range All() {
		for _, lease := range s.Objects.Leases {
			component := leases.Component(lease.Labels[leases.LabelComponent])
			if component == leases.ComponentMember {
				continue
			}
			b, err := leases.DecodeBackup(&lease)
			if err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
			if b.Object == "" {
				continue // there is no backup yet
			}
			full, isFull := catalog.ParseFull(prefix, b.Object)
			delta, isDelta := catalog.ParseDelta(prefix, b.Object)
			switch {
			case component == leases.ComponentFullSnapshot && isFull && full.Revision == b.Revision && full.Lineage == catalog.Lineage(b.Lineage):
			case component == leases.ComponentDeltaSnapshot && isDelta && delta.To == b.Revision && delta.Lineage == catalog.Lineage(b.Lineage):
			default:
				t.Errorf("%s: the Lease %s of revision %d and lineage %s names the object %s", s.Name, lease.Name, b.Revision, b.Lineage, b.Object)
			}
		}
	}
}
