package model

import (
	"slices"
	"time"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// sync brings one part of a druid's cache up to date; the parts run apart as watches do.
func (w *world) sync(di int, what byte) bool {
	d := &w.druids[di]
	if !d.up || w.down {
		return false
	}
	changed := false
	switch what {
	case 'l':
		changed = d.cache.record.version != w.record.version || d.cache.record.there != w.record.there
		d.cache.record = w.record
		for k := range w.members {
			was, is := &d.cache.members[k].lease, &w.members[k].lease
			changed = changed || was.version != is.version || was.there != is.there
			*was = *is
			d.liveness[k] = d.judge(k)
		}
	case 'p':
		for k := range w.members {
			was, is := &d.cache.members[k].pod, w.members[k].pod
			is.live, is.ready = w.kubelet(k, is.uid)
			changed = changed || *was != is
			*was = is
		}
	case 'c':
		for k := range w.members {
			changed = changed || d.cache.members[k].claim != w.members[k].claim
			d.cache.members[k].claim = w.members[k].claim
		}
	case 's':
		changed = d.cache.replicas != w.replicas || d.cache.retain != w.retain || d.cache.replace != w.replace || d.cache.statusID != w.statusID || d.cache.known != w.known
		d.cache.replicas, d.cache.retain, d.cache.replace = w.replicas, w.retain, w.replace
		d.cache.statusID, d.cache.known = w.statusID, w.known
	}
	return changed
}

// kubelet says what it reports a Pod.
func (w *world) kubelet(k, uid int) (live, ready bool) {
	for i := range w.procs {
		if p := &w.procs[i]; p.alive && p.k == k && p.pod == uid {
			return true, p.run && !p.cut && w.leads(w.vols[p.vol].data.group)
		}
	}
	return false, false
}

// judge is a renewal that was seen; who never saw one does not know.
func (d *druid) judge(k int) leases.Liveness {
	lease := &d.cache.members[k].lease
	switch {
	case !lease.there:
		return leases.Unknown
	case lease.renewed == 0:
		return leases.Never
	case lease.renewed != d.renewed[k]:
		d.renewed[k] = lease.renewed
		return leases.Live
	case d.liveness[k] == 0:
		return leases.Unknown
	default:
		return d.liveness[k]
	}
}

// expire lets the duration of the Leases pass that a druid saw unchanged; it reads them live before it judges.
func (w *world) expire(di int) bool {
	d := &w.druids[di]
	changed := false
	for k := range d.liveness {
		lease := &d.cache.members[k].lease
		if !lease.there || d.liveness[k] == leases.Stale || lease.renewed == 0 {
			continue
		}
		live := &w.members[k].lease
		if w.down || !live.there || live.uid != lease.uid || live.renewed != lease.renewed {
			continue
		}
		// While everything is well, agents renew in time.
		if p := w.procOf(k); p != nil && p.alive && p.agent && p.run && w.reaches(p) && w.leads(w.vols[p.vol].data.group) {
			continue
		}
		d.liveness[k], changed = leases.Stale, true
	}
	return changed
}

// procOf runs the Pod that bears the member's name.
func (w *world) procOf(k int) *proc {
	for i := range w.procs {
		if p := &w.procs[i]; p.alive && p.k == k && p.pod == w.members[k].pod.uid {
			return p
		}
	}
	return nil
}

// observe is what plan sees of some state of the API server.
func (w *world) observe(d *druid, from *kube) (policy.Desired, policy.Observed) {
	desired := policy.Desired{
		Replicas: from.replicas, ClusterID: from.statusID, RetainClaims: from.retain, ClaimsGo: !from.retain,
	}
	if from.replace > 0 {
		desired.Replace = names[from.replace-1]
	}
	o := policy.Observed{
		RecordState: policy.RecordAbsent, LeaderLease: policy.LeaseOurs, Budget: policy.ObjectForeign,
		SeedStuck: rules.YesNoOf(d.stuck), LeaderStill: true, // no agent of the model forges a report, so time adds nothing
	}
	if from.record.there {
		o.Record = from.record.says
		o.RecordState = map[leases.Phase]policy.RecordState{leases.PhaseForming: policy.RecordForming, leases.PhaseFormed: policy.RecordFormed}[o.Record.Phase]
	}
	for k := range from.members {
		if from.known[k] {
			desired.Known = append(desired.Known, names[k])
		}
		m := &from.members[k]
		listed := o.Record.Lists(names[k])
		if !listed && !m.lease.there && !m.claim.there && !m.pod.there {
			continue
		}
		pm := d.member(k, m, listed)
		if slot := o.Record.PendingRemoval; slot != nil && slot.Member == pm.Name && listed && !slot.Orders(pm.Name, pm.Reports.Removal) {
			pm.Routed = w.members[k].pod.routed // always read live
		}
		o.Members = append(o.Members, pm)
	}
	w.mislead(&o)
	return desired, o
}

func (d *druid) member(k int, m *memberObj, listed bool) policy.Member {
	pm := policy.Member{
		Name: names[k], Listed: listed, Lease: policy.LeaseAbsent, Claim: policy.ClaimAbsent, Pod: policy.PodAbsent, Liveness: leases.Unknown,
	}
	if m.lease.there {
		pm.Lease, pm.Readable, pm.Reports, pm.Liveness = policy.LeaseOurs, true, m.lease.says, d.liveness[k]
		pm.WasFormed = time.Unix(int64(m.lease.uid), 0)
		if pm.Liveness == 0 {
			pm.Liveness = leases.Unknown
		}
	}
	if m.claim.there {
		pm.Claim, pm.ClaimUID, pm.ClaimOwned = policy.ClaimPresent, uids[m.claim.uid], m.claim.owned
		if m.claim.going {
			pm.Claim = policy.ClaimTerminating
		}
	}
	if m.pod.there {
		pm.PodUID, pm.EtcdReady, pm.Serving, pm.Voter = uids[m.pod.uid], m.pod.ready, m.pod.serving, m.pod.voter
		switch {
		case m.pod.going:
			pm.Pod = policy.PodTerminating
		case m.pod.live:
			pm.Pod = policy.PodLive
		default:
			pm.Pod = policy.PodUnstarted
		}
	}
	return pm
}

// druidStep plans, or takes the next step of the plan.
func (w *world) druidStep(di int) bool {
	d := &w.druids[di]
	if !d.up || w.down {
		return false
	}
	if len(d.steps) == 0 {
		d.desired, d.observed = w.observe(d, &d.cache)
		if w.is(mutDruidBlind) && !d.cache.record.there {
			d.desired, d.observed = policy.Desired{Replicas: d.desired.Replicas}, policy.Observed{
				RecordState: policy.RecordAbsent, SeedStuck: rules.No,
			}
		}
		d.steps = policy.Steps(policy.Evaluate(d.desired, d.observed))
		d.checked = false
		return len(d.steps) > 0 || w.status(d)
	}
	step := d.steps[0]
	if step.MustConfirm() && !d.checked && !w.is(mutNoLiveRead) && !w.is(mutDruidBlind) {
		if w.confirmStep(d, step); !d.checked || step.Kind != policy.DeletePod {
			return true
		}
		step = d.steps[0] // no druid can help what happens between its last look and its call
	}
	d.steps, d.checked = d.steps[1:], false
	w.take(d, step)
	return true
}

// live is the API server's content as druid's live reads report it now.
func (w *world) live() *kube {
	live := w.kube
	for k := range live.members {
		pod := &live.members[k].pod
		pod.live, pod.ready = w.kubelet(k, pod.uid)
	}
	return &live
}

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
		w.isVerified(again[at])
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
	if w.telling != nil {
		w.say("druid: %s %s (%s)", step.Kind, step.Member, step.Rule)
	}
	switch step.Kind {
	case policy.CreateRecord, policy.UpdateRecord, policy.OpenSlot, policy.FreeSlot, policy.StrikeName:
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
// status was written once. No one could report it from a first day, and there is no data that it could harm.
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
