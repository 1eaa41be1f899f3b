package membership

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestVerdictsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, verdicts, "verdicts", "Result of a comparison: membership.verdicts",
		"Asked by the leader's agent, and by the agent of a marked member, with the hashes of all voters.", func(f VerdictFacts, d rules.Decision[Verdict]) string {
			switch {
			case d.Verdict == VerdictDiffering && f.Majority != rules.Yes:
				return "no majority of all voters says which data is good"
			case d.Verdict == VerdictSame && (f.Differs != rules.No || f.Whole != rules.Yes):
				return "voters that differ or did not answer are called the same"
			case f.Differs == rules.Yes && d.Verdict != VerdictDiffering && d.Verdict != VerdictTie:
				return "a difference is not reported"
			}
			return ""
		})
}

func TestComparisonsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, comparisons, "comparisons", "Action after a comparison: membership.comparisons",
		"Asked by the leader's agent after each comparison.", func(f ComparisonFacts, d rules.Decision[ComparisonVerdict]) string {
			acts := d.Verdict != ComparisonKeep && d.Verdict != ComparisonWait
			switch {
			case acts && f.Authoritative != rules.Yes:
				return "changes what might belong to another raft group"
			case acts && f.Found == FoundUnknown:
				return "acts on what is not known"
			case d.Verdict == ComparisonMark && (f.Found != FoundDiffering || f.Ours != rules.Yes || f.Marked != rules.No || f.Quiet != rules.Yes):
				return "marks without a majority, another member, or a second one"
			case d.Verdict == ComparisonDisarm && (f.Found != FoundSame || f.Undecided == rules.Yes || f.Marked != rules.No):
				return "disarms CORRUPT while data might differ"
			case f.Found == FoundTie && f.Authoritative == rules.Yes && f.Undecided == rules.No && d.Verdict != ComparisonReport:
				return "a tie is not reported"
			case d.Verdict == ComparisonKeep && f.Found != FoundSame:
				return "a difference ends the comparisons"
			}
			return ""
		})
}

// TestDifferingReplacementSafe: differing members are replaced safely for all facts.
func TestDifferingReplacementSafe(t *testing.T) {
	checkTable(t, differingMembers, "differingMembers", "Replacement of a differing member: membership.differingMembers",
		"Asked by the agent of a member whose Lease has the mark.", func(f DifferingFacts, d rules.Decision[DifferingVerdict]) string {
			if d.Verdict != DifferingReplace {
				return ""
			}
			switch {
			case f.Authoritative != rules.Yes:
				return "the mark may be of another group or Pod"
			case f.Own != OwnDiffering:
				return "replaced without its own comparison"
			case f.Slot == SlotOther:
				return "two members at once"
			}
			return ""
		})
}

// TestUncheckedStartResolutionSafe: unchecked starts are resolved safely for all facts.
func TestUncheckedStartResolutionSafe(t *testing.T) {
	checkTable(t, uncheckedStarts, "uncheckedStarts", "Comparison after a start without the initial check of etcd: membership.uncheckedStarts",
		"Asked by the agent of a member whose etcd started without its initial check, or before the agent.",
		func(f UncheckedFacts, d rules.Decision[UncheckedVerdict]) string {
			switch {
			case d.Verdict != UncheckedWait && f.Authoritative != rules.Yes:
				return "the voters may be of another group"
			case d.Verdict != UncheckedWait && f.Own == OwnUndecided:
				return "acts on what is not known"
			case d.Verdict == UncheckedMark && f.Own != OwnDiffering:
				return "marks a member with the data of a majority"
			case d.Verdict == UncheckedDone && (f.Own != OwnAgrees || f.OthersDiffer != rules.No):
				return "the comparisons end while data differs"
			case d.Verdict == UncheckedLead && f.Own != OwnAgrees:
				return "a member leads whose data is not that of a majority"
			}
			return ""
		})
}

// TestAllAnswersOfUpToFiveVoters tries each combination of answers: none, one of three contents, or one at another
// compaction.
func TestAllAnswersOfUpToFiveVoters(t *testing.T) {
	const silent, contents, kinds = 0, 3, 6
	for voters := 1; voters <= 5; voters++ {
		total := 1
		for range voters {
			total *= kinds
		}
		for n := range total {
			var kindsOf []int
			var answers []Content
			for id, rest := 1, n; id <= voters; id, rest = id+1, rest/kinds {
				kind := rest % kinds
				kindsOf = append(kindsOf, kind)
				switch {
				case kind == silent:
				case kind <= contents:
					answers = append(answers, Content{MemberID: uint64(id), Revision: 9, CompactRevision: 2, Hash: uint32(kind)})
				default:
					answers = append(answers, Content{MemberID: uint64(id), Revision: 9, CompactRevision: 3, Hash: uint32(kind)})
				}
			}
			if problem := wrongVerdict(voters, kindsOf, Judge(voters, answers)); problem != "" {
				t.Fatalf("answers %v of %d voters: %s", kindsOf, voters, problem)
			}
		}
	}
}

// wrongVerdict judges by counting alone.
func wrongVerdict(voters int, kinds []int, got Comparison) string {
	count := map[int]int{}
	for _, kind := range kinds {
		count[kind]++
	}
	low, high, most := 0, 0, 0
	for kind, n := range count {
		switch {
		case kind == 0:
			continue
		case kind <= 3:
			low++
		default:
			high++
		}
		if 2*n > voters {
			most = kind
		}
	}
	var differing []uint64
	for i, kind := range kinds {
		if most != 0 && kind != 0 && kind != most && (kind <= 3) == (most <= 3) {
			differing = append(differing, uint64(i+1))
		}
	}
	want := VerdictUnknown
	switch {
	case len(differing) > 0:
		want = VerdictDiffering
	case most == 0 && (low > 1 || high > 1):
		want = VerdictTie
	case count[most] == voters && most != 0:
		want = VerdictSame
	}
	var named []uint64
	for _, c := range got.Differing {
		named = append(named, c.MemberID)
	}
	var agreeing []uint64
	for i, kind := range kinds {
		if most != 0 && kind == most {
			agreeing = append(agreeing, uint64(i+1))
		}
	}
	if got.Verdict != want || !slices.Equal(named, differing) || !slices.Equal(got.Agreeing(), agreeing) {
		return fmt.Sprintf("got %s %v, and %v agree; want %s %v, and %v", got.Verdict, named, got.Agreeing(), want, differing, agreeing)
	}
	return ""
}

// TestDifferenceNeedsSecondRevision: a difference is confirmed at a second revision.
func TestDifferenceNeedsSecondRevision(t *testing.T) {
	differing := func(revision int64, ids ...uint64) Comparison {
		c := Comparison{Verdict: VerdictDiffering, Rule: "differing", Revision: revision, Majority: Content{Revision: revision, Hash: 7}}
		for _, id := range ids {
			c.Differing = append(c.Differing, Content{MemberID: id, Revision: revision, Hash: 8})
		}
		return c
	}
	confirmed := differing(9, 1)
	confirmed.Confirmed = 8
	unknown := Comparison{Verdict: VerdictUnknown, Rule: "not-confirmed"}
	same := Comparison{Verdict: VerdictSame, Rule: "same", Revision: 9}
	tie := func(revision, confirmed int64) Comparison {
		return Comparison{Verdict: VerdictTie, Rule: "tie", Revision: revision, Confirmed: confirmed}
	}
	for name, test := range map[string]struct{ first, second, want Comparison }{
		"the same member at two revisions":   {differing(8, 1), differing(9, 1), confirmed},
		"two members, and only one of them":  {differing(8, 1, 2), differing(9, 1), confirmed},
		"another member":                     {differing(8, 1), differing(9, 2), unknown},
		"one revision only":                  {differing(9, 1), differing(9, 1), unknown},
		"a difference that is not repeated":  {differing(8, 1), same, unknown},
		"a difference, and then no majority": {differing(8, 1), tie(9, 0), unknown},
		"no majority at two revisions":       {tie(8, 0), tie(9, 0), tie(9, 8)},
		"no majority at one revision":        {tie(9, 0), tie(9, 0), unknown},
		"no difference":                      {same, same, same},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Confirm(test.first, test.second)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
