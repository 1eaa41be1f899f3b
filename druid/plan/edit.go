package plan

import "github.com/etcd-druid/druid/internal/rules"

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
