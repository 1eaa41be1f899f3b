package backups

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestFullsAreDueByTimeAndBySizeForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, dueRules, func(f DueFacts, d rules.Decision[rules.YesNo]) string {
		if want := rules.YesNoOf(f.Time == rules.Yes || f.Large == rules.Yes && f.Paid == rules.Yes); d.Verdict != want {
			return "want " + want.String()
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "due", "Whether another full is due: agent/backups.dueRules",
		"It is `due` of the table of what is backed up. What follows the newest full is large when it takes half of etcd's quota in a restore that keeps the history: "+
			"4 bytes for each byte of a delta, or 512 for each revision, whichever is more.", dueRules, cases)
}

func TestWhatFollowsAFullIsMeasuredAgainstTheQuota(t *testing.T) {
	now := time.UnixMilli(1)
	full := func(size int64) chain.Full { return chain.Full{Key: "full", Revision: 100, Size: size} }
	for name, test := range map[string]struct {
		full  chain.Full
		tail  tail
		quota int64
		want  rules.YesNo
	}{
		"no full":                              {chain.Full{}, tail{1 << 40, 1 << 40}, 0, rules.No},
		"little":                               {full(10), tail{100, 1 << 20}, 0, rules.No},
		"bytes, of half of etcd's own quota":   {full(10), tail{100, 1 << 28}, 0, rules.Yes},
		"one byte less":                        {full(10), tail{100, 1<<28 - 1}, 0, rules.No},
		"bytes, of half of a small quota":      {full(10), tail{100, 1 << 21}, 16 << 20, rules.Yes},
		"revisions":                            {full(10), tail{1 << 21, 10}, 0, rules.Yes},
		"revisions, and the full is larger":    {full(11), tail{1 << 21, 10}, 0, rules.No},
		"a day of 25 writes of 1 KiB a second": {full(100 << 20), tail{25 * 86400, 25 * 86400 * 300}, 0, rules.Yes},
	} {
		t.Run(name, func(t *testing.T) {
			if d := DecideDue(dueFacts(time.Time{}, now, test.full, test.tail, test.quota)); d.Verdict != test.want {
				t.Errorf("it is due: %s, by %s, want %s", d.Verdict, d.Rule, test.want)
			}
		})
	}
	h := chain.History{
		Fulls:  []chain.Full{{Revision: 10}, {Revision: 20}},
		Deltas: []chain.Delta{{From: 11, To: 20, Size: 1}, {From: 15, To: 25, Size: 2}, {From: 26, To: 31, Size: 4}},
	}
	if got, want := tailOf(h), (tail{11, 6}); got != want {
		t.Errorf("behind the newest full are %+v, want %+v", got, want)
	}
}
