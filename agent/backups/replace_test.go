package backups

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestABrokenFullIsReplacedAtARestForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, replaceRules, func(f ReplaceFacts, d rules.Decision[Replacement]) string {
		got := d.Verdict
		switch {
		case (got == NoReplacement) != (f.Broken == rules.No):
			return "replaces what is not broken, or leaves what is"
		case got == ReplaceNow && f.Repeated == rules.Yes && f.Rested == rules.No:
			return "a full without a pause"
		case got == HandOn && (f.Repeated == rules.No || f.Few == rules.No):
			return "leadership moves too early, or again"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "replace", "What follows a full that was found to be broken: agent/backups.replaceRules",
		"It is `found broken` of the table of what is backed up. The pause is 10 minutes after the second full of a leader, and doubles up to 6 hours.", replaceRules, cases)
}

func TestFullBackupsAreCountedSinceTheLastVerifiedOne(t *testing.T) {
	r := replacing{fulls: keysOf([]chain.Full{{Key: "a"}, {Key: "b"}, {Key: "c"}})}
	for verified, want := range map[string]int{"": 3, "a": 2, "c": 0, "gone": 3} {
		if got := r.unverified(verified); got != want {
			t.Errorf("%d full backups since %q, want %d", got, verified, want)
		}
	}
}

// The verdict about the first full backup can come after the second one was taken.
func TestLeadershipMovesAfterTwoBrokenFullBackupsThatFollowAVerifiedOne(t *testing.T) {
	s := &session{
		inform:    &reporter{verified: leases.Verification{Verdict: leases.VerdictBroken, Full: "c", ProvenFull: "a"}},
		newest:    chain.Full{Key: "c"},
		replacing: replacing{fulls: []string{"a", "b", "c"}, taken: attempts{failures: 1}},
	}
	if got := s.replacement(time.Now()); got != HandOn {
		t.Errorf("got %s, want %s", got, HandOn)
	}
}
