package webui

import (
	"errors"
	"html"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// forked are two lineages: the first has a gap.
func forked() Backups {
	day := func(d int) time.Time { return time.Date(2026, 11, d, 3, 0, 0, 0, time.UTC) }
	return Backups{
		Member: "demo-bqdq7", Store: "bucket backups at AWS region eu-central-1", Prefix: "default/demo", Totals: "2 lineages.",
		Notes: []string{"Gap in lineage 00000001-9f31c2d4: <script>."},
		Lanes: []Lane{
			{Summary: catalog.Summary{
				Lineage: "00000001-9f31c2d4", Formation: &catalog.Formation{Created: day(4)}, Fulls: 21, Deltas: 1893, Size: 3 << 30,
				Restorable: []catalog.Range{{From: 1, To: 30211, Since: day(4), Until: day(14)}, {From: 31000, To: 41877, Since: day(15), Until: day(19)}},
			}},
			{Depth: 1, Summary: catalog.Summary{
				Lineage: "00000002-51aa07be", Formation: &catalog.Formation{Parent: "00000001-9f31c2d4", Fork: 41870, Created: day(19)}, Fulls: 2,
				Deltas: 12, Size: 210 << 20,
				Restorable: []catalog.Range{{From: 1_000_041_870, To: 1_000_042_001, Since: day(19), Until: situations.Now}},
			}},
		},
	}
}

func TestTheTimelineOfBackups(t *testing.T) {
	from := every()
	from.backups = forked()
	b := open(t, from)
	_, text := b.get("/clusters/serving/demo")
	says(t, text, `href="/base/clusters/serving/demo/backups"`)
	code, text := b.get("/clusters/serving/demo/backups")
	if code != http.StatusOK {
		t.Fatalf("%d", code)
	}
	golden.File(t, "testdata/backups.html", text)
	// The bars are 20 days long, of which the first range has 10, the gap 1, the second range 4, and the second lineage 5.
	says(t, text, `<rect x="0" y="3" width="500" height="14">`, `<rect x="500" y="8" width="50" height="4" class="gap">`,
		`<rect x="550" y="3" width="200" height="14">`,
		`<rect x="750" y="3" width="250" height="14">`, `<line class="fork" x1="750"`, "&lt;script&gt;")
}

// TestMomentRestoredFromItsLineage: a moment is restored from the lineage that has it.
func TestMomentRestoredFromItsLineage(t *testing.T) {
	from := every()
	from.backups = forked()
	from.backups.Lanes[0].Lineage = "00000001-9f31c2d4"
	b := open(t, from)
	for at, want := range map[string]string{
		"2026-11-16T10:30:00": `"time":"2026-11-16T10:30:00Z","lineage":"00000001-9f31c2d4"`,
		"2026-11-20T10:30":    `"time":"2026-11-20T10:30:00Z","lineage":"00000002-51aa07be"`,
		"2026-11-14T12:00:00": "No lineage can be restored to this time.", "2027-01-01T00:00:00Z": "No lineage can be restored to this time.",
		"yesterday": `The time "yesterday" cannot be read.`,
	} {
		_, text := b.get("/clusters/serving/demo/backups?at=" + at)
		shown := html.UnescapeString(text)
		if says(t, shown, want); strings.Count(shown, "kubectl -n serving patch etcdcluster demo") > 1 {
			t.Errorf("%s has several commands", at)
		}
	}
	if from.reads != 1 {
		t.Errorf("it read %d times, want once", from.reads)
	}
	from = every()
	from.backups = forked()
	from.backups.Lanes[1].Lineage = `x' ; rm -r "`
	if _, text := open(t, from).get("/clusters/serving/demo/backups?at=2026-11-20T10:30"); strings.Contains(text, "patch") {
		t.Errorf("a name from the store stands in a command:\n%s", text)
	}
}

func TestBackupsThatCannotBeListed(t *testing.T) {
	from := every()
	from.err = errors.New(`the agent of member demo-bqdq7: pods "demo-bqdq7" is forbidden: cannot create resource "pods/exec"`)
	code, text := open(t, from).get("/clusters/serving/demo/backups")
	if says(t, text, "You may not read this.", "pods/exec", permissionsDocs); code != http.StatusBadGateway {
		t.Errorf("%d", code)
	}
	from = every()
	_, text = open(t, from).get("/clusters/serving/demo/backups")
	if strings.Contains(text, "<svg") {
		t.Errorf("without backups:\n%s", text)
	}
}
