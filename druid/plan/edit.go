package plan

// Edit is what the spec asks for where it is not the one that was adopted.
type Edit struct {
	Seen Seen
	// Replicas that it asks for.
	Replicas int
	// SamePods says that it asks for the same Pods as the spec that was adopted. Makes tells of the members' Pods whether they
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

	anyPodEffect = podsSame | podsBack | podsAnother
)

const (
	sizeSame    sizeEffect = 1 << iota
	sizeBack               // members that were to leave stay, or members that did not join yet do not come
	sizeAnother            // others are to leave, or to come

	anySizeEffect = sizeSame | sizeBack | sizeAnother
)

// effects put the two together.
var effects = []struct {
	name   string
	pods   podEffect
	size   sizeEffect
	effect effect
}{
	{"hot", podsSame, sizeSame, effectNone},
	{"other-pods", podsAnother, anySizeEffect, effectAnother},
	{"other-size", anyPodEffect, sizeAnother, effectAnother},
	{"back", podsSame | podsBack, sizeSame | sizeBack, effectBack},
}

func judgeEffect(pods podEffect, size sizeEffect) (effect, string) {
	for _, r := range effects {
		if r.pods&pods != 0 && r.size&size != 0 {
			return r.effect, r.name
		}
	}
	return effectAnother, "uncovered"
}

func (e Edit) effect(d Desired, o Observed) effect {
	if e.Seen != SeenEdited {
		return effectNone
	}
	found, _ := judgeEffect(e.podEffect(o), e.sizeEffect(d, o))
	return found
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
// stops a growth, as long as nobody goes who has joined.
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
