package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// docs is where the pages are.
const docs = "https://github.com/etcd-druid/druid/blob/main/docs/"

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

// fromConditions has a step for each cause that a user can remove.
func (v Cluster) fromConditions() (steps []Step) {
	for _, c := range v.Conditions {
		if !v.needsStep(c) {
			continue
		}
		if step := v.remedy(c); !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// withoutStep are reasons with which you can only wait, and those of which another condition names the cause.
var withoutStep = []string{
	v1alpha1.ReasonForming, v1alpha1.ReasonResuming, v1alpha1.ReasonNotYetVerified, v1alpha1.ReasonCertificatesPending, v1alpha1.ReasonAuthPending,
	v1alpha1.ReasonClusterRecordInvalid,
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
	case c.Wished, slices.Contains(withoutStep, c.Reason), c.Reason == v1alpha1.ReasonUnknown && c.Type != v1alpha1.ConditionReady:
		return false
	case c.Type == v1alpha1.ConditionProgressing: // druid or an agent works while it is True. Degraded says what a recovery needs
		return c.Status == string(metav1.ConditionFalse) && c.Reason != v1alpha1.ReasonRecoveryProposed && c.Reason != v1alpha1.ReasonRecoveryRefused
	case c.Type == v1alpha1.ConditionAllMembersReady:
		return v.State != StateUnknown && !v.explained()
	default:
		return true
	}
}

// explained says whether Degraded names each member that is not ready, and with it the cause.
func (v Cluster) explained() bool {
	i := slices.IndexFunc(v.Conditions, func(c Condition) bool { return c.Type == v1alpha1.ConditionDegraded && !c.Wished })
	return i >= 0 && !slices.ContainsFunc(v.Members, func(m Member) bool {
		return m.State == string(v1alpha1.MemberNotReady) && !strings.Contains(v.Conditions[i].Message, m.Name)
	})
}
