package model

import (
	"slices"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// confirmStep plans once more from live reads.
func (w *world) confirmStep(d *druid, step policy.Step) {
	desired, observed := w.observe(d, w.live())
	again := policy.Steps(policy.Evaluate(desired, observed))
	if at := slices.IndexFunc(again, step.Same); at >= 0 {
		d.steps = append([]policy.Step{again[at]}, d.steps[1:]...)
		d.checked, d.desired, d.observed = true, desired, observed
		if step.Member != "" {
			d.lease = w.members[indexOf(step.Member)].lease.version
		}
		w.checkConfirmed(again[at])
		return
	}
	d.steps, d.checked = d.steps[1:], false
}

// status writes what druid latches.
func (w *world) status(d *druid) bool {
	changed := false
	if o := &d.observed; w.statusID == d.desired.ClusterID && w.known == d.cache.known {
		if w.statusID == 0 && o.RecordState == policy.RecordFormed && o.Record.ClusterID != 0 {
			w.statusID, changed = o.Record.ClusterID, true
		}
		if o.RecordState&(policy.RecordForming|policy.RecordFormed) != 0 {
			var known [maxMembers]bool
			for _, name := range o.Record.Members {
				known[indexOf(name)] = true
			}
			changed = changed || known != w.known
			w.known = known
		}
	}
	return changed
}

func (w *world) take(d *druid, step policy.Step) {
	if w.lines != nil {
		w.say("druid: %s %s (%s)", step.Kind, step.Member, step.Rule)
	}
	switch step.Kind {
	case policy.CreateRecord, policy.UpdateRecord, policy.OpenSlot, policy.FreeSlot, policy.RemoveName:
		w.writeRecord(d, step)
		d.steps = nil
	case policy.RequestRemoval, policy.WithdrawRemoval, policy.RepeatRemoval:
		w.writeMark(d, step)
	case policy.DeleteClaim, policy.RetainClaim, policy.DeleteLease, policy.TakeClaim, policy.ReleaseClaim:
		w.clear(d, step)
	case policy.ApplyObject, policy.ApplyBudget, policy.CreateLeaderLease: // no decision looks at these
	default:
		w.takeOf(d, indexOf(step.Member), step)
	}
}

// takeOf takes a step that makes, marks or deletes what a member lives on.
func (w *world) takeOf(d *druid, k int, step policy.Step) {
	m := &w.members[k]
	switch step.Kind {
	case policy.CreateMemberLease:
		w.orphaned(k)
		if !m.lease.there {
			m.lease.there, m.lease.uid, m.lease.version, m.lease.renewed, m.lease.says = true, w.uid(), w.nextVersion(), 0, leases.Member{}
		}
	case policy.CreateClaim:
		if !m.claim.there {
			w.vols = append(w.vols, volume{})
			m.claim.there, m.claim.going, m.claim.uid, m.claim.vol = true, false, w.uid(), len(w.vols)-1
			m.claim.owned = d.desired.ClaimsGo
			w.orphaned(k)
		}
	case policy.CreatePod:
		if !m.pod.there {
			m.pod.there, m.pod.going, m.pod.uid, m.pod.serving, m.pod.voter = true, false, w.uid(), false, false
			m.pod.routed = false
			w.orphaned(k)
		}
	case policy.MarkLease:
		if was := d.cache.members[k].lease; m.lease.there && m.lease.uid == was.uid && m.lease.version == was.version {
			m.lease.says.PodUID, m.lease.says.VolumeUID, m.lease.version = step.PodUID, step.ClaimUID, w.nextVersion()
		}
	case policy.LabelPod:
		w.label(k, step)
	case policy.DeletePod:
		if m.pod.there && uids[m.pod.uid] == step.PodUID {
			w.deleted(k, step.Rule)
			m.pod.going = true
		}
	default:
		w.violate("the model does not know how druid takes the step %s", step.Kind)
	}
}

func (w *world) label(k int, step policy.Step) {
	pod := &w.members[k].pod
	if !pod.there || uids[pod.uid] != step.PodUID {
		return
	}
	if step.Serving != nil {
		pod.serving = *step.Serving
	}
	if step.Voter != nil {
		pod.voter = *step.Voter
	}
}

// deleted holds the deletion of a Pod against the quorum: druid never stops the etcd that a quorum needs.
func (w *world) deleted(k int, rule string) {
	p := w.procOf(k)
	if p == nil || !p.run || w.ghost.excused {
		return
	}
	gi := w.vols[p.vol].data.group
	members := w.groups[gi].now()
	at := find(members, w.vols[p.vol].data.member)
	if at < 0 || members[at].learner || p.cut || !w.leads(gi) || voters(members) == 1 {
		return
	}
	for _, e := range members {
		if says := w.members[e.k].lease.says; e.learner && says.Role != leases.RoleLearner {
			return // its Lease still reports the voter that it was: no druid can know better
		}
	}
	if w.healthy(gi, members)-1 < membership.Quorum(voters(members)) {
		w.violate("druid deletes Pod %d of %s (%s), whose etcd the quorum needs", p.pod, names[k], rule)
	}
}

func (w *world) writeRecord(d *druid, step policy.Step) {
	if step.Kind == policy.CreateRecord {
		if w.record.there {
			return
		}
		record := *step.Record
		w.forget(record)
		w.grow(&record, step.Draw)
		if record.Phase == leases.PhaseForming && len(record.Members) > 0 {
			w.seed(&record, record.Members[0])
		}
		w.record = recordObj{there: true, version: w.nextVersion(), says: record}
		d.cache.record = w.record
		return
	}
	if !w.record.there {
		return
	}
	record := w.record.says
	switch {
	case step.Kind != policy.UpdateRecord:
		changed, ok := w.changeSlot(record, step)
		if !ok {
			return
		}
		record = changed
	case step.Release != nil:
		if record.Replacing == nil || *record.Replacing != *step.Release {
			return
		}
		record.Replacing = nil
	case step.Record != nil:
		restored, ok := step.RestoreRecord(record, d.observed.Record.Phase)
		if !ok {
			return
		}
		record = restored
	case step.Seed != "":
		if record.Phase != leases.PhaseForming || record.Executor != "" || record.Seed != d.observed.Record.Seed {
			return
		}
		w.seed(&record, step.Seed)
	default:
		missing := step.Missing(record, d.desired.Replicas)
		if missing == 0 {
			return
		}
		w.grow(&record, missing)
	}
	w.oneAtATime(record)
	w.record = recordObj{there: true, version: w.nextVersion(), says: record}
	d.cache.record = w.record
}

// forget begins a new life where nothing of the former one is left anywhere: every object was deleted by hand before the
// status was written once. An earlier status cannot have it, and there is no data that it could harm.
func (w *world) forget(record leases.Record) {
	if record.Phase != leases.PhaseForming || w.ghost.formed == 0 || w.statusID != 0 {
		return
	}
	for k := range w.members {
		if m := &w.members[k]; m.lease.there || m.claim.there || m.pod.there || w.known[k] {
			return
		}
	}
	for i := range w.procs {
		if w.procs[i].alive {
			return
		}
	}
	w.ghost.formed, w.ghost.wrote, w.ghost.excused = 0, 0, false
}

func (w *world) seed(record *leases.Record, name string) {
	w.counts.nonce++
	record.Seed, record.Nonce = name, uids[w.counts.nonce]
}

// grow draws names that were never drawn.
func (w *world) grow(record *leases.Record, n int) {
	record.Members = slices.Clone(record.Members)
	if w.drawn+n > stray {
		w.ghost.helpless = "the model has no more names to draw"
	}
	for ; n > 0 && w.drawn < stray; n-- {
		record.Members = append(record.Members, names[w.drawn])
		w.drawn++
	}
	slices.Sort(record.Members)
}
