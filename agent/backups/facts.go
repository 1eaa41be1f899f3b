package backups

import "github.com/etcd-druid/druid/internal/rules"

// One-bit enums, so that a rule's cell may hold several values.
type (
	// Chain is how what the store holds goes together with what etcd holds.
	Chain uint8
	// Recorder is what the recorder of deltas does.
	Recorder uint8
	// Full is what becomes of fulls.
	Full uint8
)

// The chains. ChainUnknown: the store or etcd was not asked yet, or did not answer.
const (
	ChainUnknown Chain = 1 << iota
	// ChainEmpty: no full of this lineage.
	ChainEmpty
	// ChainWhole: etcd still holds all that follows what was saved last.
	ChainWhole
	// ChainBroken: revisions that were not saved are compacted, or the watch left some out.
	ChainBroken
	// ChainBehind: etcd still holds all that follows, and so much that a watch of it would hold up writes.
	ChainBehind
	// ChainAhead: the store holds revisions that etcd never had. This history is not the one that was saved.
	ChainAhead
)

// The recorder. Resting: it failed, and its pause is not over.
const (
	RecorderOff Recorder = 1 << iota
	RecorderOn
	RecorderResting
)

// The fulls. Resting: the last try failed, and its pause is not over.
const (
	FullIdle Full = 1 << iota
	FullRunning
	FullResting
)

var (
	chainNames = map[Chain]string{
		ChainUnknown: "unknown", ChainEmpty: "empty", ChainWhole: "whole", ChainBroken: "broken", ChainBehind: "far behind", ChainAhead: "ahead of etcd",
	}
	recorderNames = map[Recorder]string{RecorderOff: "off", RecorderOn: "on", RecorderResting: "resting"}
	fullNames     = map[Full]string{FullIdle: "idle", FullRunning: "running", FullResting: "resting"}
)

func (c Chain) String() string    { return chainNames[c] }
func (r Recorder) String() string { return recorderNames[r] }
func (f Full) String() string     { return fullNames[f] }

// Facts are all that Decide may look at.
type Facts struct {
	Chain    Chain
	Recorder Recorder
	Full     Full
	// Asked: someone wants a full now.
	Asked rules.YesNo `fact:"asked for"`
	// Due: by schedule, by age, or by the size of what follows it, the newest full is to be followed by another.
	Due rules.YesNo
	// Doubted: the backups that begin with the newest full were restored, and found to be broken, and another full is to be taken now by
	// the table of replacements.
	Doubted rules.YesNo `fact:"found broken"`
}
