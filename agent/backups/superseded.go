package backups

import (
	"fmt"

	"github.com/etcd-druid/druid/backup/chain"
)

// superseding finds a history in our place that does not count as older than ours: where two go on side by side, each lets
// the other's backups go, and the latest backup is the other's. Pure.
//
// Older are our ancestors, and what has a lower epoch: a cluster that is formed with its backups takes one above all that is
// there. A lineage that nothing was saved of is no history: it is of an attempt that was lost, or of a bootstrap under way.
func superseding(c chain.Catalog, self Identity) (chain.Lineage, bool) {
	older := ancestors(c, self)
	for _, h := range c.Histories {
		saved := len(h.Fulls)+len(h.Deltas) > 0
		if saved && h.Lineage != self.Lineage && !older[h.Lineage] && h.Lineage.Epoch() >= self.Lineage.Epoch() {
			return h.Lineage, true
		}
	}
	return "", false
}

// ancestors of ours, as the stamp and the records of their bootstraps report.
func ancestors(c chain.Catalog, self Identity) map[chain.Lineage]bool {
	found := map[chain.Lineage]bool{}
	for _, l := range []chain.Lineage{self.Parent, parentOf(c, self.Lineage)} {
		for ; l != "" && !found[l]; l = parentOf(c, l) {
			found[l] = true
		}
	}
	return found
}

func parentOf(c chain.Catalog, l chain.Lineage) chain.Lineage {
	if h, _ := c.History(l); h.Formation != nil {
		return h.Formation.Parent
	}
	return ""
}

// supersededError is a doubt about whose backups lead to the latest state.
type supersededError struct {
	by   chain.Lineage
	text string
}

func (e *supersededError) Error() string { return e.text }

// supersededBy says what a person is to do: which of the two is to stay here no one else can know.
func (s *session) supersededBy(l chain.Lineage) error {
	return &supersededError{by: l, text: fmt.Sprintf("another history of this place is newer than ours: lineage %s below %s, ours is %s. What leads to the latest state is its backup, not ours, and nothing is deleted: give this cluster a place of its own, "+
		"by another prefix of its store, or as an EtcdCluster of another name or namespace", l, s.config.Prefix, s.self.Lineage)}
}
