package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// observe is what a druid sees now.
func (w *lostWorld) observe() policy.Observed { return w.observeFor(w.desired()) }

func (w *lostWorld) observeFor(d policy.Desired) policy.Observed {
	o := policy.Observed{RecordState: policy.RecordAbsent, LeaderLease: policy.LeaseOurs, Budget: policy.ObjectForeign, SeedStuck: rules.No}
	if w.there {
		o.Record = w.record
		o.RecordState = map[leases.Phase]policy.RecordState{leases.PhaseFormed: policy.RecordFormed, leases.PhaseRecovering: policy.RecordRecovering}[w.record.Phase]
	}
	o.Members = make([]policy.Member, 0, len(w.members))
	for k := range w.members {
		m := &w.members[k]
		pm := policy.Member{
			Name: names[k], Listed: true, Lease: policy.LeaseOurs, Readable: true, Reports: m.lease, Liveness: leases.Stale, Renewed: time.Unix(1, 0),
			Claim: policy.ClaimPresent, ClaimUID: uids[k], Pod: policy.PodLive, PodUID: uids[k], Agent: policy.AgentCurrent, Volume: policy.VolumeLocal,
		}
		if m.run && m.on && m.api && m.net {
			if _, ok := w.quorum(m.group); ok {
				pm.Liveness, pm.EtcdReady = leases.Live, true
			}
		}
		if !m.on || !m.api {
			pm.NodeLost, pm.Node = true, policy.NodeAway
		}
		if m.gone {
			pm.Node = policy.NodeOutOfService
		}
		if w.mutant&mutLearnersIdle != 0 && pm.Reports.Role == leases.RoleLearner {
			pm.Reports.ID, pm.Reports.Role, o.Record.MemberList = 0, "", withoutLearners(o.Record.MemberList)
		}
		if w.mutant&mutAwayIsLost != 0 && pm.NodeLost {
			pm.Claim, pm.Pod = policy.ClaimAbsent, policy.PodAbsent
		}
		if report := pm.Reports.Disk; w.mutant&mutUnheard != 0 && o.Record.Order() != nil {
			heard := leases.DiskReport{Pod: uids[k], Volume: m.lease.VolumeUID, State: leases.DiskEmpty, Orders: true}
			if heard.Order = o.Record.Order().Name(); report == nil && names[k] != o.Record.Order().Chosen || report != nil && report.State == leases.DiskEmpty {
				pm.Reports.Disk = &heard
			}
		}
		o.Members = append(o.Members, pm)
	}
	w.observeBackups(&o)
	o.QuorumOverdue = policy.QuorumLost(d, o)
	w.observeRestore(d, &o)
	return o
}

func withoutLearners(list *leases.MemberList) *leases.MemberList {
	if list == nil {
		return nil
	}
	voters := *list
	voters.Members = slices.DeleteFunc(slices.Clone(list.Members), func(m leases.ListedMember) bool { return m.Learner })
	return &voters
}

func (w *lostWorld) desired() policy.Desired {
	d := policy.Desired{Replicas: len(w.members), Epoch: uint32(w.status.epoch)}
	d.ClusterID, _ = leases.ParseID(w.status.cluster)
	d.Recovery = policy.RecoveryWish{Automatic: w.policy.automatic, MaxRevisions: w.policy.revisions, MaxSeconds: w.policy.seconds, Approved: w.approved,
		Cluster: clusterUID, Namespace: "n", Name: "c"}
	d.Backup = w.policy.backup
	if w.mutant&mutUnbounded != 0 && d.Recovery.Automatic {
		d.Recovery.MaxRevisions = nil
	}
	if w.mutant&mutUnasked != 0 {
		d.Recovery.Automatic, d.Recovery.MaxSeconds = true, new(int64(30))
	}
	for k := range w.members {
		d.Known = append(d.Known, names[k])
	}
	if last := w.status.last(); last != nil {
		d.Recovery.LastEpoch, d.Recovery.LastRequest = uint32(last.Epoch), last.Request
	}
	w.wishes(&d)
	return d
}

// plan is the next step of a druid: it looks, confirms its step by a live read, and writes.
func (w *lostWorld) plan(di int) bool {
	d := &w.druids[di]
	if d.step == nil {
		return w.firstLook(d)
	}
	if labels := d.step.Kind == policy.LabelPod; !d.step.MustConfirm() || labels && w.without(mutUnconfirmed) {
		step := *d.step
		d.step = nil
		if labels {
			w.label(step, d.pods)
			return true
		}
		return w.restoreStep(step, d.looked)
	}
	if w.restoring.on && d.version == 0 && !d.half { // it reads the Pods before everything else
		if d.half, d.pods = true, w.labels; w.without(mutPodsLast) {
			d.early = w.cache()
		}
		return true
	}
	if d.version == 0 {
		w.confirm(d)
		return true
	}
	step, version := *d.step, d.version-1
	d.step = nil
	if step.Kind == policy.LabelPod {
		w.label(step, d.pods)
		return true
	}
	if w.mutant&mutLateRelease != 0 && step.Kind == policy.ReleaseRecovery {
		version = w.version
	} else if version != w.version {
		return true
	}
	return w.order(step, d.live, version)
}

// firstLook plans a step from the caches.
func (w *lostWorld) firstLook(d *lostDruid) bool {
	var steps []policy.Step
	w.from(d.cached, func() {
		d.seen = w.observe()
		steps = w.steps(d.seen)
		d.due = w.statusOf(d.seen)
	})
	if d.cached == nil {
		d.looks++
	}
	for _, step := range steps {
		if w.mutant&mutNoLateRelease != 0 && (step.Rule == "majority-returned" || step.Rule == "better-disk-report") &&
			d.seen.Record.Order().Stage == leases.StageExecute {
			continue
		}
		if w.withholds(step, d.seen) {
			continue
		}
		if ordersRecord(step.Kind) || w.restoring.on && restoreSteps[step.Kind] {
			d.step, d.version, d.looked, d.pods, d.half, d.early = &step, 0, w.version, w.labels, false, nil
			if d.cached != nil {
				d.looked = -1 // a compare-and-set on what is cached fails
			}
			return true
		}
	}
	return false
}

// confirm plans the step again from live reads.
func (w *lostWorld) confirm(d *lostDruid) {
	pods := w.labels
	if w.restoring.on && d.early == nil {
		w.labels = d.pods
	}
	var again []policy.Step
	w.from(d.early, func() { d.live = w.observe() })
	w.from(d.early, func() { again = w.evaluate(w.desired(), d.live).steps })
	w.labels = pods
	if d.early != nil {
		d.pods = pods
	}
	at := slices.IndexFunc(again, d.step.Same)
	if at < 0 {
		d.step = nil
		return
	}
	d.step, d.version = &again[at], w.version+1
}

// withholds says whether a mutation keeps druid from a step.
func (w *lostWorld) withholds(step policy.Step, seen policy.Observed) bool {
	switch step.Kind {
	case policy.ReleaseRecovery:
		return w.mutant&mutNoRelease != 0
	case policy.PrepareRecovery:
		return w.mutant&mutNoOther != 0 && seen.Record.Order() != nil
	case policy.CreateRecord:
		return w.mutant&mutNoRecord != 0
	default:
		return false
	}
}

func ordersRecord(kind policy.Kind) bool {
	return slices.Contains([]policy.Kind{policy.PrepareRecovery, policy.ExecuteRecovery, policy.ReleaseRecovery, policy.CreateRecord, policy.UpdateRecord}, kind)
}

func (w *lostWorld) order(step policy.Step, seen policy.Observed, version int) bool {
	switch {
	case step.Kind == policy.CreateRecord && !w.there:
		w.there, w.record = true, *step.Record
		w.version++
	case step.Kind == policy.UpdateRecord && step.Record != nil && w.there:
		restored, ok := step.RestoreRecord(w.record, seen.Record.Phase)
		if !ok {
			return false
		}
		restored.Restore = w.record.Restore
		w.record = restored
		w.version++
	case step.Kind == policy.CreateRecord, step.Kind == policy.UpdateRecord:
		return false
	default:
		w.nonces++
		changed, ok := step.ChangeRecovery(seen.Record, fmt.Sprintf("o%d", w.nonces))
		if !ok || !w.update(version, changed, nil) {
			return false
		}
		w.ordered[step.Kind]++
		w.overdue = false
		w.countAcks(step.Kind, seen)
		if order := changed.Order(); order.Restores() && w.agreed[order.Plan] != nil {
			w.agreed[order.Plan].save = saveName(changed)
		}
	}
	w.say("druid: %s by %s", step.Kind, step.Rule)
	return true
}
