package backups

import "github.com/etcd-druid/druid/internal/rules"

// Verdict is what is to be done.
type Verdict string

// The verdicts. RecordOn goes on after what was saved last, RecordAnew begins after etcd's present revision.
const (
	Wait       Verdict = "Wait"
	RecordOn   Verdict = "RecordOn"
	RecordAnew Verdict = "RecordAnew"
	TakeFull   Verdict = "TakeFull"
)

// Decision names the rule too.
type Decision struct {
	Verdict Verdict
	Rule    string
}

type rule struct {
	name       string
	chain      Chain
	recorder   Recorder
	full       Full
	asked, due rules.YesNo
	doubted    rules.YesNo
	verdict    Verdict
	why        string
}

// unsound are the chains that only a full makes whole.
const unsound = ChainEmpty | ChainBroken | ChainBehind

// ruleDisproved takes a full for one that was found to be broken.
const ruleDisproved = "disproved"

// backupRules are the whole policy on when something is saved. First match wins; what no rule covers is waited for.
var backupRules = []rule{
	{"not-read", ChainUnknown, anyRecorder, anyFull, anyAnswer, anyAnswer, anyAnswer, Wait,
		"the store or etcd did not answer; both are asked again"},
	{"ahead", ChainAhead, anyRecorder, anyFull, anyAnswer, anyAnswer, anyAnswer, Wait,
		"the store holds revisions that etcd never had: two histories must not be mixed, and a person has to look"},
	{"go-on", ChainWhole, RecorderOff, anyFull, anyAnswer, anyAnswer, anyAnswer, RecordOn,
		"the chain has no gap"},
	{"begin", unsound, RecorderOff, anyFull, anyAnswer, anyAnswer, anyAnswer, RecordAnew,
		"a full may take longer than etcd keeps revisions: what is written meanwhile is saved beside it"},
	{"full-running", anyChain, anyRecorder, FullRunning, anyAnswer, anyAnswer, anyAnswer, Wait,
		"one full at a time"},
	{"asked", anyChain, anyRecorder, anyFull, rules.Yes, anyAnswer, anyAnswer, TakeFull,
		"somebody waits for it"},
	{"full-failed", unsound | ChainWhole, anyRecorder, FullResting, rules.No, anyAnswer, anyAnswer, Wait,
		"a full that failed is tried again after a pause"},
	{"first", ChainEmpty, anyRecorder, FullIdle, rules.No, anyAnswer, anyAnswer, TakeFull,
		"deltas lead nowhere without a full"},
	{"broken", ChainBroken, anyRecorder, FullIdle, rules.No, anyAnswer, anyAnswer, TakeFull,
		"only a new full closes the hole"},
	{"behind", ChainBehind, anyRecorder, FullIdle, rules.No, anyAnswer, anyAnswer, TakeFull,
		"to read what follows by a watch would hold up writes; a full reads it once"},
	{ruleDisproved, ChainWhole, anyRecorder, FullIdle, rules.No, anyAnswer, rules.Yes, TakeFull,
		"what is saved leads to no state that the cluster had"},
	{"due", ChainWhole, anyRecorder, FullIdle, rules.No, rules.Yes, anyAnswer, TakeFull,
		"by its schedule, for its age, or for the size of what follows it: table due"},
	{"saved", ChainWhole, anyRecorder, FullIdle, rules.No, rules.No, rules.No, Wait,
		"nothing is due but what the recorder does"},
}

func (r rule) matches(f Facts) bool {
	return r.chain&f.Chain != 0 && r.recorder&f.Recorder != 0 && r.full&f.Full != 0 && r.asked&f.Asked != 0 && r.due&f.Due != 0 &&
		r.doubted&f.Doubted != 0
}

// Decide says what to do next. What it orders is started, not awaited, and then it is asked again.
func Decide(f Facts) Decision {
	for _, r := range backupRules {
		if r.matches(f) {
			return Decision{r.verdict, r.name}
		}
	}
	return Decision{Wait, "uncovered"}
}
