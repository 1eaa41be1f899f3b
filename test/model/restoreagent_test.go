package model

import (
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

// bump is what a restore adds to the revision.
const bump = 1000

// saved finds what the backups have of a target: the raft group, and how many of its writes.
func (w *lostWorld) saved(t leases.RestoreTarget, current string) (g, writes int, ok bool) {
	lineage := t.Lineage
	if lineage == "" {
		lineage = current
	}
	g = slices.IndexFunc(w.groups, func(group lostGroup) bool { return group.lineage == lineage })
	if g < 0 {
		return 0, 0, false
	}
	for t.Revision > 0 && t.Revision <= w.groups[g].base {
		g = w.groups[g].parent
	}
	if writes = len(w.groups[g].writes); t.Revision > 0 {
		n := int(t.Revision - w.groups[g].base)
		return g, n, n > 0 && n <= writes
	}
	return g, writes, writes > 0
}

// answer is a step of the leader's agent for the plan of a restore: it finds the plan, and then writes it.
func (w *lostWorld) answer(k int) bool {
	m := &w.members[k]
	up, ok := w.quorum(m.group)
	if !ok || !slices.Contains(up, k) || !m.api || !w.there || w.record.Phase != leases.PhaseFormed ||
		w.record.ClusterID != w.groups[m.group].cluster || !w.record.Restore.Open() {
		return false
	}
	request, plan := w.record.Restore.Request, w.answers[k]
	w.answers[k] = leases.RestorePlan{}
	switch plan.Nonce {
	case request.Nonce:
		w.record.Restore.Plan = plan
		w.version++
		w.say("%s plans to restore %s", names[k], request.Target)
		return true
	default:
		g, writes, ok := w.saved(request.Target, w.record.Lineage)
		plan = leases.RestorePlan{Nonce: request.Nonce, Error: "no such backup"}
		if ok {
			plan = leases.RestorePlan{Nonce: request.Nonce, Lineage: w.groups[g].lineage, Full: "full", Revision: w.groups[g].base + int64(writes)}
		}
		w.answers[k] = plan
		return true
	}
}

// agree remembers what the user approves. The final backup is that of the order.
func (w *lostWorld) agree(plan *v1alpha1.RecoveryPlan) {
	if plan.Source == v1alpha1.RecoveryFromRestore && w.agreed[plan.Hash] == nil {
		w.agreed[plan.Hash] = &agreement{backup: plan.Backup}
		w.plans = append(w.plans, plan.Hash)
	}
}

// restoredFor returns the writes of the new raft group of an order, and from which raft group they are. ok is false if the backups
// do not have them.
func (w *lostWorld) restoredFor(order *leases.Recovery, current string) (writes []int, from int, ok bool) {
	g, n, ok := w.saved(*order.Target, current)
	if w.damaged || !ok || w.groups[g].lineage != order.Lineage || w.groups[g].base+int64(n) < order.Revision {
		return nil, 0, false
	}
	return slices.Clone(w.groups[g].writes[:n]), g, true
}

// checkRestored compares a restore that becomes the cluster with what the user approved, and with the final backup.
func (w *lostWorld) checkRestored(k int, order leases.Recovery) {
	m := &w.members[k]
	w.restored++
	a := w.agreed[order.Plan]
	if a == nil {
		w.violate("the user did not approve the plan %s of order %s", order.Plan, order.Name())
		return
	}
	if backup := fmt.Sprintf("%s@%d", order.Lineage, order.Revision); backup != a.backup {
		w.violate("order %s restores %s, and the user approved %s", order.Name(), backup, a.backup)
	}
	if a.carried {
		w.violate("the plan %s is carried out twice", order.Plan)
	}
	a.carried = true
	save := w.saves[a.save]
	switch old := w.groups[w.newest]; {
	case save == nil || save.state != policy.SaveDone:
		w.violate("order %s is carried out without a final backup", order.Name())
	case save.group != w.newest || save.writes < old.served:
		w.violate("the final backup has %d writes of epoch %d, and clients of the Service wrote %d in epoch %d", save.writes,
			w.groups[save.group].epoch, old.served, old.epoch)
	}
	for j := range w.members { // not even a minority serves reads of the old state through the Service
		if o := &w.members[j]; o.run && o.on && o.api && o.group == w.newest && w.labels[j].serving {
			w.violate("%s serves clients with the data that %s replaced", names[j], names[m.buildOf%len(names)])
		}
	}
}
