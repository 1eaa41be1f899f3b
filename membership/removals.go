package membership

import "github.com/etcd-druid/druid/internal/rules"

// RemovalFacts is all that DecideRemoval may look at, for one member of the list.
type RemovalFacts struct {
	// Self: the member is the one that decides.
	Self rules.Answer
	// Firm: the cluster record was read just now, says Formed, and lists the member that decides.
	Firm rules.Answer `fact:"firm record"`
	// Desired: the record lists the member by name or, unstarted, by peer URL.
	Desired rules.Answer
	Kind    Kind
	// Adopted: the raft group was there before the cluster, and was joined: who is not desired may be one of its own.
	Adopted rules.Answer `fact:"group was joined"`
	// Released: of such a group, the user let the others go, and every desired member is a healthy voter.
	Released rules.Answer `fact:"others may go"`
	// Coming: the Pod that would start the member exists or will.
	Coming rules.Answer `fact:"Pod coming"`
	// Elapsed: this leader saw the member superfluous for the whole grace period.
	Elapsed rules.Answer `fact:"grace elapsed"`
	// Turn: no other member was removed within the last grace period, and none is on its way out.
	Turn rules.Answer `fact:"its turn"`
	// Quorum: the voters that are left hold a healthy quorum (QuorumWithout).
	Quorum rules.Answer `fact:"quorum without it"`
}

// RemovalVerdict is what becomes of a member.
type RemovalVerdict string

// The verdicts. Wait means that the member is superfluous and that its time has not come.
const (
	Keep         RemovalVerdict = "Keep"
	WaitRemove   RemovalVerdict = "Wait"
	RemoveMember RemovalVerdict = "Remove"
)

// removals is the whole policy on superfluous members. First match wins; what no rule covers is kept.
var removals = rules.New(Keep, []rules.Row[RemovalFacts, RemovalVerdict]{
	{Name: "self", When: RemovalFacts{Self: rules.Yes | rules.Unknown}, Verdict: Keep,
		Why: "no one removes itself: a retired leader moves leadership first"},
	{Name: "record-not-firm", When: RemovalFacts{Firm: rules.No | rules.Unknown}, Verdict: Keep,
		Why: "only a Formed record that was read just now and lists the decider says who is desired"},
	{Name: "desired-unknown", When: RemovalFacts{Desired: rules.Unknown}, Verdict: Keep,
		Why: "what is not known removes no one"},
	{Name: "desired", When: RemovalFacts{Desired: rules.Yes, Kind: VoterUnstarted | VoterStarted | LearnerStarted}, Verdict: Keep,
		Why: "a desired member is never removed for being away"},
	{Name: "desired-coming", When: RemovalFacts{Desired: rules.Yes, Kind: LearnerUnstarted, Coming: rules.Yes | rules.Unknown}, Verdict: Keep,
		Why: "its Pod will start it or replace it"},
	{Name: "here-before", When: RemovalFacts{Desired: rules.No, Adopted: rules.Yes | rules.Unknown, Released: rules.No | rules.Unknown}, Verdict: Keep,
		Why: "the group was joined: anyone who was in it stays until the user lets it go and all that replace it are healthy voters"},
	{Name: "grace", When: RemovalFacts{Elapsed: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "a member that is just being added looks the same"},
	{Name: "one-at-a-time", When: RemovalFacts{Turn: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "a mistake costs one member per grace period; and never next to a drain"},
	{Name: "quorum", When: RemovalFacts{Quorum: rules.No | rules.Unknown}, Verdict: WaitRemove,
		Why: "never below a healthy quorum"},
	{Name: "orphan-learner", When: RemovalFacts{Desired: rules.Yes, Kind: LearnerUnstarted, Coming: rules.No}, Verdict: RemoveMember,
		Why: "a learner that never started and never will takes the place of others"},
	{Name: "stray-learner", When: RemovalFacts{Desired: rules.No, Kind: LearnerUnstarted | LearnerStarted}, Verdict: RemoveMember,
		Why: "added behind our back"},
	{Name: "stray-voter", When: RemovalFacts{Desired: rules.No, Kind: VoterUnstarted | VoterStarted}, Verdict: RemoveMember,
		Why: "added behind our back, or left over"},
})

// DecideRemoval says what becomes of one member of the list.
func DecideRemoval(f RemovalFacts) rules.Decision[RemovalVerdict] { return removals.Decide(f) }
