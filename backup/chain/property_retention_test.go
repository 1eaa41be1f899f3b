package chain

import (
	"reflect"
	"slices"
	"testing"
)

// checkSurvivors looks for the objects that no policy may take.
func checkSurvivors(t *testing.T, c, left Catalog, e Evidence) {
	t.Helper()
	proven := false
	for _, h := range slices.Backward(c.sorted().Histories) {
		l, _ := left.History(h.Lineage)
		for i, f := range slices.Backward(h.Fulls) {
			sound := !e.Broken[f.Key] && !slices.ContainsFunc(h.Fulls[i+1:], func(g Full) bool { return !e.Broken[g.Key] })
			newestProven := e.Proven[f.Key] && !e.Broken[f.Key] && !proven
			proven = proven || newestProven
			if (i == len(h.Fulls)-1 || sound || newestProven || f.Final) && !slices.Contains(l.Fulls, f) {
				t.Fatalf("%s is gone: newest %t, sound %t, proven %t, final %t", f.Key, i == len(h.Fulls)-1, sound, newestProven, f.Final)
			}
		}
	}
}

// checkSpare plans without the newest full that is not known to be broken: nothing after the full before it may be lost.
func checkSpare(t *testing.T, c, left Catalog, broken []string) {
	t.Helper()
	for _, h := range c.without(broken).Histories {
		if len(h.Fulls) < 2 {
			continue
		}
		fulls := inOrder(h.Fulls, compareFulls)
		without := append(slices.Clone(broken), fulls[len(fulls)-1].Key)
		checkReach(t, c, left, fulls[len(fulls)-2], without)
	}
}

// checkCount wants all that leads on from the fulls that are counted in a line.
func checkCount(t *testing.T, c, left Catalog, broken []string, line descent, count int) {
	t.Helper()
	for _, h := range slices.Backward(c.without(broken).sorted().Histories) {
		for _, f := range slices.Backward(h.Fulls) {
			if !line[h.Lineage] {
				continue
			}
			if count--; count >= 0 {
				checkReach(t, c, left, f, broken)
			}
		}
	}
}

// checkReach wants as many revisions after a full as there were.
func checkReach(t *testing.T, c, left Catalog, f Full, without []string) {
	t.Helper()
	was, _ := c.without(without).History(f.Lineage)
	is, _ := left.without(without).History(f.Lineage)
	want, got := was.walk(f, f.At, unlimited).reach, is.walk(f, f.At, unlimited).reach
	if !slices.Contains(is.Fulls, f) || got != want {
		t.Fatalf("%s leads to %d, led to %d", f.Key, got, want)
	}
}

// checkOthers wants all that is of another cluster than l's, and that l does not descend from.
func checkOthers(t *testing.T, c, left Catalog, l Lineage) {
	t.Helper()
	line := c.descent(l)
	for _, h := range c.Histories {
		if is, _ := left.History(h.Lineage); l != "" && !line[h.Lineage] && !reflect.DeepEqual(is, h) {
			t.Fatalf("retention for %s leaves %+v of %+v", l, is, h)
		}
	}
}
