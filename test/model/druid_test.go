package model

import (
	"time"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
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
		changed = d.cache.replicas != w.replicas || d.cache.retain != w.retain || d.cache.replace != w.replace || d.cache.statusID != w.statusID ||
			d.cache.known != w.known
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
		pm.Created = time.Unix(int64(m.lease.uid), 0)
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
