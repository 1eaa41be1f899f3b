package policy

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/leases"
)

// unconfirmed says why a removal that an agent claimed or acknowledged waits, and what a user can do. It is empty if the agent of the
// leader is known and works.
func (p messageContext) unconfirmed() string {
	if p.scaleDown.facts.slot != slotTaken || p.scaleDown.facts.mark != markRemoving {
		return ""
	}
	switch leader, _ := p.leaderClaim(p.scaleDown.member.Name); leader {
	case ackLeaderNone:
		return p.silentLeader()
	case ackLeaderSeveral:
		return fmt.Sprintf(". Members %s report that they lead, and druid believes none of them before only one does. If that does not change, "+
			"read the logs of their agents with kubectl logs <member> -c agent", strings.Join(p.claimants(), " and "))
	default:
		return ""
	}
}

// silentLeader names the member that led last, if its etcd serves and its agent does not work. That member can lead still, and no agent
// of another member moves its leadership.
func (p messageContext) silentLeader() string {
	for _, m := range p.listed {
		if m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Stale && m.Reports.Role == leases.RoleLeader && m.ofGroup(p.Observed) && m.up() {
			return fmt.Sprintf(". The agent of member %[1]s, which led last, is not renewing its Lease, and only the agent of the leader can finish "+
				"the removal. Read its log with kubectl logs %[1]s -c agent. If it does not return, and the other members are a quorum, delete Pod %[1]s, so that another member leads", m.Name)
		}
	}
	return ""
}

// claimants are the members that report that they lead.
func (p messageContext) claimants() (names []string) {
	for _, m := range p.listed {
		if m.mayLead() && m.ofGroup(p.Observed) {
			names = append(names, m.Name)
		}
	}
	return names
}
