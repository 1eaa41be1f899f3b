package plan

import "github.com/etcd-druid/druid/internal/rules"

type (
	// Expansion says whether the StorageClass of a claim lets its volume grow.
	Expansion uint8
	// Room is how a member's volume stands to the size that the spec asks for.
	Room uint8
)

// What a StorageClass says of larger volumes.
const (
	ExpansionUnknown Expansion = 1 << iota // nobody looked: nothing is to grow
	ExpansionAllowed
	ExpansionRefused // it does not allow it, does not exist, or the claim names none

	anyExpansion = ExpansionUnknown | ExpansionAllowed | ExpansionRefused
)

// The rooms.
const (
	RoomUnknown Room = 1 << iota // nobody looked, or the claim does not tell
	RoomEnough                   // the volume is as large as the spec asks for
	RoomGrows                    // it is smaller, and grows
	RoomMounts                   // it grows when it is mounted anew, which takes another Pod
	RoomStays                    // it is smaller, and nothing makes it grow until a person acts

	anyRoom = RoomUnknown | RoomEnough | RoomGrows | RoomMounts | RoomStays
)

// growRows decide about the size that a claim requests. What a claim once requested cannot be taken back, so that it is
// never more than the spec says.
var growRows = []struct {
	name    string
	claim   ClaimState
	leaves  rules.YesNo
	asks    rules.YesNo
	bound   rules.YesNo
	expands Expansion
	verdict verdict
	why     string
}{
	{"claim-not-there", anyClaim &^ ClaimPresent, anyAnswer, anyAnswer, anyAnswer, anyExpansion, keep,
		"it is not the cluster's, or goes; one that comes requests what the spec says"},
	{"claim-large-enough", ClaimPresent, anyAnswer, rules.Yes, anyAnswer, anyExpansion, keep,
		"it requests what the spec says, or more"},
	{"claim-leaves", ClaimPresent, rules.Yes, rules.No, anyAnswer, anyExpansion, keep,
		"its member is on its way out"},
	{"claim-unbound", ClaimPresent, rules.No, rules.No, rules.No, anyExpansion, wait,
		"the API server changes the request of a claim only when it has its volume"},
	{"claim-class-refuses", ClaimPresent, rules.No, rules.No, rules.Yes, ExpansionRefused, held,
		"the API server would refuse it"},
	{"claim-class-unknown", ClaimPresent, rules.No, rules.No, rules.Yes, ExpansionUnknown, wait,
		"what is not known changes nothing"},
	{"claim-small", ClaimPresent, rules.No, rules.No, rules.Yes, ExpansionAllowed, create,
		"the volume grows while etcd runs on it"},
}

// growFacts is all that the policy may look at.
type growFacts struct {
	claim   ClaimState
	leaves  rules.YesNo
	asks    rules.YesNo // the claim requests what the spec says, or more
	bound   rules.YesNo
	expands Expansion
}

func judgeGrowth(f growFacts) (verdict, string) {
	for _, r := range growRows {
		if r.claim&f.claim != 0 && r.leaves&f.leaves != 0 && r.asks&f.asks != 0 && r.bound&f.bound != 0 && r.expands&f.expands != 0 {
			return r.verdict, r.name
		}
	}
	return wait, "uncovered"
}

// growStep requests a larger volume. It is the last of a pass: one that is refused, as by a quota of the namespace, keeps
// nothing else of the member from being done.
func growStep(m Member, leaves bool, add func(Step)) {
	f := growFacts{claim: m.Claim, leaves: rules.YesNoOf(leaves), asks: rules.YesNoOf(!m.ClaimSmall), bound: rules.YesNoOf(m.ClaimBound), expands: m.Expands}
	if f.expands == 0 {
		f.expands = ExpansionUnknown
	}
	if verdict, rule := judgeGrowth(f); verdict == create {
		add(Step{Kind: GrowClaim, Rule: rule, Stage: StageGrow, Member: m.Name, ClaimUID: m.ClaimUID})
	}
}
