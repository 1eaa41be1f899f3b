package states

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWebPageIsReadByRoleAndName(t *testing.T) {
	page, err := ReadWebPage(`<h1 id="a">demo</h1><section aria-labelledby="a"><p>✖ <span>Degraded</span> for
 3m</p></section><section>no name</section><div role="alert"><p>old</p></div><table role="table" aria-label="all"><tr><td role="cell">x</td></tr></table>`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		role, name string
		want       []string
	}{
		{"region", "demo", []string{"✖ Degraded for 3m"}}, {"region", "", []string{"✖ Degraded for 3m"}}, {"region", "other", nil},
		{"heading", "demo", []string{"demo"}}, {"alert", "", []string{"old"}}, {"table", "all", []string{"x"}}, {"cell", "", []string{"x"}},
	} {
		if diff := cmp.Diff(c.want, page.Texts(c.role, c.name)); diff != "" {
			t.Errorf("%s %q (-want +got):\n%s", c.role, c.name, diff)
		}
	}
}

// TestRecordedWebPageHasItsRegions: the roles and names that the story uses are those of the templates.
func TestRecordedWebPageHasItsRegions(t *testing.T) {
	raw, err := os.ReadFile("../../../internal/webui/testdata/quorum-lost-with-a-plan.html")
	if err != nil {
		t.Fatal(err)
	}
	page, err := ReadWebPage(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string]string{
		"quorum-lost-with-a-plan/demo": "✖ QuorumLost", "Backups": "restorable",
		"What now": "read druid's plan, and approve it. kubectl druid -n quorum-lost-with-a-plan recover demo",
	} {
		found := page.Texts("region", name)
		if len(found) != 1 || !strings.Contains(found[0], words) {
			t.Errorf("the region %q is %q, want one with %q", name, found, words)
		}
	}
	if alerts := page.Texts("alert", ""); len(alerts) > 0 || !slices.Contains(page.Texts("rowheader", ""), "demo-bqdq7") {
		t.Errorf("the alerts are %q, and the row headers %q", alerts, page.Texts("rowheader", ""))
	}
}
