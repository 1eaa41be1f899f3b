package backups

import "github.com/etcd-druid/druid/internal/rules"

// Verdict is what is to be done.
type Verdict string

// The verdicts. RecordOn goes on after what was saved last, RecordAnew begins after etcd's present revision.
const (
	Wait        Verdict = "Wait"
	RecordOn    Verdict = "RecordOn"
	RecordAgain Verdict = "RecordAnew"
	TakeFull    Verdict = "TakeFull"
)

// Decision names the rule too.
type Decision = rules.Decision[Verdict]

// unsound are the chains that only a full makes whole.
const unsound = ChainEmpty | ChainBroken | ChainBehind

// ruleDisproved takes a full for one that was found to be broken.
const ruleDisproved = "disproved"

// backupRules are the whole policy on when something is saved. First match wins; what no rule covers is waited for.
var backupRules = rules.New(Wait, []rules.Row[Facts, Verdict]{
	{Name: "not-read", When: Facts{Chain: ChainUnknown}, Verdict: Wait,
		Why: "the store or etcd did not answer; both are asked again"},
	{Name: "ahead", When: Facts{Chain: ChainAhead}, Verdict: Wait,
		Why: "the store holds revisions that etcd never had: two histories must not be mixed, and a person has to look"},
	{Name: "go-on", When: Facts{Chain: ChainWhole, Recorder: RecorderOff}, Verdict: RecordOn,
		Why: "the chain has no gap"},
	{Name: "begin", When: Facts{Chain: unsound, Recorder: RecorderOff}, Verdict: RecordAgain,
		Why: "a full may take longer than etcd keeps revisions: what is written meanwhile is saved next to it"},
	{Name: "full-running", When: Facts{Full: FullRunning}, Verdict: Wait,
		Why: "one full at a time"},
	{Name: "asked", When: Facts{Asked: rules.Yes}, Verdict: TakeFull,
		Why: "someone waits for it"},
	{Name: "full-failed", When: Facts{Chain: unsound | ChainWhole, Full: FullResting, Asked: rules.No}, Verdict: Wait,
		Why: "a full that failed is tried again after a pause"},
	{Name: "first", When: Facts{Chain: ChainEmpty, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "deltas lead nowhere without a full"},
	{Name: "broken", When: Facts{Chain: ChainBroken, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "only a new full closes the hole"},
	{Name: "behind", When: Facts{Chain: ChainBehind, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "to read what follows by a watch would hold up writes; a full reads it once"},
	{Name: ruleDisproved, When: Facts{Chain: ChainWhole, Full: FullIdle, Asked: rules.No, Doubted: rules.Yes}, Verdict: TakeFull,
		Why: "what is saved leads to no state that the cluster had"},
	{Name: "due", When: Facts{Chain: ChainWhole, Full: FullIdle, Asked: rules.No, Due: rules.Yes}, Verdict: TakeFull,
		Why: "by its schedule, for its age, or for the size of what follows it: table due"},
	{Name: "saved", When: Facts{Chain: ChainWhole, Full: FullIdle, Asked: rules.No, Due: rules.No, Doubted: rules.No}, Verdict: Wait,
		Why: "nothing is due but what the recorder does"},
})

// Decide says what to do next. What it orders is started, not awaited, and then it is asked again.
func Decide(f Facts) Decision { return backupRules.Decide(f) }
