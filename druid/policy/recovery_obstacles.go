package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/leases"
)

// newLogSpace is how many bytes the log of a new raft group needs: a segment of 64 MB, and the next one, which etcd allocates in advance
// (SegmentSizeBytes in server/storage/wal). The agent checks the same before it writes a copy of the database.
const newLogSpace = 2 * 64 << 20

// obstacleTo says what prevents every recovery, or the one from the best source, empty for nothing.
func (r *recovery) obstacleTo(best source, found bool, d Desired, o Observed) string {
	switch {
	case hasExternals(o.Record):
		return "the raft group has external members, of which druid knows nothing. Recover it with the members that you run yourself"
	case d.Joins && r.forgetsExternals(o.Record):
		return "druid created the cluster record again, and a voter is not a member of this EtcdCluster. It can be an external member of the raft group " +
			"that was joined. Bring the external members back, or restore the newest backup into a new EtcdCluster with spec.bootstrap.restore"
	case r.epoch == 0:
		return "a Lease reports the largest epoch, and a new raft group needs a larger one. No agent counts that far, so something else " +
			"wrote it. Restore the newest backup into a new EtcdCluster with spec.bootstrap.restore"
	case len(r.voters) == 0:
		return "no list of voters is known: no agent reports what its disk holds, and the cluster record has no member list. " +
			"Bring back a member with its data" + earlierData(o)
	case !found:
		return "no member reports data that can be recovered, and no member is here that can restore a backup of this raft group. " +
			"Bring back a node or a volume of a member, or restore an older backup into a new EtcdCluster with spec.bootstrap.restore" + earlierData(o)
	}
	if old := r.withoutOrders(); old != "" {
		return "the agent of member " + old + " does not know recovery orders. Wait until druid has updated the agents"
	}
	if c := best.report; c != nil && best.mode == leases.RecoverSurvivor && c.Free > 0 && c.Free < c.Size+newLogSpace {
		return fmt.Sprintf("the volume of member %s has %d bytes free, and a copy of its database with a new log needs %d. Increase spec.storage.size",
			best.member.Name, c.Free, c.Size+newLogSpace)
	}
	return ""
}

// hasExternals says whether members that druid does not run can be voters: the raft group was joined, and they did not leave yet.
func hasExternals(record leases.Record) bool {
	others, listed := record.Others()
	return record.Adopted() && (!listed || len(others) > 0)
}

// forgetsExternals says whether the record of a raft group that was joined can have lost its external members: it was made again, does not
// know that a member of druid formed the group again, and a voter can be one of them.
func (r *recovery) forgetsExternals(record leases.Record) bool {
	return !record.Adopted() && record.Recovered == nil && slices.ContainsFunc(r.voters, func(p oldVoter) bool { return !p.known })
}

// unknownVoters says of each voter that is given up and that no listed member is what the approval means.
func (r *recovery) unknownVoters(giveUp []string, o Observed) (needs []string) {
	from, again := ancestryOf(o.Record)
	for _, v := range r.voters {
		switch {
		case v.known || !slices.Contains(giveUp, v.id):
		case again && v.id == from.member:
			needs = append(needs, fmt.Sprintf("the cluster record does not list member %s: approve only if its etcd cannot run", v.id))
		default:
			needs = append(needs, fmt.Sprintf("druid does not know which member has the voter ID %s: approve only if no etcd with that ID can run", v.id))
		}
	}
	return needs
}

// earlierData names the members whose volumes have intact data of an earlier raft group than the record's. That group was replaced, and
// what was written since is not in it, so druid does not use it by itself.
func earlierData(o Observed) string {
	var names []string
	for _, m := range o.Members {
		if c := m.Reports.Disk; m.Lease == LeaseOurs && m.Readable && c != nil && c.State == leases.DiskIntact && c.Epoch < o.Record.FormedEpoch {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ". The volumes of " + strings.Join(names, ", ") + " have the data of an earlier raft group: do not delete them before you have copied what you need"
}

// withoutOrders is a member that runs an agent which does not know recovery orders, or "". While etcd runs, there is no disk report. But
// each agent of a release knows orders, and writes its version to the Lease.
func (r *recovery) withoutOrders() string {
	for _, p := range r.ofGroup() {
		m := p.member
		knows := m.Agent == AgentCurrent || p.report == nil && m.Reports.AgentVersion != "" || p.report != nil && p.report.Orders
		if p.known && m.Pod == PodLive && !m.NodeLost && !knows {
			return m.Name
		}
	}
	return ""
}

// away names the voters and the learners that are neither lost nor here.
func (r *recovery) away() string {
	var names []string
	for _, p := range slices.Concat(r.voters, r.unlisted(r.voters)) {
		if p.holds != holdsUnknown {
			continue
		}
		if p.known {
			names = append(names, p.member.Name)
		} else {
			names = append(names, "with ID "+p.id)
		}
	}
	if len(names) == 0 {
		return "No member is away. Run kubectl logs <member> -c etcd to see why etcd finds no leader"
	}
	return "Bring those back that are away: " + strings.Join(names, ", ")
}
