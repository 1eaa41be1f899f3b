package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/leases"
)

// ruleCannotExecute is the rule by which an order waits for you: the selected member cannot carry it out.
const ruleCannotExecute = "cannot-execute"

// failure is what the selected member reports about an order that it cannot carry out. It is empty if it can.
func (r *recovery) failure() leases.RestoreFailure {
	for _, v := range slices.Concat(r.voters, r.others) {
		if v.known && v.member.Name == r.order.Chosen && v.acknowledged {
			return v.report.Failed
		}
	}
	return ""
}

// diskRepairs says what you can do about a failure to form the raft group from the disk of the selected member, where another repair
// applies than to a backup.
var diskRepairs = map[leases.RestoreFailure]string{
	leases.FailedVersion: "Set spec.version to the version of etcd that wrote the data or a newer one, or install a newer druid",
	leases.FailedData: "Keep the volume: a newer agent might be able to use it. Install a newer druid, or restore a backup into a new EtcdCluster " +
		"with spec.bootstrap.restore",
}

// repairs says what you can do about a failure.
var repairs = map[leases.RestoreFailure]string{
	leases.FailedBackups: "Put good copies of the objects into the backup store. If there are none, restore an older backup into a new " +
		"EtcdCluster with spec.bootstrap.restore",
	leases.FailedKey:     "Add the key to the Secret that spec.backup names",
	leases.FailedSpace:   "Increase spec.storage.size",
	leases.FailedQuota:   "Increase spec.etcd.quotaBackendBytes, and spec.storage.size if the volume is too small for that",
	leases.FailedVersion: "Set spec.version to the version of etcd that wrote the backup or a newer one, or install a newer druid",
	leases.FailedAuth:    "Set spec.auth, as it was when the backup was written",
}

// failedWords says why the selected member cannot carry out the order, and what to do. The agent's own words come from the member Lease.
func (r *recovery) failedWords(o Observed, listed []Member) string {
	failure, task := r.failure(), "restore the backup"
	repair, known := repairs[failure]
	if r.order.Mode == leases.RecoverSurvivor {
		task = "form the cluster again from its disk"
		if own, differs := diskRepairs[failure]; differs {
			repair, known = own, true
		}
	}
	if !known {
		repair = "See the message of the member in status.members"
	}
	why := string(failure)
	if i := slices.IndexFunc(listed, func(m Member) bool { return m.Name == r.order.Chosen }); i >= 0 && listed[i].Reports.Reason != "" {
		why += ": " + strings.TrimSuffix(listed[i].Reports.Reason, ".")
	}
	if disk, usable := r.bestDisk(o, func(p oldVoter) bool { return p.acknowledged }); usable && failure == leases.FailedBackups {
		repair += fmt.Sprintf(". Or remove spec.backup, to recover from the disk of member %s, up to revision %d", disk.member.Name, disk.kept)
	}
	return fmt.Sprintf("member %s cannot %s (%s). %s. The agent tries again by itself", r.order.Chosen, task, why, repair)
}

// insteadOf returns the disk of another member with the same data if the member of the order cannot carry it out, and the other one is
// better in what made it fail. The disk of a learner is left out: its loss counts as unknown, so that it needs an approval of its own.
func (r *recovery) insteadOf(best source, disks []source) source {
	i := slices.IndexFunc(disks, func(s source) bool { return s.selected && s.holdsAs(best) && s.report.Failed != "" })
	if i < 0 {
		return best
	}
	failed := disks[i]
	same := slices.DeleteFunc(slices.Clone(disks), func(s source) bool { return !s.holdsAs(failed) })
	back := failed.report.Failed == leases.FailedData && !slices.ContainsFunc(same, func(s source) bool { return s.member.Agent != AgentCurrent })
	other, found := bestOf(slices.DeleteFunc(same, func(s source) bool {
		return !r.follows(failed.member, s.member, back) || !failed.member.improvedBy(s.member)
	}))
	if !found {
		return best
	}
	other.instead = true
	return other
}

// follows says whether druid goes on from a member that failed to another one, so that the members of an order do not alternate: to one with
// a later name, and back to an earlier one if the data of the failed one cannot be used at all. You cannot correct that, and the other disk
// can have returned after the order. It never goes on to a member that failed before. Only the order has the names of those, and an older
// agent drops them from the record. So druid does not go back next to one.
func (r *recovery) follows(failed, next Member, back bool) bool {
	return !slices.Contains(r.order.Unable, next.Name) && (next.Name > failed.Name || back && next.Name != failed.Name)
}

// holdsAs says whether two disks have the same data: intact logs of a raft group that end in the same entry are equal.
func (s source) holdsAs(other source) bool {
	return max(s.class, other.class) == dataIntact && s.report != nil && other.report != nil && s.epoch == other.epoch &&
		s.lastTerm == other.lastTerm && s.last == other.last
}

// The rules by which failedStep deletes a Pod, and replaces an agent.
const (
	ruleCorrectedPod = "cannot-execute-corrected"
	ruleFailedAgent  = "cannot-execute-agent-outdated"
)

// failedStep replaces the Pod of the selected member by one of the corrected spec: a larger quota or another version of etcd needs a new
// Pod. No etcd runs in the present one, because its agent acknowledges the order. Data in the Pod is lost with it, so a Pod that has some
// stays. An agent with an outdated image is replaced in its Pod: no other agent tries to carry out the order.
func failedStep(e Evaluation, leaving map[string]bool, add func(Step)) {
	r := e.recovery
	if r.rule != ruleCannotExecute {
		return
	}
	m, listed := e.member(r.order.Chosen)
	if !listed || leaving[m.Name] || m.Pod != PodLive || m.NodeLost {
		return
	}
	inPod := m.volatile() && m.Reports.Disk.State != leases.DiskEmpty
	switch {
	case m.Make == MakeOutdated && !inPod && e.upgrade.gateFor(m, e.Desired, e.Observed) != gateRefused:
		leaving[m.Name] = true
		add(Step{Kind: DeletePod, Rule: ruleCorrectedPod, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID, Toll: TollNone})
	case m.Agent == AgentOutdated:
		add(Step{Kind: ReplaceAgent, Rule: ruleFailedAgent, Stage: StageDelete, Member: m.Name, PodUID: m.PodUID})
	}
}
