package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// Tools that apply objects know only a few conditions. Flux, Helm 4 and others read kstatus
// (https://github.com/fluxcd/cli-utils/tree/main/pkg/kstatus): an object is InProgress while Reconciling is True, and Failed while
// Stalled is True. It is Current if both are absent and Ready is True, and InProgress if Ready is not True. So druid sets both only
// while they are True, and a healthy cluster has neither.

// toolProgress is what condition Progressing means for a tool that waits.
type toolProgress uint8

const (
	toolAccepted toolProgress = 1 << iota // a spec was just accepted: the other conditions are about the one before
	toolGoesOn                            // druid or an agent works, or waits for what comes by itself
	toolStopped                           // nothing goes on without you
	toolDone                              // nothing is left to do
)

func (p toolProgress) String() string {
	return rules.Word(p, "spec just accepted", "goes on", "stopped", "done")
}

// toolRemedy is what ends what is wrong.
type toolRemedy uint8

const (
	toolWell   toolRemedy = 1 << iota // nothing is wrong
	toolAwaits                        // it can end without you
	toolNeeds                         // only you can end it
)

func (r toolRemedy) String() string {
	return rules.Word(r, "as it should be", "can recover", "needs you")
}

// toolFacts is the complete input of toolRows. All facts come from the other conditions, so that no two conditions differ about them.
type toolFacts struct {
	progress toolProgress `fact:"Progressing"`
	problem  toolRemedy   `fact:"Degraded"`
	// parts are the conditions of parts that the spec asks for: backups, certificates and authentication.
	parts   toolRemedy  `fact:"parts"`
	serves  rules.YesNo // a quorum serves clients, or you asked for the opposite
	members rules.YesNo `fact:"all members ready"` // or you asked for none
}

// toolVerdict is the condition that is True, and the condition from which it has its reason and its message.
type toolVerdict struct {
	kind string `fact:"condition"`
	from string `fact:"reason and message of"`
}

const (
	// toolNone is the verdict that neither condition is True.
	toolNone = "none"
	// toolParts stands for the first condition of a part that is not as it should be.
	toolParts = "the part"
)

// toolRows decide which of the conditions Reconciling and Stalled is True. It is never both: kstatus would use the one that comes first.
var toolRows = rules.New(toolVerdict{v1alpha1.ConditionReconciling, v1alpha1.ConditionProgressing}, []rules.Row[toolFacts, toolVerdict]{
	{Name: "just-accepted", When: toolFacts{progress: toolAccepted}, Verdict: toolVerdict{v1alpha1.ConditionReconciling, v1alpha1.ConditionProgressing},
		Why: "the other conditions were observed before druid accepted the spec"},
	{Name: "problem-needs-you", When: toolFacts{problem: toolNeeds}, Verdict: toolVerdict{v1alpha1.ConditionStalled, v1alpha1.ConditionDegraded},
		Why: "no waiting ends the problem"},
	{Name: "stopped", When: toolFacts{progress: toolStopped}, Verdict: toolVerdict{v1alpha1.ConditionStalled, v1alpha1.ConditionProgressing},
		Why: "druid takes no further step before you act"},
	{Name: "part-needs-you", When: toolFacts{parts: toolNeeds}, Verdict: toolVerdict{v1alpha1.ConditionStalled, toolParts},
		Why: "no waiting ends the problem"},
	{Name: "continues", When: toolFacts{progress: toolGoesOn}, Verdict: toolVerdict{v1alpha1.ConditionReconciling, v1alpha1.ConditionProgressing},
		Why: "the cluster does not match its spec yet"},
	{Name: "problem-can-end", When: toolFacts{problem: toolAwaits}, Verdict: toolVerdict{v1alpha1.ConditionReconciling, v1alpha1.ConditionDegraded},
		Why: "the cluster does not match its spec"},
	{Name: "does-not-serve", When: toolFacts{serves: rules.No}, Verdict: toolVerdict{v1alpha1.ConditionReconciling, v1alpha1.ConditionReady},
		Why: "no quorum is known to serve"},
	{Name: "member-not-ready", When: toolFacts{members: rules.No}, Verdict: toolVerdict{v1alpha1.ConditionReconciling, v1alpha1.ConditionAllMembersReady},
		Why: "a member is missing or not known to be ready"},
	{Name: "part-can-end", When: toolFacts{parts: toolAwaits}, Verdict: toolVerdict{v1alpha1.ConditionReconciling, toolParts},
		Why: "the spec asks for it, and it is not there yet"},
	{Name: "as-requested", When: toolFacts{progress: toolDone}, Verdict: toolVerdict{kind: toolNone},
		Why: "the cluster matches its spec"},
})

// partConditions are the conditions of parts, most important first. BackupVerified is not awaited: the first verification can be
// hours away.
var partConditions = []string{
	v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionAuthReady, v1alpha1.ConditionBackupReady, v1alpha1.ConditionBackupVerified,
}

// needYou are the reasons that only an edit or another action of yours ends, by condition. What another reason of these conditions
// reports can end without you: a node returns, an agent retries, or a user creates what is missing.
var needYou = map[string][]string{
	v1alpha1.ConditionDegraded: {
		v1alpha1.ReasonRecordUnreadable, v1alpha1.ReasonSnapshotUnusable, v1alpha1.ReasonRecoveryProposed, v1alpha1.ReasonRecoveryRefused,
		v1alpha1.ReasonDataUndecided, v1alpha1.ReasonObjectNotOwned, v1alpha1.ReasonAPIRequestRejected, v1alpha1.ReasonLeaseUnreadable,
		v1alpha1.ReasonVolumeDeleted, v1alpha1.ReasonAuthRequiredNotConfigured, v1alpha1.ReasonOrphanedObjects,
	},
	v1alpha1.ConditionCertificatesReady: {v1alpha1.ReasonCertificatesRejected, v1alpha1.ReasonAuthorityLost, v1alpha1.ReasonObjectNotOwned},
	v1alpha1.ConditionAuthReady:         {v1alpha1.ReasonAuthAccessDenied},
	v1alpha1.ConditionBackupReady:       {v1alpha1.ReasonBackupSpecInvalid, v1alpha1.ReasonBackupSuperseded},
	v1alpha1.ConditionBackupVerified:    {v1alpha1.ReasonVerificationFailed},
}

// toolFactsOf reads the facts from the conditions.
func toolFactsOf(conditions []metav1.Condition) toolFacts {
	of := func(kind string) metav1.Condition {
		if c := meta.FindStatusCondition(conditions, kind); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	ready, members := of(v1alpha1.ConditionReady), of(v1alpha1.ConditionAllMembersReady)
	f := toolFacts{
		progress: toolProgressOf(of(v1alpha1.ConditionProgressing)), problem: remedyOf(of(v1alpha1.ConditionDegraded)), parts: toolWell,
		serves:  rules.YesNoOf(ready.Status == metav1.ConditionTrue || slices.Contains([]string{v1alpha1.ReasonPaused, v1alpha1.ReasonClientsCutOff}, ready.Reason)),
		members: rules.YesNoOf(members.Status == metav1.ConditionTrue || members.Reason == v1alpha1.ReasonPaused),
	}
	for _, kind := range partConditions {
		f.parts = max(f.parts, remedyOf(of(kind)))
	}
	return f
}

// toolProgressOf classifies condition Progressing. A removal or a replacement that is blocked goes on by itself when another member is
// ready.
func toolProgressOf(c metav1.Condition) toolProgress {
	switch c.Reason {
	case v1alpha1.ReasonSpecAccepted, v1alpha1.ReasonSpecChanged, v1alpha1.ReasonRetryAfterDeadline:
		return toolAccepted
	case v1alpha1.ReasonReconciled, v1alpha1.ReasonPaused, v1alpha1.ReasonExternalMembersPresent:
		return toolDone
	case v1alpha1.ReasonScaleDownBlocked, v1alpha1.ReasonReplaceBlocked:
		return toolGoesOn
	}
	if c.Status == metav1.ConditionFalse {
		return toolStopped
	}
	return toolGoesOn
}

// remedyOf classifies condition Degraded, or the condition of a part. A cluster does not have those whose part it does not have.
func remedyOf(c metav1.Condition) toolRemedy {
	good := metav1.ConditionTrue
	if c.Type == v1alpha1.ConditionDegraded {
		good = metav1.ConditionFalse
	}
	switch {
	case c.Type == "", c.Status == good, c.Reason == v1alpha1.ReasonPaused, c.Reason == v1alpha1.ReasonNotYetVerified:
		return toolWell
	case slices.Contains(needYou[c.Type], c.Reason):
		return toolNeeds
	default:
		return toolAwaits
	}
}

// setToolConditions sets Reconciling or Stalled as follows from the other conditions, and removes what is not True. It changes only
// when another condition does, so it costs no write of its own.
func setToolConditions(conditions *[]metav1.Condition, generation int64, now metav1.Time) {
	facts := toolFactsOf(*conditions)
	verdict := toolRows.Decide(facts).Verdict
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if kind != verdict.kind {
			meta.RemoveStatusCondition(conditions, kind)
			continue
		}
		c := sourceOf(*conditions, verdict.from, facts.parts)
		c.Type, c.Status, c.ObservedGeneration, c.LastTransitionTime = kind, metav1.ConditionTrue, generation, now
		setCondition(conditions, c)
	}
}

// sourceOf returns the condition of a type, or the first one of a part with the remedy.
func sourceOf(conditions []metav1.Condition, from string, remedy toolRemedy) metav1.Condition {
	kinds := []string{from}
	if from == toolParts {
		kinds = partConditions
	}
	for _, kind := range kinds {
		if c := meta.FindStatusCondition(conditions, kind); c != nil && (from != toolParts || remedyOf(*c) == remedy) {
			return *c
		}
	}
	return metav1.Condition{Reason: v1alpha1.ReasonUnknown} // an observed cluster has the condition
}
