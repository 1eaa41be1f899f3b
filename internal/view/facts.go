package view

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// clockSlack is how much later than its duration a Lease counts as not renewed. The times in it are of another machine's
// clock. 15 seconds is the pause between two renewals of a member Lease.
const clockSlack = 15 * time.Second

// factsOf reads the facts of the headline.
func factsOf(f findings, now time.Time) headlineFacts {
	c := f.Cluster
	return headlineFacts{
		serving:  servingOf(c),
		renewals: f.renewals(now),
		degraded: answer(c, v1alpha1.ConditionDegraded),
		members:  answer(c, v1alpha1.ConditionAllMembersReady),
		change:   changeOf(c),
		backups:  f.backups(),
		secure:   secureOf(c),
	}
}

// conditionOf returns the condition, or nil if the status does not have it.
func conditionOf(c v1alpha1.EtcdCluster, kind string) *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Conditions, kind)
}

// servings are the reasons of Ready whose status is False.
var servings = map[string]serving{
	v1alpha1.ReasonQuorumLost: servingLost, v1alpha1.ReasonClientsCutOff: servingCutOff, v1alpha1.ReasonForming: servingForming,
	v1alpha1.ReasonPaused: servingPaused, v1alpha1.ReasonResuming: servingResuming,
}

func servingOf(c v1alpha1.EtcdCluster) serving {
	ready := conditionOf(c, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return servingUnseen
	case ready.Status == metav1.ConditionTrue:
		return servingYes
	case ready.Status == metav1.ConditionFalse && servings[ready.Reason] != 0:
		return servings[ready.Reason]
	default: // unknown, or a reason of another version of druid
		return servingUnclear
	}
}

// renewals counts the voters whose Leases are renewed.
func (f findings) renewals(now time.Time) renewals {
	voters, renewed := 0, 0
	for _, m := range f.members {
		if !m.known || m.ID == 0 || m.Role == leases.RoleLearner {
			continue
		}
		voters++
		if m.renewed(now) {
			renewed++
		}
	}
	switch {
	case voters == 0:
		return renewalsUnknown
	case renewed == voters:
		return renewalsAll
	case renewed > voters/2:
		return renewalsQuorum
	default:
		return renewalsSilent
	}
}

// renewed says whether the agent renewed the Lease within its duration.
func (m member) renewed(now time.Time) bool {
	at := m.lease.Spec.RenewTime
	return at != nil && now.Sub(at.Time) <= leases.DurationOf(m.lease)+clockSlack
}

// answer is the status of a condition. It is Unknown if the status does not have the condition.
func answer(c v1alpha1.EtcdCluster, kind string) rules.Answer {
	condition := conditionOf(c, kind)
	switch {
	case condition == nil:
		return rules.Unknown
	case condition.Status == metav1.ConditionTrue:
		return rules.Yes
	case condition.Status == metav1.ConditionFalse:
		return rules.No
	default:
		return rules.Unknown
	}
}

// withoutChange are the reasons of Progressing=False with which no change waits.
var withoutChange = map[string]bool{v1alpha1.ReasonReconciled: true, v1alpha1.ReasonPaused: true, v1alpha1.ReasonExternalMembersPresent: true}

func changeOf(c v1alpha1.EtcdCluster) change {
	progressing := conditionOf(c, v1alpha1.ConditionProgressing)
	switch {
	case progressing == nil || progressing.Status == metav1.ConditionUnknown:
		return changeUnknown
	case progressing.Status == metav1.ConditionTrue:
		return changeMoving
	case progressing.Reason == v1alpha1.ReasonHandsOff:
		return changeHandsOff
	case !withoutChange[progressing.Reason]:
		return changeStopped
	case c.Status.ObservedGeneration != c.Generation:
		return changeMoving
	default:
		return changeNone
	}
}

// backups is Yes without spec.backup, and while the cluster is paused. Backups that were never verified are good. It is Unknown if a
// Lease reports a failure that the condition does not report yet.
func (f findings) backups() rules.Answer {
	c := f.Cluster
	if answer(c, v1alpha1.ConditionBackupVerified) == rules.No {
		return rules.No
	}
	good := optional(c, c.Spec.Backup != nil, v1alpha1.ConditionBackupReady)
	fails := f.full != nil && f.full.Error != "" || f.delta != nil && f.delta.Error != ""
	if good == rules.Yes && c.Spec.Backup != nil && fails {
		return rules.Unknown
	}
	return good
}

// secureOf is Yes without spec.tls and spec.auth.
func secureOf(c v1alpha1.EtcdCluster) rules.Answer {
	return worse(optional(c, c.Spec.TLS != nil, v1alpha1.ConditionCertificatesReady), optional(c, c.Spec.Auth != nil, v1alpha1.ConditionAuthReady))
}

// optional is the answer of a condition that a cluster has only if wanted.
func optional(c v1alpha1.EtcdCluster, wanted bool, kind string) rules.Answer {
	condition := conditionOf(c, kind)
	if condition == nil && !wanted || condition != nil && condition.Reason == v1alpha1.ReasonPaused {
		return rules.Yes
	}
	return answer(c, kind)
}

func worse(a, b rules.Answer) rules.Answer {
	for _, one := range []rules.Answer{rules.No, rules.Unknown} {
		if a == one || b == one {
			return one
		}
	}
	return rules.Yes
}
