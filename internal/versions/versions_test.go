package versions

import (
	"fmt"
	"testing"

	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/rulestest"
)

// releases has every release and every step that the rules can distinguish, and a few more.
var releases = []string{
	"3.5.0", "3.5.25", "3.5.26", "3.5.30", "3.5.31", "3.5.32", "3.5.33", "3.5.35",
	"3.6.0", "3.6.10", "3.6.11", "3.6.12", "3.6.13", "3.6.14", "3.6.16", "3.7.0", "3.7.1", "3.7.3",
}

func parsed(t *testing.T, s string) Version {
	t.Helper()
	v, ok := Parse(s)
	if !ok || v.String() != s {
		t.Fatalf("%s was read as %s, %t", s, v, ok)
	}
	return v
}

func TestNoStepIsAllowedThatEtcdCannotTake(t *testing.T) {
	count := map[string]int{}
	for _, a := range releases {
		from := parsed(t, a)
		release := JudgeRelease(from)
		count[release.Rule]++
		floor := map[int]int{5: 31, 6: 12}[from.Minor]
		if (release.Verdict == Refused) != (from.Patch < floor) {
			t.Errorf("%s is %s by %s", from, release.Verdict, release.Rule)
		}
		for _, b := range releases {
			to := parsed(t, b)
			step := JudgeStep(from, to)
			count[step.Rule]++
			minors := to.Minor - from.Minor
			switch {
			case step.Why == "" || step.Source == "":
				t.Errorf("%s to %s: rule %s says neither why nor where that is from", from, to, step.Rule)
			case step.Verdict == Refused && minors == 0:
				t.Errorf("%s to %s is refused by %s: a patch can be taken and given back", from, to, step.Rule)
			case step.Verdict != Refused && (minors > 1 || minors < -1):
				t.Errorf("%s to %s is %s by %s", from, to, step.Verdict, step.Rule)
			case step.Verdict != Refused && minors == 1 && from.Patch < map[int]int{5: 26, 6: 11}[from.Minor]:
				t.Errorf("%s to %s is %s by %s: below the floor of the minor", from, to, step.Verdict, step.Rule)
			case step.Verdict == Refused && JudgeRelease(from).Verdict != Refused && (minors == 1 || minors == -1):
				t.Errorf("%s to %s is refused by %s, and a cluster that may run the one could not leave it", from, to, step.Rule)
			}
		}
	}
	var names []string
	var rows [][]string
	for _, r := range releaseRules {
		names = append(names, r.name)
		rows = append(rows, []string{rulestest.Anchored("versions", r.name), fmt.Sprintf("below 3.%d.%d", r.minor, r.below), "**" + string(r.verdict) + "**", r.why,
			r.source, fmt.Sprint(count[r.name])})
	}
	for _, r := range stepRules {
		names = append(names, r.name)
		rows = append(rows, []string{rulestest.Anchored("versions", r.name), r.words(), "**" + string(r.verdict) + "**", r.why, r.source, fmt.Sprint(count[r.name])})
	}
	for _, name := range names {
		if count[name] == 0 {
			t.Errorf("rule %s never decides", name)
		}
	}
	t.Run("document", func(t *testing.T) {
		golden.Section(t, "../../docs/reference/decisions.md", "versions",
			"### Versions of etcd, and steps between them: versions.releaseRules, versions.stepRules\n\n"+
				golden.Table([]string{"rule", "of", "verdict", "why", "source", "cases"}, rows))
	})
}

func (r stepRule) words() string {
	words := fmt.Sprintf("%+d minor", r.least)
	if r.least != r.most {
		words = fmt.Sprintf("%+d to %+d minors", r.least, r.most)
	}
	if r.from != 0 {
		words += fmt.Sprintf(" from below 3.%d.%d", r.from, r.below)
	}
	return words
}

func TestWhatIsNoReleaseIsNotRead(t *testing.T) {
	for _, s := range []string{"", "3", "3.6", "v3.6.1", "3.6.1-rc.1", "4.0.0", "3.x.1", "3.6.-1", "3.6.1.1", "3.6."} {
		if v, ok := Parse(s); ok {
			t.Errorf("%q was read as %s", s, v)
		}
	}
	if j := JudgeRelease(Version{8, 0}); j.Verdict != Refused {
		t.Errorf("3.8.0 is %s by %s", j.Verdict, j.Rule)
	}
	if j := JudgeStep(Version{4, 9}, Version{7, 0}); j.Verdict != Refused {
		t.Errorf("3.4 to 3.7 is %s by %s", j.Verdict, j.Rule)
	}
}

func TestARaftGroupCanRefuseAStep(t *testing.T) {
	for name, test := range map[string]struct {
		from, to string
		learners int
		count    int64
		rule     string
	}{
		"formed on 3.6, to 3.5":              {"3.6.16", "3.5.33", 16, 0, "learners"},
		"formed on 3.5, to 3.5":              {"3.6.16", "3.5.33", 1, 0, "group"},
		"formed on 3.6, down within 3.6":     {"3.6.16", "3.6.15", 16, 0, "group"},
		"a long log of 3.5, to 3.7":          {"3.6.16", "3.7.3", 1, MaxSnapshotCount + 1, "long-log"},
		"a log of 3.5 that ends, to 3.7":     {"3.6.16", "3.7.3", 1, MaxSnapshotCount, "group"},
		"a long log that 3.5 never wrote to": {"3.6.16", "3.7.3", 16, MaxSnapshotCount + 1, "group"},
	} {
		got := JudgeGroup(parsed(t, test.from), parsed(t, test.to), test.learners, test.count)
		if got.Rule != test.rule || (got.Verdict == Refused) != (test.rule != "group") {
			t.Errorf("%s: %s by %s", name, got.Verdict, got.Rule)
		}
	}
}
