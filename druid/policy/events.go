package policy

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// Event is one Event of an EtcdCluster.
type Event struct {
	Warning bool
	Reason  string
	// Member whose Pod it is about, or empty.
	Member string
	Note   string
}

// Events are the differences between two statuses. None is reported twice, because a written status is the next
// before. A steady cluster has no Events.
func Events(before, after v1alpha1.EtcdClusterStatus) []Event {
	var events []Event
	inform := func(warning bool, reason, member, note string, args ...any) {
		events = append(events, Event{warning, reason, member, AsSentences(fmt.Sprintf(note, args...))})
	}
	if before.ClusterID == "" && after.ClusterID != "" {
		inform(false, v1alpha1.EventClusterFormed, "", "The cluster formed with ID %s", after.ClusterID)
	}
	recoveryEvents(before, after, inform)
	memberEvents(before, after, inform)
	leavingEvents(before, after, inform)
	bugEvents(before, after, inform)
	authorityEvents(before, after, inform)
	conditionEvents(before, after, inform)
	deadlineEvents(before, after, inform)
	return events
}

// recoveryEvents report that a raft group was formed again, and that a restore needs an approval.
func recoveryEvents(before, after v1alpha1.EtcdClusterStatus, inform announcer) {
	if after.Recovery == nil {
		return
	}
	was := v1alpha1.RecoveryStatus{}
	if before.Recovery != nil {
		was = *before.Recovery
	}
	if p := after.Recovery.Plan; p != nil && p.Source == v1alpha1.RecoveryFromRestore && after.Recovery.Phase == v1alpha1.RecoveryProposed &&
		(was.Phase != v1alpha1.RecoveryProposed || was.Plan == nil || was.Plan.Hash != p.Hash) {
		inform(false, v1alpha1.EventRestoreProposed, "", "The plan to restore %s from backup %s needs your approval: see status.recovery", p.Target, p.Backup)
	}
	last := after.Recovery.Last
	if last == nil || was.Last != nil && was.Last.Epoch == last.Epoch {
		return
	}
	if last.Source == v1alpha1.RecoveryFromRestore {
		inform(false, v1alpha1.EventRestored, "", "Member %s restored the cluster in place with epoch %d, from lineage %s", last.Member, last.Epoch, last.Parent)
		return
	}
	inform(false, v1alpha1.EventQuorumRecovered, "", "Member %s formed the cluster again with epoch %d, from source %s", last.Member, last.Epoch, last.Source)
}

// announcer adds an Event.
type announcer func(warning bool, reason, member, note string, args ...any)

func memberEvents(before, after v1alpha1.EtcdClusterStatus, inform announcer) {
	for _, m := range after.Members {
		was := v1alpha1.MemberStatus{}
		if i := slices.IndexFunc(before.Members, func(b v1alpha1.MemberStatus) bool { return b.Name == m.Name }); i >= 0 {
			was = before.Members[i]
		}
		if was.ID != "" && was.ID != m.ID {
			inform(false, v1alpha1.EventMemberReplaced, m.Name, "Member %s joined again with ID %s, replacing %s", m.Name, m.ID, was.ID)
		}
		switch {
		case was.Status != v1alpha1.MemberReady && m.Status == v1alpha1.MemberReady:
			inform(false, v1alpha1.EventMemberReady, m.Name, "Member %s with ID %s is a ready voter", m.Name, m.ID)
		case was.Status == v1alpha1.MemberReady && m.Status != v1alpha1.MemberReady && m.Status != v1alpha1.MemberPaused:
			inform(true, v1alpha1.EventMemberNotReady, m.Name, "Member %s is %s (%s): %s", m.Name, m.Status, m.Reason, m.Message)
		}
	}
}

// bugEvents warn once about each release with a known bug that a member starts to run.
func bugEvents(before, after v1alpha1.EtcdClusterStatus, inform announcer) {
	reported := map[string]bool{}
	for _, m := range before.Members {
		reported[m.Version] = true
	}
	for _, m := range after.Members {
		if bug := KnownBug(m.Version); bug != "" && !reported[m.Version] {
			inform(true, v1alpha1.EventKnownEtcdBug, "", "%s", bug)
		}
		reported[m.Version] = true
	}
}

// leavingEvents report members that are being removed. The step that removes the name from the record reports that the
// member is gone, because a record can lose a name in other ways.
func leavingEvents(before, after v1alpha1.EtcdClusterStatus, inform announcer) {
	for _, m := range after.Members {
		was := v1alpha1.MemberStatus{}
		if i := slices.IndexFunc(before.Members, func(b v1alpha1.MemberStatus) bool { return b.Name == m.Name }); i >= 0 {
			was = before.Members[i]
		}
		switch {
		case was.Leaving == "" && m.Leaving != "":
			inform(false, v1alpha1.EventScalingDown, m.Name, "Member %s is to be removed", m.Name)
		case was.Leaving != "" && m.Leaving == "":
			inform(false, v1alpha1.EventScaleDownCancelled, m.Name, "Member %s stays, because it is desired again or cannot be removed now", m.Name)
		}
	}
	was, is := condition(before, v1alpha1.ConditionProgressing), condition(after, v1alpha1.ConditionProgressing)
	blocked := slices.Contains([]string{
		v1alpha1.ReasonScaleDownBlocked, v1alpha1.ReasonRollingUpdateBlocked, v1alpha1.ReasonAgentUpdateBlocked, v1alpha1.ReasonPauseBlocked,
		v1alpha1.ReasonUpgradeBlocked, v1alpha1.ReasonReplaceBlocked,
	}, is.Reason)
	if blocked && was.Message != is.Message {
		inform(true, is.Reason, "", "%s", is.Message)
	}
	toReport := []string{
		v1alpha1.ReasonRollingUpdate, v1alpha1.ReasonUpgrading, v1alpha1.ReasonUpdatingAgents, v1alpha1.ReasonPausing, v1alpha1.ReasonPaused, v1alpha1.ReasonResuming,
		v1alpha1.ReasonExternalMembersPresent, v1alpha1.ReasonRemovingExternalMembers, v1alpha1.ReasonLeavingJoinedCluster,
		v1alpha1.ReasonRecovering, v1alpha1.ReasonReplacingMember, v1alpha1.ReasonHandsOff,
	}
	if slices.Contains(toReport, is.Reason) && was.Reason != is.Reason {
		inform(false, is.Reason, "", "%s", is.Message)
	}
}

// authorityEvents report the steps of a replacement of a certificate authority.
func authorityEvents(before, after v1alpha1.EtcdClusterStatus, inform announcer) {
	if before.TLS == nil || after.TLS == nil {
		return
	}
	for _, plane := range []struct {
		name    string
		was, is *v1alpha1.TLSPlaneStatus
	}{{"client", before.TLS.Client, after.TLS.Client}, {planePeer, before.TLS.Peer, after.TLS.Peer}} {
		was, is := plane.was, plane.is
		if was == nil || is == nil || was.Authority == "" {
			continue
		}
		switch {
		case was.Phase == v1alpha1.TLSStable && is.Phase == v1alpha1.TLSTrustingBoth:
			inform(false, v1alpha1.EventAuthorityReplacing, "", "The %s certificate authority %s is replaced", plane.name, was.Authority)
		case was.Authority != is.Authority && len(is.Trusted) == 1:
			inform(false, v1alpha1.EventAuthorityReplaced, "",
				"The %s certificate authority %s was lost before an etcd was started, and authority %s takes its place", plane.name, was.Authority, is.Authority)
		case was.Authority != is.Authority:
			inform(false, v1alpha1.EventAuthoritySwitched, "", "The %s certificates are of authority %s from now on, and authority %s is trusted too",
				plane.name, is.Authority, was.Authority)
		case was.Phase == v1alpha1.TLSTrustingNew && is.Phase == v1alpha1.TLSStable:
			inform(false, v1alpha1.EventAuthorityReplaced, "", "Only %s certificate authority %s is trusted", plane.name, is.Authority)
		}
	}
}

func conditionEvents(before, after v1alpha1.EtcdClusterStatus, inform announcer) {
	for _, c := range conditions {
		if c.events != nil {
			c.events(condition(before, c.kind), condition(after, c.kind), inform)
		}
	}
}

// turnEvents report that a condition changed to False, or to True after a problem.
func turnEvents(was, is metav1.Condition, inform announcer) {
	switch {
	case is.Status == metav1.ConditionFalse && was.Reason != is.Reason:
		inform(true, is.Reason, "", "%s", is.Message)
	case is.Status == metav1.ConditionTrue && was.Status != metav1.ConditionTrue:
		inform(false, is.Reason, "", "%s", is.Message)
	}
}

func condition(s v1alpha1.EtcdClusterStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}
