package backups

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestDecisionsKeepTheChainWholeForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, backupRules, func(f Facts, d rules.Decision[Verdict]) string {
		unsaved := f.Chain == ChainEmpty || f.Chain == ChainBroken || f.Chain == ChainBehind
		switch {
		case d.Verdict != Wait && f.Chain&(ChainUnknown|ChainAhead) != 0:
			return "something is saved on top of what is not known or not ours"
		case d.Verdict == RecordOn && f.Chain != ChainWhole:
			return "goes on after a hole"
		case d.Verdict == RecordAgain && f.Chain == ChainWhole:
			return "makes a hole in a chain that has none"
		case (d.Verdict == RecordOn || d.Verdict == RecordAgain) && f.Recorder != RecorderOff:
			return "two recorders, or one before its pause is over"
		case d.Verdict == TakeFull && f.Full == FullRunning:
			return "two fulls at once"
		case d.Verdict == TakeFull && f.Full == FullResting && f.Asked == rules.No:
			return "a full without a pause after the one that failed"
		case d.Verdict == Wait && f.Recorder == RecorderOff && (unsaved || f.Chain == ChainWhole):
			return "writes are not saved and no one cares"
		case d.Verdict == Wait && f.Full == FullIdle && (unsaved || f.Chain == ChainWhole && (f.Due == rules.Yes || f.Asked == rules.Yes || f.Doubted == rules.Yes)):
			return "a full is needed and no one takes it"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "backups", "What is backed up now: agent/backups.backupRules",
		"Asked by the agent next to the raft leader, again after each thing that it started. `chain`: what the store holds of this lineage, against what etcd still holds.", backupRules, cases)
}
