package policy

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// health is the state of a member's etcd, as its kubelet reports it.
type health uint8

const (
	healthUp      health = 1 << iota
	healthDown           // no Pod, its etcd container is not ready, or the Pod terminates
	healthUnclear        // the node is not reachable
)

func (h health) String() string {
	return rules.Word(h, "up", "down", "unclear")
}

// memberVerdict is the status and the reason of a member.
type memberVerdict struct {
	state  v1alpha1.MemberState `fact:"status"`
	reason string               `fact:"reason"`
}

// memberRows decide the status of a member. A druid that has just started does not know the liveness of a Lease yet,
// so it keeps Ready for a member that was ready.
var memberRows = rules.New(memberVerdict{v1alpha1.MemberUnknown, v1alpha1.ReasonLeaseExpired}, []rules.Row[statusFacts, memberVerdict]{
	{Name: "paused", When: statusFacts{paused: rules.Yes}, Verdict: memberVerdict{v1alpha1.MemberPaused, v1alpha1.ReasonPaused}},
	{Name: "etcd-not-ready", When: statusFacts{paused: rules.No, health: healthDown}, Verdict: memberVerdict{v1alpha1.MemberNotReady, v1alpha1.ReasonPodNotReady}},
	{Name: "learner", When: statusFacts{paused: rules.No, learner: rules.Yes}, Verdict: memberVerdict{v1alpha1.MemberNotReady, v1alpha1.ReasonPodNotReady}},
	{Name: "renewed", When: statusFacts{paused: rules.No, learner: rules.No, liveness: leases.Live},
		Verdict: memberVerdict{v1alpha1.MemberReady, v1alpha1.ReasonLeaseSucceeded}},
	{Name: "silent-for-long", When: statusFacts{paused: rules.No, learner: rules.No, liveness: leases.Stale, expired: rules.Yes},
		Verdict: memberVerdict{v1alpha1.MemberNotReady, v1alpha1.ReasonUnknownGracePeriodExceeded}},
	{Name: "silent", When: statusFacts{paused: rules.No, learner: rules.No, liveness: leases.Stale, expired: rules.No},
		Verdict: memberVerdict{v1alpha1.MemberUnknown, v1alpha1.ReasonLeaseExpired}},
	{Name: "still-ready", When: statusFacts{paused: rules.No, health: healthUp, learner: rules.No, liveness: leases.Unknown, before: rules.Yes},
		Verdict: memberVerdict{v1alpha1.MemberReady, v1alpha1.ReasonLeaseSucceeded}},
	{Name: "not-seen-yet", When: statusFacts{paused: rules.No, learner: rules.No, liveness: leases.Unknown | leases.Never},
		Verdict: memberVerdict{v1alpha1.MemberUnknown, v1alpha1.ReasonLeaseExpired}},
})

// statusFacts is the complete input of memberRows.
type statusFacts struct {
	paused   rules.YesNo // the cluster is paused, and its Pod is not there or ends
	health   health      `fact:"etcd"`
	learner  rules.YesNo
	liveness leases.Liveness `fact:"Lease is"`
	expired  rules.YesNo     `fact:"grace over"`   // stale for longer than the grace period
	before   rules.YesNo     `fact:"ready before"` // the status said Ready before
}

// Status returns the status that follows from before, the previous status, and from what is observed. refused are the
// problems that occurred while druid took the steps. generation is that of the spec from which d was made, and now the
// time of every transition.
//
// It returns before unchanged, byte for byte, if nothing is new. Then druid writes nothing.
func Status(e Evaluation, before v1alpha1.EtcdClusterStatus, refused []Problem, generation int64, now metav1.Time) v1alpha1.EtcdClusterStatus {
	s := *before.DeepCopy()
	s.ObservedGeneration = generation
	formed := e.RecordState == RecordFormed && !recordAhead(e.Desired, e.Observed)
	if formed && e.Record.ClusterID != 0 && (s.ClusterID == "" || int64(e.Record.FormedEpoch) > s.Epoch && s.Epoch > 0) {
		s.ClusterID = leases.FormatID(e.Record.ClusterID)
	}
	if formed && s.ClusterID == leases.FormatID(e.Record.ClusterID) {
		s.Epoch = max(s.Epoch, int64(e.Record.FormedEpoch))
	}
	s.Recovery = recoveryStatus(e, before.Recovery, now)
	s.ProgressDeadline = deadlineAfter(e, s.ClusterID != before.ClusterID, before.ProgressDeadline, now)
	found := slices.Concat(e.problems, refused)
	if e.RecordState&usableRecord != 0 {
		s.ClusterSize = int32(len(e.Record.Members))
		s.Members = memberStatuses(e, before.Members, found, now)
	}
	s.ReadyReplicas = 0
	for _, m := range s.Members {
		if m.Status == v1alpha1.MemberReady {
			s.ReadyReplicas++
		}
	}
	s.ReadyMembers = fmt.Sprintf("%d/%d", s.ReadyReplicas, e.Replicas)
	s.TLS, s.Auth = tlsStatus(e, before.TLS, now), authStatus(e, before.Auth)
	p := messageContext{e, s, found}
	s.Backup = backupStatus(p, before.Backup)
	for _, c := range conditions {
		condition, applies := c.of(p)
		if !applies {
			meta.RemoveStatusCondition(&s.Conditions, c.kind)
			continue
		}
		condition.Type, condition.ObservedGeneration, condition.LastTransitionTime = c.kind, generation, now
		setCondition(&s.Conditions, condition)
	}
	setToolConditions(&s.Conditions, generation, now)
	for i := range s.Members {
		s.Members[i].Message = AsSentences(s.Members[i].Message)
	}
	return s
}

func memberStatuses(e Evaluation, before []v1alpha1.MemberStatus, found []Problem, now metav1.Time) []v1alpha1.MemberStatus {
	var all []v1alpha1.MemberStatus
	for _, m := range e.listed {
		s := v1alpha1.MemberStatus{Name: m.Name, LastTransitionTime: now}
		was := v1alpha1.MemberStatus{}
		if i := slices.IndexFunc(before, func(b v1alpha1.MemberStatus) bool { return b.Name == m.Name }); i >= 0 {
			was = before[i]
			// Values that cannot be read now, or that were lost with the Lease, stay as they were.
			s.ID, s.Version = was.ID, was.Version
		}
		if m.Readable && m.Reports.ID != 0 {
			s.ID = leases.FormatID(m.Reports.ID)
		}
		s.Role = roleOf(m, was.Role, e.listed)
		if m.Readable && m.Reports.Version != "" {
			s.Version = m.Reports.Version
		}
		v := memberRows.Decide(statusFacts{
			paused:   rules.YesNoOf(e.pause.holds(m, pauseRest|pauseEnds)),
			health:   healthOf(m),
			learner:  rules.YesNoOf(m.Readable && m.Reports.Role == leases.RoleLearner),
			liveness: m.Liveness,
			expired:  rules.YesNoOf(m.Expired),
			before:   rules.YesNoOf(was.Status == v1alpha1.MemberReady),
		}).Verdict
		s.Status, s.Reason = v.state, v.reason
		if s.Status == v1alpha1.MemberPaused {
			s.Role = ""
		}
		s.Leaving = e.scaleDown.station(m)
		s.Disk = diskSpeed(m, was.Disk)
		s.Message = memberMessage(m, s, found)
		if was.Status == s.Status {
			s.LastTransitionTime = was.LastTransitionTime
		}
		all = append(all, s)
	}
	return all
}

func healthOf(m Member) health {
	switch {
	case m.up():
		return healthUp
	case m.down(), m.Pod == PodTerminating && !m.NodeLost:
		return healthDown
	default:
		return healthUnclear
	}
}

// roleOf returns the member's role, or "" while it is unknown. A Lease reports the role only while it is renewed. A
// druid that has just started keeps the previous role.
//
// Of two members that call themselves leader, the one with the older term has not received the newer term yet. A
// previous leader is not reported next to a member that renews its Lease as leader.
func roleOf(m Member, before string, listed []Member) string {
	role, term := before, uint64(0)
	switch {
	case m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live:
		role, term = string(m.Reports.Role), m.Reports.Raft.Term
	case m.Liveness != leases.Unknown:
		return ""
	}
	if role != string(leases.RoleLeader) {
		return role
	}
	for _, other := range listed {
		if other.Name != m.Name && other.leads() && other.Reports.Raft.Term > term {
			return ""
		}
	}
	return role
}

// leads reports whether the member's Lease is renewed and calls it the leader.
func (m Member) leads() bool {
	return m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Reports.Role == leases.RoleLeader
}

// recordAhead says whether the record names a raft group that was never formed: another one, or a later epoch, than the status, while a
// quorum of the listed members reports that of the status. The agents would stop etcd for such a record. The agent that carries out a
// recovery writes the result together with the raft group, so a raft group of a recovery is never taken back. The Lease of one member,
// whose agent may be compromised, is no quorum.
func recordAhead(d Desired, o Observed) bool {
	return differsFromStatus(d, o) && !reportedByAMember(d, o) && statusServes(d, o)
}

// differsFromStatus says whether a record that no recovery wrote names another raft group, or a later epoch, than the status.
func differsFromStatus(d Desired, o Observed) bool {
	r := o.Record
	if o.RecordState != RecordFormed || r.ClusterID == 0 || d.ClusterID == 0 || d.Epoch == 0 {
		return false
	}
	recovered := r.Recovered != nil && r.Recovered.Epoch == r.FormedEpoch
	return !recovered && (r.ClusterID != d.ClusterID || max(r.Epoch, r.FormedEpoch) > d.Epoch)
}

// statusLater says whether the status names a later raft group than the record. Only druid writes the status, and only after the record. So the
// record went back, also if its earlier raft group has a quorum again.
func statusLater(d Desired, r leases.Record) bool {
	return d.ClusterID != 0 && d.ClusterID != r.ClusterID && d.Epoch > r.FormedEpoch
}

// reportedByAMember says whether a Lease reports the raft group of the record, where it is not that of the status, or a later one.
func reportedByAMember(d Desired, o Observed) bool {
	for _, m := range o.Members {
		says := m.Reports
		if m.Lease == LeaseOurs && m.Readable && (says.Epoch > d.Epoch || o.Record.ClusterID != d.ClusterID && says.ClusterID == o.Record.ClusterID) {
			return true
		}
	}
	return false
}

// statusServes says whether a quorum of the listed members reports the raft group and the epoch of the status.
func statusServes(d Desired, o Observed) bool {
	listed, serving := o.listed(), 0
	for _, m := range listed {
		if m.reportsVoter() && m.Liveness&(leases.Live|leases.Unknown) != 0 && m.Reports.ClusterID == d.ClusterID && m.Reports.Epoch == d.Epoch {
			serving++
		}
	}
	return serving >= quorum(len(listed)+len(o.Record.Externals))
}
