package policy

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

type (
	// Seen says how the spec stands to the one that was adopted.
	Seen uint8
	// Clock is how the operation's deadline stands.
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

// adoptions decide when druid takes over an edit. What is half done is finished first, so that a cluster goes from one spec to
// another and is never between three. An edit that begins nothing, or without which nothing would get on, need not wait
// for that.
var adoptions = rules.New(specDecisionWait, []rules.Row[adoptionFacts, specDecision]{
	{Name: "awaits-snapshot", When: adoptionFacts{seen: SeenFirst, formationState: formationNeverFormed | formationUnknown, origin: rules.No}, Verdict: specDecisionWait,
		Why: "the restore is not known yet, and members without it would form an empty cluster"},
	{Name: "first-sight", When: adoptionFacts{seen: SeenFirst}, Verdict: specDecisionAdopt,
		Why: "no spec was accepted yet"},
	{Name: "same", When: adoptionFacts{seen: SeenSame}, Verdict: specDecisionNothing,
		Why: "druid is already working on this spec"},
	{Name: "bootstrap-failed", When: adoptionFacts{seen: SeenEdited, formationState: formationNeverFormed, clock: ClockPassed}, Verdict: specDecisionWait,
		Why: "a failed bootstrap is not retried with another spec, because parts of it might still be in progress"},
	{Name: "not-formed", When: adoptionFacts{seen: SeenEdited, formationState: formationNeverFormed, clock: ClockNone | ClockRuns}, Verdict: specDecisionAdopt,
		Why: "no raft group exists that could be partly changed, and you can correct a mistake in a new cluster"},
	{Name: "target-reached", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.Yes}, Verdict: specDecisionAdopt,
		Why: "nothing is in progress"},
	{Name: "retry-after-deadline", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No, clock: ClockPassed}, Verdict: specDecisionAdopt,
		Why: "the deadline of the change in progress has passed"},
	{Name: "no-operation", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No, clock: ClockNone}, Verdict: specDecisionAdopt,
		Why: "no edit is in progress: members are only repaired"},
	{Name: "needs-no-operation", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No, clock: ClockRuns, effect: effectNone}, Verdict: specDecisionAdopt,
		Why: "it replaces no Pod and no member, and it can correct a backup that blocks everything else"},
	{Name: "takes-back", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No, clock: ClockRuns, effect: effectBack}, Verdict: specDecisionAdopt,
		Why: "druid takes no further step of a change that you revert"},
	{Name: "stalled", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No, clock: ClockRuns, effect: effectAnother, stalled: rules.Yes}, Verdict: specDecisionAdopt,
		Why: "the change in progress does not continue by itself, and the edit might correct it"},
	{Name: "operation-under-way", When: adoptionFacts{seen: SeenEdited, formationState: formationFormed | formationUnknown, reached: rules.No, clock: ClockRuns, effect: effectAnother, stalled: rules.No}, Verdict: specDecisionWait,
		Why: "druid finishes the change in progress first"},
})

// adoptionFacts is all that the policy may look at.
type adoptionFacts struct {
	seen           Seen           `fact:"spec is seen"`
	formationState formationState `fact:"raft group"`
	reached        rules.YesNo    `fact:"target reached"` // the cluster is what was adopted
	clock          Clock          `fact:"deadline"`
	effect         effect         `fact:"the edit"`
	stalled        rules.YesNo    `fact:"under way gets stuck"` // what is under way waits for something that does not come by itself
	origin         rules.YesNo    `fact:"its snapshot known"`   // it is known what the cluster begins with
}

// Adoption is what is to be done about a spec: nothing, where Rule is empty.
type Adoption struct {
	// Rule by which it is adopted.
	Rule string
	// Begins says that an operation begins with it, so that its deadline is set; else the deadline that stands goes on.
	Begins bool
}

// Adopt decides about the spec, which d and o were not made for where it is an edit.
func Adopt(d Desired, o Observed, e Edit) Adoption {
	f := adoptionFactsOf(d, o, e)
	decision := adoptions.Decide(f)
	if decision.Verdict != specDecisionAdopt {
		return Adoption{}
	}
	switch {
	case f.seen == SeenFirst:
		return Adoption{decision.Rule, f.reached == rules.No}
	case f.effect == effectNone && f.clock != ClockPassed && f.formationState != formationNeverFormed:
		return Adoption{decision.Rule, e.Grows && f.clock == ClockNone}
	default:
		return Adoption{decision.Rule, true}
	}
}

func adoptionFactsOf(d Desired, o Observed, e Edit) adoptionFacts {
	return adoptionFacts{
		seen: e.Seen, formationState: formationStateOf(d, o), reached: reached(d, o), clock: d.clock(), effect: e.effect(d, o), stalled: stalled(d, o),
		origin: o.Origin.known(),
	}
}

// formationStateOf says whether a raft group was formed. It is judged by the strongest word that there is: the status, a Lease, the record.
func formationStateOf(d Desired, o Observed) formationState {
	switch {
	case evidenceOf(d, o) >= evidenceLease || o.formed() == rules.Yes:
		return formationFormed
	case o.RecordState&(RecordAbsent|RecordForming) != 0:
		return formationNeverFormed
	default:
		return formationUnknown
	}
}

// reached says whether the cluster is what was adopted: as many ready voters as asked for, each on the Pod that is asked for, and
// no one on the way in or out; or paused, where no one is asked for. What is not known yet is not reached.
func reached(d Desired, o Observed) rules.YesNo {
	if d.Replicas == 0 {
		return rules.YesNoOf(Paused(d, o))
	}
	listed := o.listed()
	whole := o.RecordState == RecordFormed && o.Record.ClusterID != 0 && len(listed) == d.Replicas &&
		o.Record.PendingRemoval == nil && o.Record.Replacing == nil && rolloutOf(d, o).sum == rollingNone
	for _, m := range listed {
		ready, _ := m.steady(rules.No)
		whole = whole && ready == removalAllowed
	}
	return rules.YesNoOf(whole)
}

// RefusedBy reads from the conditions that the API server refused what druid was about to make.
func RefusedBy(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionDegraded)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonAPIRequestRejected
}

// stalled says whether what is under way waits for something that does not come by itself: a backup that fails, what the API server
// refuses to make, or a member that does not get on its feet. A member that is being started again is none.
func stalled(d Desired, o Observed) rules.YesNo {
	if d.Refused || rolloutOf(d, o).sum&(rollingBlocked|rollingUpgradeBlocked) != 0 || scaleDownOf(d, o).facts.removalGate == removalBackupFailing || pauseStateOf(d, o).is(pauseHeld) {
		return rules.Yes
	}
	found := problems(d, o)
	for _, m := range o.listed() {
		silent := m.up() && m.Expired
		if silent || !m.up() && (m.Stuck || m.Blocked || m.NodeLost) {
			return rules.Yes
		}
		for _, p := range found {
			if p.keepsDown(m) && !m.up() {
				return rules.Yes
			}
		}
	}
	return rules.No
}

// Edit is what the spec asks for where it is not the one that was adopted.
type Edit struct {
	Seen Seen
	// Replicas that it asks for.
	Replicas int
	// SamePods says that it asks for the same Pods as the spec that was adopted. Makes reports the members' Pods whether they
	// are what it asks for.
	SamePods bool
	Makes    map[string]PodMake
	// Grows says that it asks for larger volumes.
	Grows bool
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

// effects put the two together.
var effects = rules.New(effectAnother, []rules.Row[effectFacts, effect]{
	{Name: "hot", When: effectFacts{pods: podsSame, size: sizeSame}, Verdict: effectNone},
	{Name: "other-pods", When: effectFacts{pods: podsAnother}, Verdict: effectAnother},
	{Name: "other-size", When: effectFacts{size: sizeAnother}, Verdict: effectAnother},
	{Name: "back", When: effectFacts{pods: podsSame | podsBack, size: sizeSame | sizeBack}, Verdict: effectBack},
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

// sizeEffect: more members than were to be left, while some leave, stops a removal or a pause. Fewer than were to come, while some come,
// stops a growth, as long as no one goes who has joined.
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
