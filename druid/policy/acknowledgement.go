package policy

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	// ackWriter is the agent in whose name the removal of a member is acknowledged.
	ackWriter uint8
	// ackLeader is what the member Leases report about who leads.
	ackLeader uint8
	// ackVerdict is the decision about an acknowledgement.
	ackVerdict string
)

const (
	writerLeader ackWriter = 1 << iota // the agent in the Pod of the only member whose Lease says Leader
	writerItself                       // the agent in the Pod of the member that leaves
	writerOther                        // any other agent, or one whose Pod was replaced since
)

func (w ackWriter) String() string {
	return rules.Word(w, "the leader's agent", "the member's own agent", "another agent")
}

const (
	ackLeaderOther   ackLeader = 1 << iota // one member, and not the one that leaves
	ackLeaderItself                        // the member that leaves
	ackLeaderNone                          // no listed member: the raft group has no leader, or one outside this cluster
	ackLeaderSeveral                       // two members or more
	ackLeaderUnknown                       // druid has not seen the agent of a member renew that says Leader, or its Pod is not known
)

func (l ackLeader) String() string {
	return rules.Word(l, "another member", "the member itself", "no member", "several members", "unknown")
}

const (
	ackBelieve ackVerdict = "Believe"
	ackWait    ackVerdict = "Wait"
	ackRepeat  ackVerdict = "Repeat"
)

// ackFacts is the complete input of acknowledgements.
type ackFacts struct {
	writer ackWriter `fact:"written by"`
	leader ackLeader `fact:"says Leader"`
	// still: who says Leader, by the UID of its Pod, stayed the same for two renewal intervals, by the clock of this druid.
	still rules.YesNo `fact:"for two renewals"`
	// leaves: the record says that all members leave the raft group that they joined.
	leaves rules.YesNo `fact:"all leave"`
	// agent of the Pod of the member that leaves.
	agent AgentMake
}

// acknowledgements decide whether druid believes that a member is out of the raft group. The agent of each member can write
// that on the Lease of each other member, in its own name. druid then deletes a volume. So it believes only the agent of the
// member that leads. An agent can also report for its own member that it leads. So druid believes that only if no other member
// reports the same, and only after the time in which a new leader's agent reports.
//
// An acknowledgement of another agent can be true, because leadership can move after it. So druid requests the removal again.
// The agent that leads now finds that the member is not listed, and acknowledges that. If all members leave a joined raft group
// that an external member leads, each agent removes its own member, and acknowledges that itself.
var acknowledgements = rules.New(ackWait, []rules.Row[ackFacts, ackVerdict]{
	{Name: "leads-itself", When: ackFacts{leader: ackLeaderItself, still: rules.Yes}, Verdict: ackRepeat,
		Why: "a member that leads was not removed; its agent moves leadership first"},
	{Name: "leader-not-certain", When: ackFacts{leader: ackLeaderSeveral | ackLeaderItself | ackLeaderUnknown}, Verdict: ackWait,
		Why: "one of the reports is old or forged; the Lease of an agent that does not renew it expires"},
	{Name: "leader-changed", When: ackFacts{still: rules.No}, Verdict: ackWait,
		Why: "while leadership moves, the report of the new leader can still be missing"},
	{Name: "by-the-leader", When: ackFacts{leader: ackLeaderOther, writer: writerLeader}, Verdict: ackBelieve,
		Why: "only this member says that it leads"},
	{Name: "by-itself", When: ackFacts{leader: ackLeaderNone, leaves: rules.Yes, writer: writerItself}, Verdict: ackBelieve,
		Why: "an external member leads, so the member's own agent removed it"},
	{Name: "by-an-older-agent", When: ackFacts{leader: ackLeaderOther, leaves: rules.Yes, writer: writerItself, agent: AgentOutdated}, Verdict: ackBelieve,
		Why: "an older agent acknowledges its own removal also while another member of the cluster leads, and would do so again"},
	{Name: "its-agent-again", When: ackFacts{leader: ackLeaderNone, leaves: rules.Yes}, Verdict: ackRepeat,
		Why: "no member of the cluster leads any more; the member's own agent finds out whether the member is listed"},
	{Name: "without-leader", When: ackFacts{leader: ackLeaderNone}, Verdict: ackWait,
		Why: "no agent can confirm it before a member leads"},
	{Name: "leader-again", When: ackFacts{leader: ackLeaderOther}, Verdict: ackRepeat,
		Why: "the agent that leads now finds out whether the member is listed"},
})

// LeaderClaim is who says that it leads, for comparison with an earlier look. It says false if that is not certain, or if the record
// names no raft group.
func (o Observed) LeaderClaim() (claim string, certain bool) {
	leader, podUID := o.leaderClaim("")
	certain = o.formed() == rules.Yes && leader&(ackLeaderOther|ackLeaderNone) != 0
	return leader.String() + " " + podUID, certain
}

// leaderClaim returns what the Leases of the listed members report about who leads, and the UID of its Pod if one member does.
// member is the one that leaves. A Lease that is not renewed reports nothing, because its member might lead no more. Nor does a
// member of an earlier raft group: it was away when the cluster was formed again.
func (o Observed) leaderClaim(member string) (leader ackLeader, podUID string) {
	leader = ackLeaderNone
	for _, m := range o.Members {
		switch {
		case !m.Listed || !m.mayLead() || !m.ofGroup(o):
		case leader != ackLeaderNone:
			return ackLeaderSeveral, ""
		case m.Liveness == leases.Unknown || m.Reports.PodUID == "":
			leader = ackLeaderUnknown
		case m.Name == member:
			leader = ackLeaderItself
		default:
			leader, podUID = ackLeaderOther, m.Reports.PodUID
		}
	}
	return leader, podUID
}

// ackFactsOf are the facts about the acknowledgement on the Lease of m.
func ackFactsOf(m Member, o Observed) ackFacts {
	leader, podUID := o.leaderClaim(m.Name)
	f := ackFacts{
		writer: writerOther, leader: leader, still: rules.YesNoOf(o.LeaderStill), leaves: rules.YesNoOf(o.Record.Leaving), agent: m.Agent,
	}
	if f.agent == 0 {
		f.agent = AgentUnknown
	}
	switch m.Reports.Removal.By {
	case "":
	case m.Reports.PodUID:
		f.writer = writerItself
	case podUID:
		f.writer = writerLeader
	}
	return f
}

// answered says whether the member's own agent acknowledged its removal, all members leave, and druid does not request the removal
// again. The agent of another member cannot keep druid from creating the Pod of this one.
func (m Member) answered(o Observed) bool {
	if !o.Record.Leaving || !m.Listed || !m.acknowledged(o) || !o.Record.PendingRemoval.Orders(m.Name, m.Reports.Removal) {
		return false
	}
	f := ackFactsOf(m, o)
	return f.writer == writerItself && acknowledgements.Decide(f).Verdict != ackRepeat
}

// markAcknowledged is the meaning of an acknowledgement under the slot of the record.
func (m Member) markAcknowledged(o Observed) marked {
	if !m.acknowledged(o) {
		return markNone
	}
	return map[ackVerdict]marked{ackBelieve: markDone, ackWait: markRemoving, ackRepeat: markElsewhere}[acknowledgements.Decide(ackFactsOf(m, o)).Verdict]
}

// isOut says whether druid believes that the raft group removed the member. It struck the name from the record because it
// believed that, so the name of a leftover needs no second decision: the leader can be another one by then. A user can have removed
// the name too, so the list that the leader's agent publishes must not have the member.
func (m Member) isOut(o Observed) bool {
	if m.Listed {
		return m.acknowledged(o) && markOf(m, o) == markDone
	}
	return removalAckOf(m, o) == removalAckDone
}

// acknowledged says whether the raft group in the record has reported that the member was removed.
func (m Member) acknowledged(o Observed) bool {
	return m.Lease == LeaseOurs && m.Readable && m.Reports.Removal.State == leases.RemovalDone &&
		o.RecordState == RecordFormed && o.Record.ClusterID != 0 &&
		m.Reports.Removal.ClusterID == leases.FormatID(o.Record.ClusterID)
}

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
		return fmt.Sprintf(". Several members report that they lead: %s. druid waits until only one does. If that does not change, "+
			"read the logs of their agents with kubectl logs <member> -c agent", strings.Join(p.claimants(), ", "))
	default:
		return ""
	}
}

// silentLeader names the member that led last, if its etcd serves and its agent does not work. That member can lead still, and no agent
// of another member moves its leadership.
func (p messageContext) silentLeader() string {
	for _, m := range p.listed {
		if m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Stale && m.Reports.Role == leases.RoleLeader && m.ofGroup(p.Observed) && m.up() {
			return fmt.Sprintf(". The agent of member %[1]s, which led last, is not renewing its Lease, and only the leader's agent can finish "+
				"the removal. Read its log with kubectl logs %[1]s -c agent. If it does not return, and the other members are a quorum, delete Pod "+
				"%[1]s, so that another member leads", m.Name)
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
