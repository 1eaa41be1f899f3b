package view_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/situations"
)

const (
	failure = "save revisions 7 to 9: put a/delta/… in bucket b: the store responded 403 AccessDenied (Access Denied)"
	more    = "Changes are not saved: " + failure + ". Wait."
	of      = "Member a: " + reason
	short   = "Its node is lost."
	reason  = "volume /var/lib/etcd: access /var/lib/etcd: permission denied (it is not writable by UID 65532)"
)

func TestALongTextIsShownOnce(t *testing.T) {
	for name, c := range map[string]struct{ texts, want []string }{
		"another text":                {[]string{failure, reason}, []string{failure, reason}},
		"the same":                    {[]string{failure, failure}, []string{failure, "See above."}},
		"the same as a sentence":      {[]string{reason, view.Sentence(reason)}, []string{reason, "See above."}},
		"a part of what is above":     {[]string{more, failure}, []string{more, "See above."}},
		"more than what is above":     {[]string{failure, more}, []string{failure, "Changes are not saved: see above. Wait."}},
		"it begins a sentence":        {[]string{of, "2 of 3 ready. Member a: " + reason + "; more"}, []string{of, "2 of 3 ready. See above; more"}},
		"two of the texts above":      {[]string{failure, reason, "A: " + reason + "; b: " + failure}, []string{failure, reason, "A: see above; b: see above"}},
		"a short text":                {[]string{short, short, "Member a: its node is lost."}, []string{short, short, "Member a: its node is lost."}},
		"a letter changes its length": {[]string{reason, "İ " + reason}, []string{reason, "İ " + reason}},
	} {
		var shown view.Shown
		var got []string
		for _, text := range c.texts {
			got = append(got, shown.Once(text))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestMembersHaveTheirReasonEach(t *testing.T) {
	members := []view.Member{{Message: reason}, {Message: reason, Waits: failure}, {Message: "Short."}}
	var first, second view.Shown
	second.Once(of)
	for name, c := range map[string]struct {
		shown *view.Shown
		want  [][]string
	}{
		"nothing is above": {&first, [][]string{{reason}, {reason, "etcd does not start: " + failure}, {"Short."}}},
		"it is above":      {&second, [][]string{{"See above."}, {"See above.", "etcd does not start: " + failure}, {"Short."}}},
	} {
		if diff := cmp.Diff(c.want, c.shown.Notes(members)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if got := c.shown.Once("Member b: " + reason + "."); got != "Member b: see above." && got != "See above." {
			t.Errorf("%s: below, it is %q", name, got)
		}
	}
}

func TestErrorOfBackupsIsShownOnce(t *testing.T) {
	for name, c := range map[string]struct {
		backup *view.Backup
		above  string
		want   view.Word
	}{
		"no backup":       {nil, failure, view.Word{Text: "none: spec.backup is not set", Tone: view.Middle}},
		"no error":        {&view.Backup{}, failure, view.Word{Text: "unknown: no Lease reports a backup"}},
		"an error":        {&view.Backup{Error: failure}, reason, view.Word{Text: "✖ failing: " + failure, Tone: view.Bad}},
		"it is above too": {&view.Backup{Error: failure}, "Changes are not saved: " + failure, view.Word{Text: "✖ failing: see above", Tone: view.Bad}},
	} {
		shown := view.Shown{c.above}
		if got := shown.BackupLines(c.backup, situations.Now); !slices.Contains(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
