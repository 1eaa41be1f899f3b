package policy

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

type (
	// Seen compares the spec with the accepted one.
	Seen uint8
	// Clock is the state of the progress deadline.
	Clock uint8

	formationState uint8 // whether the raft group was ever formed
	effect         uint8 // what an edit would change in what is under way
	specDecision   uint8 // what becomes of the spec: no cell holds it
)

// The ways in which a spec was seen.
const (
	SeenFirst  Seen = 1 << iota // none was adopted yet
	SeenSame                    // it is the one that was adopted
	SeenEdited                  // it is another one
)

func (s Seen) String() string {
	return rules.Word(s, "for the first time", "as adopted", "edited")
}

// The states of the deadline.
const (
	ClockNone   Clock = 1 << iota // no operation is under way, as far as was written down
	ClockRuns                     // there is time left
	ClockPassed                   // there is none left
)

func (c Clock) String() string {
	return rules.Word(c, "none", "runs", "passed")
}

const (
	formationNeverFormed formationState = 1 << iota // the record is absent or says Forming, and nothing speaks of a raft group
	formationFormed                                 // the record, the status or a member's Lease reports one
	formationUnknown                                // the record cannot be used
)

func (l formationState) String() string {
	return rules.Word(l, "never formed", "formed", "unknown")
}

const (
	effectNone    effect = 1 << iota // it needs no operation: the same members, and the same Pods
	effectBack                       // it takes back what was not done yet, and begins nothing
	effectAnother                    // it begins something else
)

func (e effect) String() string {
	return rules.Word(e, "needs no operation", "takes back", "begins another")
}

const (
	specDecisionNothing specDecision = iota // there is nothing to adopt
	specDecisionWait                        // the edit waits
	specDecisionAdopt                       // the spec is adopted as a whole
)

func (c specDecision) String() string {
	return [...]string{"Nothing", "Wait", "Adopt"}[c]
}

// adoptions decide when druid accepts an edit. A change in progress is completed first, so that a cluster changes
// between two specs and never among three. An edit that begins no change, or without which nothing continues, does not
// wait.
var adoptions = rules.New(specDecisionWait, []rules.Row[adoptionFacts, specDecision]{
	{Name: "hands-off", When: adoptionFacts{seen: SeenFirst | SeenEdited, handsOff: rules.Yes}, Verdict: specDecisionWait,
		Why: "you request that druid does not act, so the time for a change would pass without it"},
	{Name: "awaits-snapshot", When: adoptionFacts{seen: SeenFirst, formationState: formationNeverFormed | formationUnknown, origin: rules.No},
		Verdict: specDecisionWait,
		Why:     "the restore is not known yet, and members without it would form an empty cluster"},
	{Name: "first-spec", When: adoptionFacts{seen: SeenFirst}, Verdict: specDecisionAdopt,
		Why: "no spec was accepted yet"},
	{Name: "same", When: adoptionFacts{seen: SeenSame}, Verdict: specDecisionNothing,
		Why: "druid is already working on this spec"},
	{Name: "bootstrap-failed", When: adoptionFacts{seen: SeenEdited, formationState: formationNeverFormed, clock: ClockPassed}, Verdict: specDecisionWait,
		Why: "a failed bootstrap is not retried with another spec, because parts of it might still be in progress"},
	{Name: "not-formed", When: adoptionFacts{seen: SeenEdited, formationState: formationNeverFormed, clock: ClockNone | ClockRuns}, Verdict: specDecisionAdopt,
		Why: "no raft group exists that could be partly changed, and you can correct a mistake in a new cluster"},
	{Name: "target-reached", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.Yes},
		Verdict: specDecisionAdopt,
		Why:     "nothing is in progress"},
	{Name: "retry-after-deadline", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No,
		clock: ClockPassed},
		Verdict: specDecisionAdopt,
		Why:     "the deadline of the change in progress has passed"},
	{Name: "no-change-in-progress", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No, clock: ClockNone},
		Verdict: specDecisionAdopt,
		Why:     "no spec change is in progress: members are only repaired, or one is replaced on request"},
	{Name: "replaces-nothing", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No,
		clock: ClockRuns, effect: effectNone},
		Verdict: specDecisionAdopt,
		Why:     "it replaces no Pod and no member, and it can correct a backup that blocks everything else"},
	{Name: "reverts", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No,
		clock: ClockRuns, effect: effectBack},
		Verdict: specDecisionAdopt,
		Why:     "druid takes no further step of a change that you revert"},
	{Name: "stalled", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No, clock: ClockRuns,
		effect: effectAnother, stalled: rules.Yes},
		Verdict: specDecisionAdopt,
		Why:     "the change in progress does not continue by itself, and the edit might correct it"},
	{Name: "apply-now", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No,
		clock: ClockRuns, effect: effectAnother, stalled: rules.No, requested: rules.Yes},
		Verdict: specDecisionAdopt,
		Why:     "you request it, and the change in progress continues as the edit says"},
	{Name: "change-in-progress", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No,
		clock: ClockRuns, effect: effectAnother, stalled: rules.No, requested: rules.No},
		Verdict: specDecisionWait,
		Why:     "druid finishes the change in progress first"},
})

// adoptionFacts is the complete input of adoptions.
type adoptionFacts struct {
	seen           Seen           `fact:"spec is seen"`
	formationState formationState `fact:"raft group"`
	reached        rules.YesNo    `fact:"target reached"` // the cluster is what was adopted
	clock          Clock          `fact:"deadline"`
	effect         effect         `fact:"the edit"`
	stalled        rules.YesNo    `fact:"change in progress stalls"` // what is under way waits for something that does not come by itself
	origin         rules.YesNo    `fact:"its snapshot known"`        // it is known what the cluster begins with
	requested      rules.YesNo    `fact:"apply-now names it"`        // the annotation has the generation of the edit
	handsOff       rules.YesNo    `fact:"hands off"`                 // druid must not act for this cluster
}

// Adoption is the decision about a spec. An empty Rule means that it is not accepted now.
type Adoption struct {
	// Rule of the decision.
	Rule string
	// Begins reports whether a change begins with it, so that its deadline is set. Otherwise, the present deadline
	// stays.
	Begins bool
}

// Adopt decides about the spec. If it is an edit, d and o were made from the accepted spec.
func Adopt(e Evaluation, edit Edit) Adoption {
	f := adoptionFactsOf(e, edit)
	decision := adoptions.Decide(f)
	if decision.Verdict != specDecisionAdopt {
		return Adoption{}
	}
	switch {
	case f.seen == SeenFirst:
		return Adoption{decision.Rule, f.reached == rules.No}
	case f.effect == effectNone && f.clock != ClockPassed && f.formationState != formationNeverFormed:
		return Adoption{decision.Rule, edit.Grows && f.clock == ClockNone}
	default:
		return Adoption{decision.Rule, true}
	}
}

func adoptionFactsOf(e Evaluation, edit Edit) adoptionFacts {
	return adoptionFacts{
		seen: edit.Seen, formationState: formationStateOf(e), reached: reached(e), clock: e.clock(), effect: edit.effect(e.Desired, e.Observed), stalled: stalled(e),
		origin: e.Origin.known(), requested: rules.YesNoOf(edit.Requested), handsOff: rules.YesNoOf(e.handsOff()),
	}
}

// formationStateOf reports whether a raft group was formed. It uses the strongest evidence: the status, a Lease, or
// the record.
func formationStateOf(e Evaluation) formationState {
	switch {
	case e.evidence >= evidenceLease || e.formed() == rules.Yes:
		return formationFormed
	case e.RecordState&(RecordAbsent|RecordForming) != 0:
		return formationNeverFormed
	default:
		return formationUnknown
	}
}

// reached reports whether the cluster matches the accepted spec: as many ready voters as requested, each in an
// up-to-date Pod, and no member joins or leaves. With replicas 0, the cluster must be paused. An unknown state does
// not count as reached.
func reached(e Evaluation) rules.YesNo {
	if e.Replicas == 0 {
		return rules.YesNoOf(e.pause.is(pauseRest))
	}
	whole := e.RecordState == RecordFormed && e.Record.ClusterID != 0 && len(e.listed) == e.Replicas &&
		e.Record.PendingRemoval == nil && e.Record.Replacing == nil && e.rollout.sum == rollingNone
	for _, m := range e.listed {
		ready, _ := m.steady(rules.No)
		whole = whole && ready == removalAllowed
	}
	return rules.YesNoOf(whole)
}

// RefusedBy reads from the conditions whether the API server rejected what druid was about to create.
func RefusedBy(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionDegraded)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonAPIRequestRejected
}

// stalled reports whether the change in progress waits for something that does not come by itself: a failing backup,
// an object that the API server rejects, or a member that does not recover. A member that is being restarted does not
// count.
func stalled(e Evaluation) rules.YesNo {
	if e.Refused || e.rollout.sum&(rollingBlocked|rollingUpgradeBlocked) != 0 || e.scaleDown.facts.removalGate == removalBackupFailing || e.pause.is(pauseHeld) {
		return rules.Yes
	}
	for _, m := range e.listed {
		silent := m.up() && m.Expired
		if silent || !m.up() && (m.Stuck || m.Blocked || m.NodeLost) {
			return rules.Yes
		}
		for _, p := range e.problems {
			if p.keepsDown(m) && !m.up() {
				return rules.Yes
			}
		}
	}
	return rules.No
}

// Edit is what the spec requests if it is not the accepted one.
type Edit struct {
	Seen Seen
	// Replicas that it asks for.
	Replicas int
	// SamePods reports whether it requests the same Pods as the accepted spec. Makes reports for each member's Pod
	// whether it matches the edit.
	SamePods bool
	Makes    map[string]PodMake
	// Grows reports whether it requests larger volumes.
	Grows bool
	// Requested reports whether the user requests that druid does not let this edit wait for the change in progress.
	Requested bool
}

type (
	podEffect  uint8 // of an edit on the Pods
	sizeEffect uint8 // of an edit on the number of members
)

const (
	podsSame    podEffect = 1 << iota // it asks for the same
	podsBack                          // all Pods that are to be replaced are what it asks for: it stops a rolling update, and undoes the rest
	podsAnother                       // it asks for others
)

func (p podEffect) String() string {
	return rules.Word(p, "the same", "those of before", "others")
}

const (
	sizeSame    sizeEffect = 1 << iota
	sizeBack               // members that were to leave stay, or members that did not join yet do not come
	sizeAnother            // others are to leave, or to come
)

func (s sizeEffect) String() string {
	return rules.Word(s, "the same", "as before", "another")
}

type effectFacts struct {
	pods podEffect  `fact:"it asks for Pods"`
	size sizeEffect `fact:"it asks for a size"`
}

// effects combine the effects on the Pods and on the number of members.
var effects = rules.New(effectAnother, []rules.Row[effectFacts, effect]{
	{Name: "no-restart", When: effectFacts{pods: podsSame, size: sizeSame}, Verdict: effectNone},
	{Name: "other-pods", When: effectFacts{pods: podsAnother}, Verdict: effectAnother},
	{Name: "other-size", When: effectFacts{size: sizeAnother}, Verdict: effectAnother},
	{Name: "reverts", When: effectFacts{pods: podsSame | podsBack, size: sizeSame | sizeBack}, Verdict: effectBack},
})

func (e Edit) effect(d Desired, o Observed) effect {
	if e.Seen != SeenEdited {
		return effectNone
	}
	return effects.Decide(effectFacts{e.podEffect(o), e.sizeEffect(d, o)}).Verdict
}

func (e Edit) podEffect(o Observed) podEffect {
	if e.SamePods {
		return podsSame
	}
	outdated := 0
	for _, m := range o.listed() {
		if m.Make != MakeOutdated {
			continue
		}
		outdated++
		if e.Makes[m.Name] != MakeCurrent {
			return podsAnother
		}
	}
	if outdated == 0 {
		return podsAnother
	}
	return podsBack
}

// sizeEffect compares the number of members. If members are being removed, an edit that requests more stops the
// removal or the pause. If members are joining, an edit that requests fewer stops that, as long as no joined member is
// removed.
func (e Edit) sizeEffect(d Desired, o Observed) sizeEffect {
	listed := o.listed()
	joined := 0
	for _, m := range listed {
		if !m.outside() || m.publishedVoter(o) {
			joined++
		}
	}
	leave, come := len(listed) > d.kept() || d.Replicas == 0, joined < d.Replicas
	switch {
	case e.Replicas == d.Replicas:
		return sizeSame
	case leave && e.Replicas > d.Replicas, come && e.Replicas < d.Replicas && e.Replicas >= max(joined, 1):
		return sizeBack
	default:
		return sizeAnother
	}
}
