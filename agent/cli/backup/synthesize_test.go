package backup

import (
	"os"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/proof"
)

// testSynthesize works on a copy: what it makes changes the plans of others.
func testSynthesize(t *testing.T, original func(string, ...string) []string, h chain.History) {
	t.Helper()
	url, _ := directory(t)
	ok(t, original("copy", "--to", url)...)
	scratch := t.TempDir()
	in := func(command string, args ...string) []string {
		return append([]string{command, "--store", url, "--prefix", demo}, args...)
	}
	name := strings.TrimPrefix(chain.SynthesisKey(demo, first, 21, 16, h.Deltas[2].At), demo+"/")
	before := ok(t, in("show")...)
	contains(t, ok(t, in("synthesize", "--scratch", scratch, "--dry-run")...), "full   16", "delta  17", "with 5 revisions applied, and "+name+" written", "Nothing was done")
	if after := ok(t, in("show")...); after != before {
		t.Errorf("a dry run made\n%s\nof\n%s", after, before)
	}
	made := decoded[synthesized](t, ok(t, in("synthesize", "--scratch", scratch, "-o", "json")...))
	if made.Key != demo+"/"+name || made.Revision != 21 || !made.Written || made.Present || made.Size == 0 || made.Plan.Full.Revision != 16 {
		t.Errorf("made is %+v", made)
	}
	contains(t, ok(t, in("synthesize", "--scratch", scratch, "--lineage", string(first), "--revision", "21", "--without", name)...), "is there already")
	contains(t, ok(t, in("show")...), "synthesized  21    21", name)
	contains(t, ok(t, in("list")...), "  2      3  ", "besides, 1 object made out of others")
	contains(t, ok(t, in("plan")...), "synthesized  21", "1 object, ")
	contains(t, ok(t, in("verify")...), "6 objects: 6 sound")
	contains(t, ok(t, in("gc", "--count", "1")...), "the newest synthesised full that leads to the latest state")
	// From an older full, up to a revision in the middle of a delta, of which etcd never took one.
	contains(t, ok(t, in("synthesize", "--scratch", scratch, "--revision", "14")...), "made out of "+strings.TrimPrefix(h.Fulls[0].Key, demo+"/")+" and 2 objects with 8 revisions")
	r := decoded[proof.Result](t, ok(t, in("prove", "--scratch", scratch, "--revision", "16", "--without", name, "-o", "json")...))
	if r.Verdict != proof.Proven || r.Revision != 16 || !strings.HasSuffix(r.Full, ".synthesized.zst") {
		t.Errorf("proof of what goes on from there: %+v", r)
	}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{in("synthesize", "--scratch", scratch), 2, "nothing to synthesise: no delta follows " + name},
		{in("synthesize", "--scratch", scratch, "--revision", "99"), 2, "does not hold revision 99"},
		{in("synthesize", "--scratch", scratch+"/no", "--revision", "20"), 1, "no scratch directory"},
	} {
		if out, code, failure := run(t, test.args...); code != test.code || !strings.Contains(failure, test.says) {
			t.Errorf("%v: exit code %d, %q, want %d and %q\n%s", test.args, code, failure, test.code, test.says, out)
		}
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("the scratch directory has %v, %v", left, err)
	}
}
