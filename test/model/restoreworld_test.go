package model

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

// A restore in place happens in the world of the recoveries. Its backups have every acknowledged write.

// restoreMutation is a guard of a restore that a mutation takes away.
type restoreMutation uint16

const (
	mutClientsSeen   restoreMutation = 1 << iota // druid takes members that clients are sent to for members that are cut off
	mutUnsaved                                   // druid takes a final backup that is requested for one that is made
	mutUnapproved                                // druid takes any approval for that of the present plan
	mutAlwaysAgain                               // druid forgets what was carried out, and takes any approval
	mutInterrupted                               // druid goes on after clients were served again
	mutServesOrdered                             // druid sends clients to members while an order stands
	mutLateLabels                                // druid writes the labels of a Pod that changed since it planned them
	mutUnmarked                                  // druid cuts clients off without a mark on the Pods
	mutUnconfirmed                               // druid sends clients to a marked Pod without live reads
	mutPodsLast                                  // druid confirms labels by a Pod that it reads after the record
)

// agreement is what the user approved.
type agreement struct {
	backup, save string
	carried      bool
}

// finalBackup is the backup of the state that a restore replaces.
type finalBackup struct {
	state         policy.SaveState
	group, writes int
}

// podLabels are the labels of a Pod that druid writes, its mark, and the version of the Pod.
type podLabels struct {
	serving, voter, leader bool
	cutFor                 string
	version                int
}

// lostCache is what a druid has in its caches of everything but the Pods.
type lostCache struct {
	record   leases.Record
	there    bool
	wish     *leases.RestoreTarget
	status   lostStatus
	approved string
	saves    map[string]*finalBackup
}

// cache returns what a cache that is up to date has.
func (w *lostWorld) cache() *lostCache {
	c := &lostCache{w.record, w.there, w.wish, w.status, w.approved, map[string]*finalBackup{}}
	for name, s := range w.saves {
		c.saves[name] = new(*s)
	}
	return c
}

// from lets a druid look at a cache, or at the API server if there is none.
func (w *lostWorld) from(c *lostCache, look func()) {
	if c == nil {
		look()
		return
	}
	is := lostCache{w.record, w.there, w.wish, w.status, w.approved, w.saves}
	w.record, w.there, w.wish, w.status, w.approved, w.saves = c.record, c.there, c.wish, c.status, c.approved, c.saves
	look()
	w.record, w.there, w.wish, w.status, w.approved, w.saves = is.record, is.there, is.wish, is.status, is.approved, is.saves
}

// restoring is what a world with restores has in addition.
type restoring struct {
	on       bool
	mutant   restoreMutation
	wish     *leases.RestoreTarget
	overdue  bool
	damaged  bool // no backup can be restored
	saves    map[string]*finalBackup
	agreed   map[string]*agreement
	plans    []string // the hashes of agreed, in their order
	labels   [lostMost]podLabels
	answers  [lostMost]leases.RestorePlan // what an agent found, before it writes it
	restored int                          // how many restores were carried out
	// In a history, idle says that the user approves nothing, and unsaved that no final backup is made.
	idle, unsaved bool
}

func newRestoreWorld(mutant restoreMutation, lost lostMutation) *lostWorld {
	w := newLostWorld(lost)
	w.restoring = restoring{on: true, mutant: mutant, saves: map[string]*finalBackup{}, agreed: map[string]*agreement{}}
	for k := range w.members {
		w.labels[k] = podLabels{serving: true, voter: true, leader: k == 0}
	}
	return w
}

// without reports whether the mutation takes away the guard.
func (w *lostWorld) without(guard restoreMutation) bool { return w.restoring.mutant&guard != 0 }

// wishes is the part of the spec about restores.
func (w *lostWorld) wishes(d *policy.Desired) {
	if !w.restoring.on {
		return
	}
	d.Backup, d.Recovery.Store, d.Recovery.Restore = true, "store", w.wish
	if w.without(mutUnapproved) || w.without(mutAlwaysAgain) && w.approved != "" {
		d.Recovery.Approved = ""
		if r := policy.Status(policy.Evaluate(*d, w.observeFor(*d)), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Time{}).Recovery; r != nil && r.Plan != nil {
			d.Recovery.Approved = r.Plan.Hash
		}
	}
}

// observeRestore completes what druid sees.
func (w *lostWorld) observeRestore(d policy.Desired, o *policy.Observed) {
	if !w.restoring.on {
		return
	}
	o.RestoreOverdue = w.overdue
	if w.without(mutAlwaysAgain) {
		o.Record.Recovered = nil
	}
	approved := policy.RestoreApproved(d, *o)
	for k := range o.Members {
		m, l := &o.Members[k], w.labels[k]
		m.Serving, m.Voter, m.Leader, m.CutFor = l.serving, l.voter, l.leader, l.cutFor
		w.misleadAbout(m, o.Record, approved)
	}
	if approved {
		o.RestoreSave = policy.Save{State: policy.SaveAbsent, Name: saveName(o.Record)}
		if save := w.saves[o.RestoreSave.Name]; save != nil {
			o.RestoreSave.State = save.state
		}
		if w.without(mutUnsaved) && o.RestoreSave.State == policy.SaveComing {
			o.RestoreSave.State = policy.SaveDone
		}
	}
}

// misleadAbout makes druid see what a mutation pretends about a Pod.
func (w *lostWorld) misleadAbout(m *policy.Member, r leases.Record, approved bool) {
	saved := w.saves[saveName(r)] != nil
	switch {
	case w.without(mutUnmarked|mutInterrupted) && !approved:
		m.CutFor = ""
	case w.without(mutUnmarked):
		m.CutFor = r.Restore.Request.Nonce
	case w.without(mutClientsSeen) && approved, w.without(mutInterrupted) && saved:
		m.Serving, m.CutFor = false, r.Restore.Request.Nonce
	}
}

func saveName(r leases.Record) string { return "before-restore-" + r.Restore.Request.Nonce }

// restoreSteps are the steps of druid in a world with restores, besides those that write an order.
var restoreSteps = map[policy.Kind]bool{
	policy.RequestRestorePlan: true, policy.ForgetRestorePlan: true, policy.CreateSnapshot: true, policy.LabelPod: true,
}

// label writes the labels of a Pod, unless the Pod changed since the versions if that matters.
func (w *lostWorld) label(step policy.Step, seen [lostMost]podLabels) {
	for k := range w.members {
		l := &w.labels[k]
		if names[k] != step.Member || step.Guarded() && l.version != seen[k].version && !w.without(mutLateLabels) {
			continue
		}
		if l.version++; step.Mark != nil {
			l.cutFor = *step.Mark
		}
		for label, value := range map[*bool]*bool{&w.labels[k].serving: step.Serving, &w.labels[k].voter: step.Voter, &w.labels[k].leader: step.Leader} {
			if value != nil {
				*label = *value
			}
		}
		if step.Serving != nil {
			w.say("druid: clients are sent to %s: %t, by %s", step.Member, *step.Serving, step.Rule)
		}
	}
}

// restoreStep takes a step of druid that was planned when the record had the version.
func (w *lostWorld) restoreStep(step policy.Step, version int) bool {
	switch step.Kind {
	case policy.CreateSnapshot:
		if w.saves[step.Object] != nil {
			return true
		}
		w.saves[step.Object] = &finalBackup{state: policy.SaveComing}
	case policy.RequestRestorePlan, policy.ForgetRestorePlan:
		if !w.there || version != w.version {
			return true
		}
		request := *step.Restore
		if step.Kind == policy.RequestRestorePlan {
			w.nonces++
			request.Nonce = fmt.Sprintf("r%d", w.nonces)
		} else {
			w.overdue = false
		}
		w.record.Restore = leases.Restore{Request: request}
		w.version++
	default:
		return false
	}
	w.ordered[step.Kind]++
	w.say("druid: %s by %s", step.Kind, step.Rule)
	return true
}

// save makes the final backups that are requested, or with fails one that fails.
func (w *lostWorld) save(fails bool) bool {
	if _, ok := w.quorum(w.newest); !ok {
		return false
	}
	for name, s := range w.saves {
		switch {
		case s.state == policy.SaveFailed:
			delete(w.saves, name) // the user deletes the EtcdSnapshot
		case s.state == policy.SaveComing && fails:
			s.state = policy.SaveFailed
		case s.state == policy.SaveComing:
			*s = finalBackup{policy.SaveDone, w.newest, len(w.groups[w.newest].writes)}
			w.say("the final backup %s has %d writes", name, s.writes)
		}
	}
	return true
}

// serve is a write of a client that reaches a member through the Service.
func (w *lostWorld) serve() bool {
	for k := range w.members {
		m := &w.members[k]
		up, ok := w.quorum(m.group)
		if !ok || !w.labels[k].serving || !slices.Contains(up, k) || !w.commit(m.group) {
			continue
		}
		w.groups[m.group].served = len(w.groups[m.group].writes)
		if order := w.record.Order(); w.there && order.Restores() && order.Epoch > w.groups[w.newest].epoch {
			w.violate("a client is sent to %s while order %s stands", names[k], order.Name())
		}
		return true
	}
	return false
}

// servesAll reports whether the cluster serves clients by all members, and no order stands.
func (w *lostWorld) servesAll() bool {
	up, _ := w.quorum(w.newest)
	for k := range w.members {
		if !w.labels[k].serving {
			return false
		}
	}
	return w.there && w.record.Phase == leases.PhaseFormed && len(up) == len(w.members) && w.record.ClusterID == w.groups[w.newest].cluster
}

// steps are those of druid for what it saw.
func (w *lostWorld) steps(seen policy.Observed) []policy.Step {
	d := w.desired()
	steps := w.evaluate(d, seen).steps
	if w.without(mutServesOrdered) && seen.Record.Order() != nil {
		seen.Record.Phase, seen.Record.Recovery, seen.RecordState = leases.PhaseFormed, nil, policy.RecordFormed
		d.Recovery.Restore = nil
		seen.Members = slices.Clone(seen.Members)
		for k := range seen.Members {
			seen.Members[k].CutFor = ""
		}
		steps = slices.Concat(w.evaluate(d, seen).steps, steps)
		steps = slices.DeleteFunc(steps, func(s policy.Step) bool { return s.Kind == policy.ForgetRestorePlan })
	}
	return steps
}
