package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// messageContext is the complete input of a condition and its message.
type messageContext struct {
	Evaluation
	status v1alpha1.EtcdClusterStatus
	// found are the problems of the Evaluation, and those that came up while the steps were taken.
	found []Problem
}

// sentences are the messages of the conditions, by reason. If Degraded is True, its message names the problems
// instead. A message does not change while the cluster is steady, because each change is a write.
var sentences = map[string]func(messageContext) string{
	v1alpha1.ReasonForming: func(p messageContext) string {
		if p.Record.Seed == "" {
			return "the first member bootstraps the cluster, and the other members join it"
		}
		return fmt.Sprintf("member %s bootstraps the cluster, and the other members join it", p.Record.Seed)
	},
	v1alpha1.ReasonWaitingForSeed: func(p messageContext) string {
		if p.Record.Seed == "" {
			return "the first member will bootstrap the cluster, and the other members will join it"
		}
		return fmt.Sprintf("member %s will bootstrap the cluster and has not started yet", p.Record.Seed)
	},
	v1alpha1.ReasonHandsOff: func(p messageContext) string {
		words := fmt.Sprintf("druid takes no action until you remove annotation %s: %s", v1alpha1.HandsOffAnnotation, p.HandsOff)
		if p.Pending != 0 {
			words += fmt.Sprintf(". Until then, %s is not accepted", generation(p.Pending))
		}
		return words
	},
	v1alpha1.ReasonQuorate: func(p messageContext) string { return p.voters() },
	v1alpha1.ReasonClientsCutOff: func(p messageContext) string {
		if !p.CutOff {
			return p.voters() + ". The client Service has no member, because you approved a restore in place"
		}
		return p.voters() + ". The client Service has no member, because spec.clientService.serving is false"
	},
	v1alpha1.ReasonQuorumLost: func(p messageContext) string { return p.voters() + ". etcd refuses writes and linearizable reads" },
	v1alpha1.ReasonUnknown: func(p messageContext) string {
		return p.voters() + ". The state of the other voters is unknown, so druid cannot determine whether a quorum serves"
	},

	v1alpha1.ReasonAllReady:        func(p messageContext) string { return p.ready() },
	v1alpha1.ReasonMembersNotReady: func(p messageContext) string { return p.ready() + p.first(v1alpha1.MemberNotReady) },
	v1alpha1.ReasonMembersUnknown:  func(p messageContext) string { return p.ready() + p.first(v1alpha1.MemberUnknown) },

	v1alpha1.ReasonReconciled: func(p messageContext) string {
		words := fmt.Sprintf("%s as requested", count(len(p.Record.Members)))
		if bug := KnownBug(p.Version); bug != "" && len(p.Record.Members) > 0 {
			words += ". " + bug
		}
		return words
	},
	v1alpha1.ReasonScalingUp: func(p messageContext) string {
		return fmt.Sprintf("%d of %s joined", p.joined(), count(p.wanted()))
	},
	v1alpha1.ReasonExternalMembersPresent: func(p messageContext) string {
		return "all members joined. " + othersLeft(p) + ". Set spec.bootstrap.join.removeExternalMembers when no client connects to them any more"
	},
	v1alpha1.ReasonRemovingExternalMembers: func(p messageContext) string {
		return othersLeft(p) + ". The leader's agent removes them one at a time"
	},
	v1alpha1.ReasonLeavingJoinedCluster: leavingMessage,
	v1alpha1.ReasonRepairingMember: func(p messageContext) string {
		for _, m := range p.listed {
			if progressFrom(m) == progressRepairing {
				return fmt.Sprintf("member %s is being restarted or replaced", m.Name)
			}
		}
		return "restarting or replacing members"
	},
	v1alpha1.ReasonRollingUpdate:        rollingMessage,
	v1alpha1.ReasonRollingUpdateBlocked: rollingMessage,
	v1alpha1.ReasonUpgrading:            upgradingMessage,
	v1alpha1.ReasonUpgradeBlocked:       upgradingMessage,
	v1alpha1.ReasonUpdatingAgents:       agentMessage,
	v1alpha1.ReasonAgentUpdateBlocked:   agentMessage,
	v1alpha1.ReasonScalingDown: func(p messageContext) string {
		return fmt.Sprintf("%s, %d requested: %s", count(len(p.Record.Members)), p.Replicas, p.departure()) + p.orderWithoutMembers()
	},
	v1alpha1.ReasonScaleDownBlocked: func(p messageContext) string {
		leaves := p.scaleDown
		return fmt.Sprintf("%s, %d requested: %s cannot be removed, because %s", count(len(p.Record.Members)), p.Replicas, leaves.name(), leaves.hindrance)
	},
	v1alpha1.ReasonReplacingMember: replacingMessage,
	v1alpha1.ReasonReplaceBlocked:  replaceBlockedMessage,
	v1alpha1.ReasonPausing:         pauseMessage,
	v1alpha1.ReasonPauseBlocked:    pauseMessage,
	v1alpha1.ReasonPaused:          pauseMessage,
	v1alpha1.ReasonResuming:        resumeWords,
	v1alpha1.ReasonRecovering:      recoveryMessage,
	v1alpha1.ReasonRecoveryProposed: func(messageContext) string {
		return "the repair of the lost quorum waits for you. Bring members back, or approve the plan in status.recovery"
	},
	v1alpha1.ReasonRecoveryRefused: func(messageContext) string {
		return "the repair of the lost quorum waits for you. Condition Degraded says what to do"
	},
	v1alpha1.ReasonClusterRecordInvalid: func(messageContext) string {
		return "the cluster record is unusable, so druid does nothing. Condition Degraded shows the cause"
	},

	v1alpha1.ReasonAsExpected: func(messageContext) string { return "no problem is known" },
}

// sentence returns the message of a condition.
func sentence(kind, reason string, p messageContext) string {
	words, ok := sentences[reason]
	if !ok {
		return kind + " is " + reason
	}
	return words(p)
}

func count(members int) string {
	if members == 1 {
		return "1 member"
	}
	return fmt.Sprintf("%d members", members)
}

// departure reports the member that is being removed.
func (p messageContext) departure() string {
	leaves := p.scaleDown
	words := map[v1alpha1.MemberLeaving]string{
		v1alpha1.DrainingClients: "draining its clients",
		v1alpha1.LeaveRequested:  "removal requested from the leader's agent",
		v1alpha1.LeaveRemoving:   "the leader's agent removes it",
		v1alpha1.LeaveRemoved:    "it left the raft group",
	}[leaves.station(leaves.member)]
	switch {
	case words == "":
		return "removing " + leaves.name()
	case leaves.facts.mark == markUnknown:
		return "removing " + leaves.name() + ", and the removal request on its Lease cannot be parsed"
	default:
		return "removing " + leaves.name() + ", " + words + p.unconfirmed()
	}
}

// orderWithoutMembers says that the user named members to leave first, and none of them is left. It can be a mistake.
func (p messageContext) orderWithoutMembers() string {
	if len(p.LeaveFirst) == 0 || slices.ContainsFunc(p.listed, func(m Member) bool { return slices.Contains(p.LeaveFirst, m.Name) }) {
		return ""
	}
	return ". None of the members that annotation " + v1alpha1.LeaveFirstAnnotation + " names is in the cluster"
}

// name returns the name of the member that is being removed.
func (r scaleDown) name() string {
	if r.member.Name == "" {
		return "a member"
	}
	return "member " + r.member.Name
}

// wanted returns how many members are desired. It is more than replicas until the other members are removed.
func (p messageContext) wanted() int { return max(p.Replicas, len(p.status.Members)) }

func (p messageContext) ready() string {
	return fmt.Sprintf("%d of %s ready", p.status.ReadyReplicas, count(p.wanted()))
}

func (p messageContext) voters() string {
	voters, up := 0, 0
	for _, m := range p.listed {
		if m.votes() || m.mute() && m.publishedVoter(p.Observed) {
			voters++
			if m.up() {
				up++
			}
		}
	}
	switch {
	case p.sizeUnknown():
		return fmt.Sprintf("%d of the known voters serve. The number of voters is unknown, because no member list is published and not all agents "+
			"have written their Leases", up)
	case voters == 0:
		return "no voter is known"
	}
	return fmt.Sprintf("%d of %d voters serve; a quorum is %d", up, voters, quorum(voters))
}

// mute reports whether the member's Lease says nothing about the raft group: it is missing, unreadable, or has just
// been created.
func (m Member) mute() bool {
	return m.Lease != LeaseOurs || !m.Readable || !m.Reports.EverFormed()
}

// sizeUnknown reports whether the number of voters is unknown: the record was created again, no leader has published
// the members since, and the Lease of a member says nothing. A record that was not lost names the member that formed
// the group.
func (o Observed) sizeUnknown() bool {
	return o.RecordState == RecordFormed && o.Record.MemberList == nil && o.Record.Executor == "" && slices.ContainsFunc(o.listed(), Member.mute)
}

// joined returns how many members are in the cluster.
func (p messageContext) joined() int {
	n := 0
	for _, m := range p.listed {
		if progressFrom(m) != progressJoining {
			n++
		}
	}
	return n
}

// first names the first member in the state and the reason why it waits.
func (p messageContext) first(state v1alpha1.MemberState) string {
	for _, m := range p.status.Members {
		if m.Status == state {
			return fmt.Sprintf(". Member %s: %s", m.Name, m.Message)
		}
	}
	return ""
}

// keepsDown reports whether the problem keeps the member from serving. etcd also runs on a volume that is too small.
func (p Problem) keepsDown(m Member) bool {
	return p.Member == m.Name && p.Reason != v1alpha1.ReasonVolumeNotExpanded
}

// memberMessage returns the reason that the agent reports, else the first problem that druid finds.
func memberMessage(m Member, s v1alpha1.MemberStatus, found []Problem) string {
	switch s.Status {
	case v1alpha1.MemberReady:
		return ""
	case v1alpha1.MemberPaused:
		return "the cluster is paused. PersistentVolumeClaim " + m.Name + " holds its data"
	default:
	}
	if m.Readable && m.Reports.Reason != "" {
		return m.Reports.Reason
	}
	for _, p := range found {
		if p.keepsDown(m) {
			return p.Message
		}
	}
	return stateMessage(m, s)
}

// stateMessage returns what a member waits for, according to its objects.
func stateMessage(m Member, s v1alpha1.MemberStatus) string {
	switch {
	case s.Reason == v1alpha1.ReasonLeaseExpired && m.Liveness != leases.Stale:
		return "its agent has not renewed its Lease yet"
	case m.Pod == PodAbsent:
		return "it has no Pod"
	case m.Pod == PodTerminating:
		return "its Pod is terminating"
	case m.NodeLost:
		return "its node is unreachable"
	case m.Readable && m.Reports.Role == leases.RoleLearner:
		return "it is a learner: it neither votes nor serves clients until it has caught up"
	case m.down():
		return "its etcd is not ready"
	default:
		return "its agent is not renewing its Lease"
	}
}

// AsSentences formats a message by the API conventions of Kubernetes: it begins with a capital letter and ends with a
// full stop. Names of objects, druid and etcd keep their case. A command at the end gets no full stop, so that it can
// be copied.
func AsSentences(message string) string {
	if message == "" {
		return ""
	}
	first, _, _ := strings.Cut(message, " ")
	word := strings.TrimRight(first, ",:;.")
	isWord := strings.IndexFunc(word, func(r rune) bool { return (r < 'a' || r > 'z') && r != '\'' }) < 0
	if isWord && word != "druid" && word != "etcd" {
		message = strings.ToUpper(message[:1]) + message[1:]
	}
	_, command, _ := strings.Cut(message[strings.LastIndex(message, ". ")+1:], ": ")
	if strings.HasSuffix(message, ".") || strings.HasPrefix(command, "kubectl ") {
		return message
	}
	return message + "."
}

// maxNote is the maximum length of an Event's note in bytes. The API server accepts 1024; the rest is room for an
// ellipsis.
const maxNote = 1000

// Note returns the note of an Event as sentences, and not longer than the API server accepts.
func Note(note string) string {
	note = AsSentences(note)
	if len(note) > maxNote {
		return strings.ToValidUTF8(note[:maxNote], "") + "…"
	}
	return note
}
