package bootstrap

import "github.com/etcd-druid/druid/internal/rules"

// One-bit enums of a bootstrap by joining.
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
	SourceSilent Source = 1 << iota // no one of it answered a linearizable list, or someone could not be asked
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

func (s Source) String() string  { return rules.Word(s, "silent", "another", "unfit", "ailing", "fit") }
func (c Claimed) String() string { return rules.Word(c, "no", "yes") }
func (e Entry) String() string {
	return rules.Word(e, "nobody", "a learner added in this start", "a learner of an earlier start", "a voter")
}
func (s adoptionStep) String() string {
	return [...]string{"", "claim", "remove that learner", "be added, start"}[s]
}

// AdoptionFacts is all that DecideAdoption may look at.
type AdoptionFacts struct {
	Source  Source  `fact:"that cluster"`
	Claimed Claimed `fact:"claimed in the record"`
	Entry   Entry   `fact:"lists us as"`
	// Needs of a member add, as in Facts.
	Needs Needs
}

// adoptionStep is what is done next, each at most one call that cannot be undone.
type adoptionStep uint8

const (
	noStep adoptionStep = iota
	// stepClaim writes into the record which raft group the cluster is going to be part of, and whom it has.
	stepClaim
	// stepDrop removes our old learner.
	stepDrop
	// stepEnter adds us as a learner, unless that was done, and starts etcd.
	stepEnter
)

// adoptionVerdict is a mode, and the step of ModeAdopt.
type adoptionVerdict struct {
	mode Mode         `fact:"decision"`
	step adoptionStep `fact:"step"`
}

// adoptions is the whole policy of a bootstrap by joining. It is asked only where the table of the starts gives a bootstrap to us. First
// match wins; what no rule covers is refused.
var adoptions = rules.New(adoptionVerdict{mode: ModeRefuse}, []rules.Row[AdoptionFacts, adoptionVerdict]{
	{Name: "source-other", When: AdoptionFacts{Source: SourceOther}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the endpoints of spec.bootstrap.join do not answer for one and the same cluster"},
	{Name: "source-silent", When: AdoptionFacts{Source: SourceSilent}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "the cluster that is to be joined cannot be asked"},
	{Name: "source-unfit", When: AdoptionFacts{Source: SourceUnfit}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the cluster that is to be joined cannot be joined as it is"},
	{Name: "listed-as-voter", When: AdoptionFacts{Entry: VoterEntry}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the cluster that is to be joined lists this member as a voter, and its data is gone: remove it there with etcdctl member remove"},
	{Name: "intend-to-join", When: AdoptionFacts{Claimed: Unintended, Source: SourceFit}, Verdict: adoptionVerdict{ModeAdopt, stepClaim},
		Why: "the record names the raft group before anything of it is changed, so that no one forms or joins another one"},
	{Name: "finish-adoption", When: AdoptionFacts{Claimed: Intended, Entry: NewLearner}, Verdict: adoptionVerdict{ModeAdopt, stepEnter},
		Why: "we added this learner, and no log of it was ever written"},
	{Name: "drop-old-learner", When: AdoptionFacts{Claimed: Intended, Entry: OldLearner}, Verdict: adoptionVerdict{ModeAdopt, stepDrop},
		Why: "a raft ID is never started without its data, and a learner takes no vote along"},
	{Name: "source-ailing", When: AdoptionFacts{Source: SourceAiling}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "the cluster that is to be joined is not healthy"},
	{Name: "adoption-needs", When: AdoptionFacts{Needs: Unmet}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "what a member add will need is not there"},
	{Name: "adopt", When: AdoptionFacts{Claimed: Intended, Source: SourceFit, Entry: NoEntry, Needs: Met}, Verdict: adoptionVerdict{ModeAdopt, stepEnter},
		Why: "a learner takes no part in the quorum of those that are there"},
})

// adoption is what DecideAdoption decided.
type adoption struct {
	Decision
	step adoptionStep
}

// decideAdoption is total, as Decide is.
func decideAdoption(f AdoptionFacts) adoption {
	d := adoptions.Decide(f)
	decision := decisionOf(rules.Decision[Mode]{Verdict: d.Verdict.mode, Rule: d.Rule, Why: d.Why})
	return adoption{Decision: decision, step: d.Verdict.step}
}
