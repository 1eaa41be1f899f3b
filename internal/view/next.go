package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// docs is where the pages are.
const docs = "https://github.com/etcd-druid/druid/blob/main/docs/"

// The tables of decisions: HeadlineDocs has the rules of the state, and StartDocs those by which an agent starts etcd.
const (
	HeadlineDocs = docs + "reference/decisions.md#the-state-of-a-cluster-in-the-plugin-internalviewheadlines"
	StartDocs    = docs + "reference/decisions.md#how-a-member-starts-agentstartstartrules"
)

// reasonsPage explains the conditions and their reasons, with a section for each condition.
const reasonsPage = "reference/conditions-and-reasons.md"

// otherPages explain the conditions that the first page leaves out.
var otherPages = map[string]string{
	v1alpha1.ConditionDegraded:       "reference/reasons-of-degraded.md",
	v1alpha1.ConditionBackupReady:    "reference/conditions-of-backups.md",
	v1alpha1.ConditionBackupVerified: "reference/conditions-of-backups.md",
}

// Step is something to do now.
type Step struct {
	// Do says what to do. Command does it, or shows more. Docs is the page about it.
	Do      string `json:"do"`
	Command string `json:"command,omitempty"`
	Docs    string `json:"docs,omitempty"`
}

// pageOf returns the section of the conditions of a type.
func pageOf(condition string) string {
	return docs + cmp.Or(otherPages[condition], reasonsPage) + "#" + strings.ToLower(condition)
}

// pages are those that say what to do about a reason.
var pages = map[string]string{
	v1alpha1.ReasonRecordLost:                "how-to/rescue/manual-actions.md#cluster-record-lost",
	v1alpha1.ReasonDataLost:                  "how-to/rescue/manual-actions.md#data-lost",
	v1alpha1.ReasonObjectNotOwned:            "how-to/rescue/manual-actions.md#object-not-owned",
	v1alpha1.ReasonRecoveryProposed:          "how-to/rescue/quorum-lost.md#check-the-plan",
	v1alpha1.ReasonRecoveryRefused:           "how-to/rescue/recovery-waits.md#when-druid-refuses",
	v1alpha1.ReasonDataUndecided:             "how-to/rescue/data-differs.md#no-majority-has-the-same-data",
	v1alpha1.ReasonDataDiffers:               "how-to/rescue/data-differs.md#a-member-differs-from-a-majority",
	v1alpha1.ReasonAlarmRaised:               "how-to/rescue/nospace.md",
	v1alpha1.ReasonVolumeNotExpanded:         "how-to/run/resize-volumes.md",
	v1alpha1.ReasonPodUnschedulable:          "how-to/run/place-on-nodes.md",
	v1alpha1.ReasonContainerCannotStart:      "how-to/rescue/pod-not-ready.md",
	v1alpha1.ReasonMemberCannotStart:         "how-to/rescue/pod-not-ready.md",
	v1alpha1.ReasonMemberStuck:               "how-to/rescue/pod-not-ready.md",
	v1alpha1.ReasonNodeLost:                  "how-to/rescue/node-lost.md",
	v1alpha1.ReasonOrphanedObjects:           "how-to/rescue/orphaned-objects.md",
	v1alpha1.ReasonSlowDisk:                  "how-to/rescue/slow-disk.md",
	v1alpha1.ReasonAuthRequiredNotConfigured: "how-to/back-up/restore.md#if-the-restore-is-blocked",
	v1alpha1.ReasonAuthIncomplete:            "how-to/secure/authentication.md",
	v1alpha1.ReasonAuthAccessDenied:          "how-to/secure/authentication.md",
	v1alpha1.ReasonCertificatesRejected:      "how-to/secure/tls.md#check-the-certificates",
	v1alpha1.ReasonDeadlineExceeded:          "how-to/run/edit.md",
	v1alpha1.ReasonScaleDownBlocked:          "how-to/rescue/stuck-scale-down.md",
	v1alpha1.ReasonHandsOff:                  "how-to/run/hands-off.md",
	v1alpha1.ReasonReplaceBlocked:            "how-to/run/replace-member.md",
	v1alpha1.ReasonPauseBlocked:              "how-to/run/pause.md#pauseblocked",
	v1alpha1.ReasonRollingUpdateBlocked:      "how-to/rescue/stuck-upgrade.md",
	v1alpha1.ReasonUpgradeBlocked:            "how-to/rescue/stuck-upgrade.md",
	v1alpha1.ReasonVerificationFailed:        "how-to/back-up/verify.md",
	v1alpha1.ReasonMembersNotReady:           "how-to/rescue/pod-not-ready.md",
	v1alpha1.ReasonClientsCutOff:             "how-to/run/cut-off-clients.md",
	v1alpha1.ReasonPaused:                    "how-to/run/pause.md#resume",
}

// next returns what to do now, the first step first. A cluster that is well needs nothing.
func (v Cluster) next() []Step {
	if steps := v.restoring(); len(steps) > 0 {
		return steps
	}
	switch v.State {
	case StateServing, StateChanging:
		return nil
	case StateQuorumLost:
		return v.quorumLost()
	case StateStatusOutdated:
		return v.silent()
	case StateNotAccepted:
		return []Step{{Do: "Check that druid runs and watches this namespace.", Command: druidPods, Docs: docs + "how-to/install/install.md"}}
	case StateForming, StateResuming:
		return []Step{{Do: "Wait. The members start.", Command: v.describe(), Docs: pageOf(v1alpha1.ConditionProgressing)}}
	default:
		return v.fromConditions()
	}
}

// druidPods lists druid's own Pods.
const druidPods = "kubectl get pods -A -l app.kubernetes.io/name=druid"

func (v Cluster) describe() string {
	return fmt.Sprintf("kubectl -n %s describe etcdcluster %s", v.Namespace, v.Name)
}

func (v Cluster) members() string {
	return fmt.Sprintf("kubectl -n %s get pods,leases -l etcd.druid.dev/cluster=%s", v.Namespace, v.Name)
}

// quorumLost is the decision tree of docs/how-to/rescue/quorum-lost.md.
func (v Cluster) quorumLost() []Step {
	const page, waits = docs + "how-to/rescue/quorum-lost.md", docs + "how-to/rescue/recovery-waits.md"
	steps := []Step{{
		Do:      "Bring back the nodes or volumes of the members that are down, if you can. The cluster then serves again, and no write is lost.",
		Command: v.members(), Docs: page + "#bring-members-back",
	}}
	switch {
	case v.Recovery == nil || v.Recovery.Phase == "" || v.Recovery.Phase == v1alpha1.RecoveryWaiting:
		steps = append(steps, Step{Do: "If you cannot, wait for druid's plan.", Docs: page})
	case v.Recovery.Phase == v1alpha1.RecoveryProposed:
		steps = append(steps, Step{Do: "If you cannot, read druid's plan, and approve it.", Command: v.plan(), Docs: page + "#check-the-plan"})
	case v.Recovery.Phase == v1alpha1.RecoveryRefused:
		steps = append(steps, Step{Do: "druid refuses to recover: " + v.Recovery.Message, Docs: waits + "#when-druid-refuses"})
	default:
		steps = append(steps, Step{Do: "druid recovers the cluster: " + v.Recovery.Message, Docs: waits + "#when-a-recovery-does-not-continue"})
	}
	return append(steps, Step{Do: "Do not delete a PersistentVolumeClaim, a Pod or a Lease."})
}

// restoring are the steps while a restore in place is planned, waits for an approval, or is carried out.
func (v Cluster) restoring() []Step {
	const page = docs + "how-to/back-up/restore-in-place.md"
	r := v.Recovery
	switch {
	case r == nil || r.Plan == nil || r.Plan.Source != v1alpha1.RecoveryFromRestore:
		return nil
	case r.Phase == v1alpha1.RecoveryProposed:
		return []Step{{Do: "Read the plan of the restore in place, and approve it. Or remove spec.recovery.restore.", Command: v.plan(),
			Docs: page + "#approve-the-plan"}}
	case r.Phase == v1alpha1.RecoveryRefused:
		return []Step{{Do: "The restore in place waits for you. " + r.Message, Docs: page + "#when-it-waits-or-is-refused"}}
	default:
		return []Step{{Do: "A restore in place is under way. " + r.Message, Docs: page + "#approve-the-plan"}}
	}
}

// plan shows the plan.
func (v Cluster) plan() string {
	return fmt.Sprintf("kubectl druid -n %s recover %s", v.Namespace, v.Name)
}

func (v Cluster) silent() []Step {
	return []Step{
		{Do: "Check that the members run, and that they reach the API server.", Command: v.members(),
			Docs: docs + "reference/runbooks-members.md#etcdagentnotrenewing"},
		{Do: "Check that druid runs: it did not update the status.", Command: druidPods, Docs: docs + "reference/runbooks.md#druidnotleading"},
		{Do: "Check the clock of this computer: a wrong one makes Leases look old."},
	}
}

// fromConditions has a step for each condition that is not as wished and waits for a user.
func (v Cluster) fromConditions() (steps []Step) {
	for _, c := range v.Conditions {
		if !v.needsStep(c) {
			continue
		}
		step := Step{Do: c.Message, Docs: c.Docs}
		if page := pages[c.Reason]; page != "" {
			step.Docs = docs + page
		}
		if c.Type == v1alpha1.ConditionBackupReady {
			step.Docs = docs + "how-to/rescue/backups-failing.md"
		}
		if c.Type == v1alpha1.ConditionProgressing && c.Reason == v1alpha1.ReasonPaused {
			step.Do, step.Command = "Resume the cluster when you need it.", fmt.Sprintf("kubectl druid -n %s resume %s --replicas 3", v.Namespace, v.Name)
		}
		steps = append(steps, step)
	}
	return steps
}

// needsStep says whether a user can do something about the condition. Of a paused cluster, only Progressing has a step.
func (v Cluster) needsStep(c Condition) bool {
	switch {
	case c.Type == v1alpha1.ConditionSpread: // information only
		return false
	case c.Reason == v1alpha1.ReasonPaused:
		return c.Type == v1alpha1.ConditionProgressing
	case v.State == StateClientsCutOff:
		return c.Reason == v1alpha1.ReasonClientsCutOff
	default:
		return !c.Wished
	}
}
