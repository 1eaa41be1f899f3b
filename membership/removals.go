package membership

// RemovalFacts is all that DecideRemoval may look at, for one member of the list.
type RemovalFacts struct {
	// Self: the member is the one that decides.
	Self Answer
	// Firm: the cluster record was read just now, says Formed, and lists the member that decides.
	Firm Answer
	// Desired: the record lists the member by name or, unstarted, by peer URL.
	Desired Answer
	Kind    Kind
	// Adopted: the raft group was there before the cluster, and was joined: who is not desired may be one of its own.
	Adopted Answer
	// Released: of such a group, the user let the others go, and every desired member is a healthy voter.
	Released Answer
	// Coming: the Pod that would start the member exists or will.
	Coming Answer
	// Quorum: the voters that are left hold a healthy quorum (QuorumWithout).
	Quorum Answer
	// Elapsed: this leader saw the member superfluous for the whole grace period.
	Elapsed Answer
	// Turn: no other member was removed within the last grace period, and none is on its way out.
	Turn Answer
}

// RemovalVerdict is what becomes of a member.
type RemovalVerdict string

// The verdicts. Wait means that the member is superfluous and that its time has not come.
const (
	Keep         RemovalVerdict = "Keep"
	WaitRemove   RemovalVerdict = "Wait"
	RemoveMember RemovalVerdict = "Remove"
)

// RemovalDecision names the rule too.
type RemovalDecision struct {
	Verdict RemovalVerdict
	Rule    string
}

type removalRule struct {
	name                          string
	self, firm, desired           Answer
	kind                          Kind
	adopted, released             Answer
	coming, quorum, elapsed, turn Answer
	verdict                       RemovalVerdict
	why                           string
}

// removals is the whole policy on superfluous members. First match wins; what no rule covers is kept.
var removals = []removalRule{
	{"self", Yes | Unknown, anyAnswer, anyAnswer, anyKind, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, Keep,
		"nobody removes itself: a retired leader moves leadership first"},
	{"record-not-firm", anyAnswer, No | Unknown, anyAnswer, anyKind, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, Keep,
		"only a Formed record that was read just now and lists the decider says who is desired"},
	{"desired-unknown", anyAnswer, anyAnswer, Unknown, anyKind, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, Keep,
		"what is not known removes nobody"},
	{"desired", anyAnswer, anyAnswer, Yes, VoterUnstarted | VoterStarted | LearnerStarted, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, Keep,
		"a desired member is never removed for being away"},
	{"desired-coming", anyAnswer, anyAnswer, Yes, LearnerUnstarted, anyAnswer, anyAnswer, Yes | Unknown, anyAnswer, anyAnswer, anyAnswer, Keep,
		"its Pod will start it or replace it"},
	{"here-before", anyAnswer, anyAnswer, No, anyKind, Yes | Unknown, No | Unknown, anyAnswer, anyAnswer, anyAnswer, anyAnswer, Keep,
		"the group was joined: whoever was in it stays until the user lets it go and all that replace it are healthy voters"},
	{"grace", anyAnswer, anyAnswer, anyAnswer, anyKind, anyAnswer, anyAnswer, anyAnswer, anyAnswer, No | Unknown, anyAnswer, WaitRemove,
		"a member that is just being added looks the same"},
	{"one-at-a-time", anyAnswer, anyAnswer, anyAnswer, anyKind, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, No | Unknown, WaitRemove,
		"a mistake costs one member per grace period; and never beside a drain"},
	{"quorum", anyAnswer, anyAnswer, anyAnswer, anyKind, anyAnswer, anyAnswer, anyAnswer, No | Unknown, anyAnswer, anyAnswer, WaitRemove,
		"never below a healthy quorum"},
	{"orphan-learner", anyAnswer, anyAnswer, Yes, LearnerUnstarted, anyAnswer, anyAnswer, No, anyAnswer, anyAnswer, anyAnswer, RemoveMember,
		"a learner that never started and never will takes the place of others"},
	{"stray-learner", anyAnswer, anyAnswer, No, LearnerUnstarted | LearnerStarted, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, RemoveMember,
		"added behind our back"},
	{"stray-voter", anyAnswer, anyAnswer, No, VoterUnstarted | VoterStarted, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, anyAnswer, RemoveMember,
		"added behind our back, or left over"},
}

func (r removalRule) matches(f RemovalFacts) bool {
	return r.self&f.Self != 0 && r.firm&f.Firm != 0 && r.desired&f.Desired != 0 && r.kind&f.Kind != 0 &&
		r.adopted&f.Adopted != 0 && r.released&f.Released != 0 &&
		r.coming&f.Coming != 0 && r.quorum&f.Quorum != 0 && r.elapsed&f.Elapsed != 0 && r.turn&f.Turn != 0
}

// DecideRemoval says what becomes of one member of the list.
func DecideRemoval(f RemovalFacts) RemovalDecision {
	for _, r := range removals {
		if r.matches(f) {
			return RemovalDecision{r.verdict, r.name}
		}
	}
	return RemovalDecision{Keep, "uncovered"}
}
