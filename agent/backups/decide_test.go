package backups

import (
	"fmt"
	"iter"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/golden"
)

func eachFacts() iter.Seq[Facts] {
	return func(yield func(Facts) bool) {
		var f Facts
		for f.Chain = range golden.Bits(anyChain) {
			for f.Recorder = range golden.Bits(anyRecorder) {
				for f.Full = range golden.Bits(anyFull) {
					for f.Asked = range golden.Bits(anyAnswer) {
						for f.Due = range golden.Bits(anyAnswer) {
							for f.Doubted = range golden.Bits(anyAnswer) {
								if !yield(f) {
									return
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestDecisionsKeepTheChainWholeForAllFacts(t *testing.T) {
	fired := map[string]int{}
	for f := range eachFacts() {
		d := Decide(f)
		fired[d.Rule]++
		unsaved := f.Chain == ChainEmpty || f.Chain == ChainBroken || f.Chain == ChainBehind
		switch {
		case d.Rule == "uncovered":
			t.Errorf("%+v: no rule covers it", f)
		case d.Verdict != Wait && f.Chain&(ChainUnknown|ChainAhead) != 0:
			t.Errorf("%+v: something is saved on top of what is not known or not ours: %+v", f, d)
		case d.Verdict == RecordOn && f.Chain != ChainWhole:
			t.Errorf("%+v: goes on after a hole: %+v", f, d)
		case d.Verdict == RecordAnew && f.Chain == ChainWhole:
			t.Errorf("%+v: makes a hole in a chain that has none: %+v", f, d)
		case (d.Verdict == RecordOn || d.Verdict == RecordAnew) && f.Recorder != RecorderOff:
			t.Errorf("%+v: two recorders, or one before its pause is over: %+v", f, d)
		case d.Verdict == TakeFull && f.Full == FullRunning:
			t.Errorf("%+v: two fulls at once: %+v", f, d)
		case d.Verdict == TakeFull && f.Full == FullResting && f.Asked == rules.No:
			t.Errorf("%+v: a full without a pause after the one that failed: %+v", f, d)
		case d.Verdict == Wait && f.Recorder == RecorderOff && (unsaved || f.Chain == ChainWhole):
			t.Errorf("%+v: writes are not saved and nobody cares: %+v", f, d)
		case d.Verdict == Wait && f.Full == FullIdle && (unsaved || f.Chain == ChainWhole && (f.Due == rules.Yes || f.Asked == rules.Yes || f.Doubted == rules.Yes)):
			t.Errorf("%+v: a full is needed and nobody takes it: %+v", f, d)
		}
	}
	var rows [][]string
	for _, r := range backupRules {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		rows = append(rows, []string{
			r.name, golden.Cell(r.chain, anyChain), golden.Cell(r.recorder, anyRecorder), golden.Cell(r.full, anyFull), golden.Cell(r.asked, anyAnswer),
			golden.Cell(r.due, anyAnswer), golden.Cell(r.doubted, anyAnswer), "**" + string(r.verdict) + "**", r.why, fmt.Sprint(fired[r.name]),
		})
	}
	golden.Section(t, "../../docs/decisions.md", "backups", "## What is backed up now: agent/backups.rules\n\n"+
		"Asked by the agent beside the raft leader, again after each thing that it started. `chain`: what the store holds of this lineage, against what etcd still holds.\n\n"+
		golden.Table([]string{"rule", "chain", "recorder", "full", "asked for", "due", "found broken", "verdict", "why", "cases"}, rows))
}
