package bootstrap

// One-bit enums of a birth by joining.
type (
	// Source is the running cluster that is to be joined.
	Source uint8
	// Claimed says whether the record has our intent to join it.
	Claimed uint8
	// Entry is what the running cluster's list says of us.
	Entry uint8
)

// Source.
const (
	SourceSilent Source = 1 << iota // nobody of it answered a linearizable list, or somebody could not be asked
	SourceOther                     // the endpoints are of several clusters, or of another one than was begun to be joined
	SourceUnfit                     // it cannot be joined as it is, until a person changes it or the spec
	SourceAiling                    // a member is down, or it has a learner or an alarm of its own
	SourceFit
	anySource = 1<<iota - 1
)

// Claimed.
const (
	Unintended Claimed = 1 << iota // not by this Pod, or without the IDs of its members
	Intended
	anyClaimed = 1<<iota - 1
)

// Entry.
const (
	NoEntry    Entry = 1 << iota
	NewLearner       // the learner that we added in this start, whose etcd wrote no log yet
	OldLearner       // a learner at our peer URL that we did not add in this start
	VoterEntry       // a voter at our peer URL
	anyEntry   = 1<<iota - 1
)

// AdoptionFacts is all that DecideAdoption may look at.
type AdoptionFacts struct {
	Source  Source
	Claimed Claimed
	Entry   Entry
	// Needs of a member add, as in Facts.
	Needs Needs
}

// adoptionStep is what is done next, each at most one call that cannot be undone.
type adoptionStep uint8

const (
	_ adoptionStep = iota
	// stepClaim writes into the record which raft group the cluster is going to be part of, and whom it has.
	stepClaim
	// stepDrop removes our old learner.
	stepDrop
	// stepEnter adds us as a learner, unless that was done, and starts etcd.
	stepEnter
)

type adoptionRule struct {
	name string
	when AdoptionFacts
	mode Mode
	step adoptionStep
	why  string
}

// adoptions is the whole policy of a birth by joining. It is asked only where the table of the starts gives a birth to us. First
// match wins; what no rule covers is refused.
var adoptions = []adoptionRule{
	{"source-other", AdoptionFacts{Source: SourceOther}, ModeRefuse, 0,
		"the endpoints of spec.bootstrap.join do not answer for one and the same cluster"},
	{"source-silent", AdoptionFacts{Source: SourceSilent}, ModeWait, 0,
		"the cluster that is to be joined cannot be asked"},
	{"source-unfit", AdoptionFacts{Source: SourceUnfit}, ModeRefuse, 0,
		"the cluster that is to be joined cannot be joined as it is"},
	{"listed-as-voter", AdoptionFacts{Entry: VoterEntry}, ModeRefuse, 0,
		"the cluster that is to be joined lists this member as a voter, and its data is gone: remove it there with etcdctl member remove"},
	{"intend-to-join", AdoptionFacts{Claimed: Unintended, Source: SourceFit}, ModeAdopt, stepClaim,
		"the record names the raft group before anything of it is changed, so that nobody forms or joins another one"},
	{"finish-adoption", AdoptionFacts{Claimed: Intended, Entry: NewLearner}, ModeAdopt, stepEnter,
		"we added this learner, and no log of it was ever written"},
	{"drop-old-learner", AdoptionFacts{Claimed: Intended, Entry: OldLearner}, ModeAdopt, stepDrop,
		"a raft ID is never started without its data, and a learner takes no vote along"},
	{"source-ailing", AdoptionFacts{Source: SourceAiling}, ModeWait, 0,
		"the cluster that is to be joined is not healthy"},
	{"adoption-needs", AdoptionFacts{Needs: Unmet}, ModeWait, 0,
		"what a member add will need is not there"},
	{"adopt", AdoptionFacts{Claimed: Intended, Source: SourceFit, Entry: NoEntry, Needs: Met}, ModeAdopt, stepEnter,
		"a learner takes no part in the quorum of those that are there"},
}

// adoption is what DecideAdoption decided.
type adoption struct {
	Decision
	step adoptionStep
}

// decideAdoption is total, as Decide is.
func decideAdoption(f AdoptionFacts) adoption {
	for i := range adoptions {
		r := &adoptions[i]
		if !in(r.when.Source, f.Source) || !in(r.when.Claimed, f.Claimed) || !in(r.when.Entry, f.Entry) || !in(r.when.Needs, f.Needs) {
			continue
		}
		a := adoption{Decision: Decision{Mode: r.mode, Rule: r.name}, step: r.step}
		if r.mode != ModeAdopt {
			a.Reason = r.why
		}
		return a
	}
	return adoption{Decision: Decision{Mode: ModeRefuse, Rule: "uncovered", Reason: "no rule covers what was observed"}}
}
