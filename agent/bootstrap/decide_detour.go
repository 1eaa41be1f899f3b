package bootstrap

import (
	"slices"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/internal/rules"
)

// One-bit enums of a restore whose plan may hold what is damaged.
type (
	// Harm is what is known of the objects of the plan that leads to what is asked for.
	Harm uint8
	// Rest is where all other objects lead.
	Rest uint8
)

// Harm.
const (
	Unharmed Harm = 1 << iota // none of them was found damaged
	HarmNew                   // one was, a moment ago
	HarmOld                   // one was, so long ago that a good copy may stand in its place by now
	anyHarm  = 1<<iota - 1
)

// Rest.
const (
	RestEqual Rest = 1 << iota // to the same state
	RestVain                   // to the same state, by a plan that was tried and cannot be carried out
	RestLess                   // to less of it, or to another one
	RestNone                   // there is no plan
	anyRest   = 1<<iota - 1
)

// DetourFacts is all that decideDetour may look at.
type DetourFacts struct {
	Harm Harm `fact:"an object of the plan is damaged"`
	Rest Rest `fact:"the others lead"`
}

func (h Harm) String() string { return rules.Word(h, "no", "found just now", "found minutes ago") }
func (r Rest) String() string {
	return rules.Word(r, "to the same state", "to the same, tried in vain", "to less, or another state", "nowhere")
}

// Course is which plan is carried out.
type Course string

// The courses.
const (
	CourseDirect Course = "Direct" // the one with all objects, whatever was found damaged before
	CourseDetour Course = "Detour" // the one without those that are damaged
	CourseNone   Course = "None"   // neither: a person has to choose
)

// detours is the whole policy of damage on the way to what is restored. First match wins; what no rule covers is not restored.
var detours = rules.New(CourseNone, []rules.Row[DetourFacts, Course]{
	{Name: "undamaged", When: DetourFacts{Harm: Unharmed}, Verdict: CourseDirect,
		Why: "nothing that it needs was found damaged"},
	{Name: "around-damage", When: DetourFacts{Rest: RestEqual}, Verdict: CourseDetour,
		Why: "all that is asked for is in other objects, too"},
	{Name: "look-again", When: DetourFacts{Harm: HarmOld}, Verdict: CourseDirect,
		Why: "a good copy may stand in its place by now, or in that of any other; each is read and compared before it counts"},
	{Name: "tried-in-vain", When: DetourFacts{Rest: RestVain}, Verdict: CourseDetour,
		Why: "what is wrong with it is reported, until all is looked at again"},
	{Name: "damage-in-the-way", Verdict: CourseNone,
		Why: "less than what is asked for is never restored unasked"},
})

// decideDetour is total, as Decide is.
func decideDetour(f DetourFacts) rules.Decision[Course] { return detours.Decide(f) }

// restOf says where a plan without the damaged objects leads, or that there is none, compared with first, which has them, and with the
// plan that was tried in vain last. What leads further than first, as overlapping deltas may, has all of it; the restore cuts it back to
// what was asked for.
func restOf(first, rest, vain chain.Plan, err error) Rest {
	switch {
	case err != nil:
		return RestNone
	case rest.Full.Lineage != first.Full.Lineage, rest.Revision != first.Revision, !rest.Until.Equal(first.Until), rest.Reach < first.Reach:
		return RestLess
	case slices.Equal(objectsOf(rest), objectsOf(vain)):
		return RestVain
	default:
		return RestEqual
	}
}
