package ui

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/internal/webui"
	"github.com/etcd-druid/druid/test/situations"
	"github.com/etcd-druid/druid/test/ui/browser"
)

// narrow is the width of a small phone, middle that of a small window in which tables are still tables, and wide that
// of a desktop, in CSS pixels.
const (
	narrow = browser.Narrow
	middle = 1300
	wide   = 1440
)

func TestEachSituationReadsWellInEachWindow(t *testing.T) {
	from := every()
	long := view.Of(situations.Serving(), situations.Now)
	long.Namespace, long.Name = strings.Repeat("namespace", 7), strings.Repeat("demo", 13)
	for i := range long.Members {
		long.Members[i].Name, long.Members[i].Node = long.Name+"-bqdq7", "ip-10-0-0-1.eu-central-1.compute.internal."+strings.Repeat("node", 20)
	}
	from.clusters = append(from.clusters, long)
	p := visit(t, from)
	const missing = "/clusters/no/such"
	paths := []string{"/", "/clusters/serving/demo/backups", "/clusters/serving/demo/backups?at=2026-11-20T10:30"}
	for _, c := range from.clusters {
		paths = append(paths, webui.ClusterPath(c.Namespace, c.Name))
	}
	for _, path := range append(paths, missing) {
		if path == missing {
			p.MayFail()
		}
		p.Open(path)
		for _, width := range []int64{narrow, middle, wide} {
			for _, scheme := range []string{"light", "dark"} {
				p.Look(width, scheme)
				for _, fault := range p.Faults() {
					t.Errorf("%s, %d pixels, %s: %s", path, width, scheme, fault)
				}
			}
		}
	}
}

func TestStatesAreReadByTextAndRole(t *testing.T) {
	from := every()
	p := visit(t, from)
	for _, width := range []int64{narrow, wide} {
		p.Look(width, "light")
		p.Open("/")
		roles := p.Roles()
		if !slices.Contains(roles["heading"], "EtcdClusters") || !slices.Contains(roles["table"], "EtcdClusters, the worst first") ||
			len(roles["rowheader"]) != len(from.clusters) {
			t.Errorf("%d pixels: headings %q, tables %q, %d rows", width, roles["heading"], roles["table"], len(roles["rowheader"]))
		}
		if !slices.Contains(roles["search"], "") || !slices.Contains(roles["searchbox"], "Filter") || !slices.Contains(roles["checkbox"], "Only problems") {
			t.Errorf("the filter has no names: %v", roles)
		}
		for i, c := range from.clusters {
			if want := c.Health.Mark() + " " + string(c.State); roles["cell"][i*9] != want {
				t.Errorf("%d pixels: row %d says %q, want %q", width, i, roles["cell"][i*9], want)
			}
		}
		p.Open("/clusters/quorum-lost-with-a-plan/demo")
		roles = p.Roles()
		for _, want := range []string{"quorum-lost-with-a-plan/demo", "What now", "Members", "Backups", "Certificates", "Conditions", "Last decisions", "Events"} {
			if !slices.Contains(roles["heading"], want) {
				t.Errorf("%d pixels: no heading %q in %q", width, want, roles["heading"])
			}
		}
		for _, want := range []string{"Members", "Conditions", "Events"} {
			if !slices.Contains(roles["table"], want) {
				t.Errorf("%d pixels: no table %q in %q", width, want, roles["table"])
			}
		}
		if text := browser.Eval[string](p.Tab, `document.getElementById("head").innerText`); !strings.Contains(text, "✖ QuorumLost for 11m") {
			t.Errorf("it says %q", text)
		}
	}
}

func TestDisksAndTheRestorableWindowAreRead(t *testing.T) {
	p := visit(t, every())
	for _, width := range []int64{narrow, wide} {
		p.Look(width, "light")
		p.Open("/clusters/slow-disk/demo")
		roles := p.Roles()
		if width == wide && !slices.Contains(roles["columnheader"], "Free, disk") {
			t.Errorf("the columns are %q", roles["columnheader"])
		}
		for member, want := range map[string]string{"demo-bqdq7": "4.5 GiB, OK", "demo-lgmkl": "4.5 GiB, unknown", "demo-sx47z": "4.5 GiB, VerySlow"} {
			if got := browser.Eval[string](p.Tab, fmt.Sprintf(`document.querySelector("#m-%s [data-label='Free, disk']").textContent`, member)); got != want {
				t.Errorf("%d pixels: the disk of %s is %q, want %q", width, member, got, want)
			}
			if !slices.Contains(roles["cell"], want) && !slices.ContainsFunc(roles["cell"], func(cell string) bool { return strings.HasSuffix(cell, want) }) {
				t.Errorf("%d pixels: no cell says %q: %q", width, want, roles["cell"])
			}
		}
		if tone := browser.Eval[string](p.Tab, `document.querySelector("#m-demo-sx47z [data-label='Free, disk'] span").className`); tone != "bad" {
			t.Errorf("a very slow disk has the tone %q", tone)
		}
		const window = "restorable: from 2026-11-22T04:00:00Z (47h ago) to 2026-11-24T02:59:54Z (6s ago)"
		if text := browser.Eval[string](p.Tab, `document.getElementById("backups").innerText`); !strings.Contains(text, window) {
			t.Errorf("%d pixels: it says %q, want the window %q", width, text, window)
		}
	}
}

func TestTheKeyboardReachesEverything(t *testing.T) {
	p := visit(t, every())
	var seen []string
	for range 6 {
		p.Do(chromedp.KeyEvent(kb.Tab))
		seen = append(seen, browser.Eval[string](p.Tab, `document.activeElement.textContent || document.activeElement.id`))
		if visible := browser.Eval[bool](p.Tab, `(() => { const s = getComputedStyle(document.activeElement), r = document.activeElement.getBoundingClientRect();
			return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 && r.left >= 0 && r.right <= innerWidth; })()`); !visible {
			t.Errorf("the focus on %q cannot be seen", seen[len(seen)-1])
		}
	}
	if want := []string{"Skip to the content", "All clusters", "q", "problems", "Apply", "demo"}; !slices.Equal(seen, want) {
		t.Errorf("the keyboard goes to %q, want %q", seen, want)
	}
	p.Do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS("#head")))
	if title := browser.Eval[string](p.Tab, "document.title"); title != "✖ QuorumLost quorum-lost/demo - druid" {
		t.Errorf("the first cluster is %q", title)
	}
}

func TestThePageFollowsChanges(t *testing.T) {
	from := every()
	p := visit(t, from)
	p.Open("/clusters/member-down/demo")
	p.Eventually(`document.getElementById("live").textContent === "Live"`)
	p.Do(chromedp.Focus(chromedp.CSS("#d-Ready")), chromedp.Evaluate[chromedp.Void](`window.stays = document.getElementById("m-demo-bqdq7")`))
	healed := view.Of(situations.Serving(), situations.Now)
	from.replace("member-down", healed)
	begun := time.Now()
	p.Eventually(`document.getElementById("head").innerText.includes("● Serving")`)
	t.Logf("the page shows a change after %s", time.Since(begun).Round(time.Millisecond))
	p.Eventually(`document.title === "● Serving member-down/demo - druid"`)
	p.Eventually(`document.getElementById("m-demo-sx47z").innerText.includes("Ready")`)
	if !browser.Eval[bool](p.Tab, `document.activeElement.id === "d-Ready" && window.stays === document.getElementById("m-demo-bqdq7")`) {
		t.Error("a change takes the focus, or replaces what has not changed")
	}
	from.fail(errors.New("the network is <down>"))
	p.Eventually(`document.querySelector("[role=alert]") && document.querySelector("[role=alert]").innerText.includes("The network is <down>.")`)
	if !browser.Eval[bool](p.Tab, `document.getElementById("head").innerText.includes("Serving")`) {
		t.Error("after an error the last data is gone")
	}
	from.fail(nil)
	p.Eventually(`!document.querySelector("[role=alert]")`)
	p.end()
	p.Eventually(`document.getElementById("live").textContent.startsWith("kubectl druid ui does not answer. What you see is old.")`)
}

func TestAClickOnTheTimelineChoosesAMoment(t *testing.T) {
	p := visit(t, every())
	for _, width := range []int64{narrow, wide} {
		p.Look(width, "light")
		p.Open("/clusters/serving/demo/backups")
		// The middle of the second bar of 20 days is 10 days ago, in the gap of the first lineage.
		p.Do(chromedp.Click(chromedp.CSS("tbody tr:nth-child(2) .bar")), chromedp.WaitReady(chromedp.CSS("#restores")))
		if text := browser.Eval[string](p.Tab, `document.getElementById("restores").innerText`); !strings.Contains(text, "No lineage can be restored to this time.") {
			t.Errorf("%d pixels: it says %q", width, text)
		}
		if at := browser.Eval[string](p.Tab, `document.getElementById("at").value`); !strings.HasPrefix(at, "2026-11-13T") && !strings.HasPrefix(at, "2026-11-14T") {
			t.Errorf("%d pixels: a click chooses %s", width, at)
		}
		p.Open("/clusters/serving/demo/backups?at=2026-11-20T10:30")
		if text := browser.Eval[string](p.Tab, `document.querySelector("#restores code").textContent`); !strings.Contains(text,
			`"time":"2026-11-20T10:30:00Z","lineage":"00000002-51aa07be"`) {
			t.Errorf("%d pixels: the command is %q", width, text)
		}
	}
}

func TestThePageNeedsNoScript(t *testing.T) {
	p := visit(t, every(), browser.Call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	p.Do(chromedp.SendKeys(chromedp.CSS("#q"), "quorumlost"+kb.Enter), chromedp.WaitReady(chromedp.CSS("#q[value=quorumlost]")))
	text := browser.Ask(p.Tab, chromedp.TextContent(chromedp.CSS("main")))
	if !strings.Contains(text, "The filter shows 2.") {
		t.Errorf("the filter says %q", text)
	}
	p.Do(chromedp.Click(chromedp.CSS("tbody a")), chromedp.WaitReady(chromedp.CSS("#head")))
	text = browser.Ask(p.Tab, chromedp.TextContent(chromedp.CSS("body")))
	for _, want := range []string{"Reload this page to see changes.", "QuorumLost", "kubectl -n quorum-lost get pods,leases"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
}

func TestTextsOfOthersRunNothing(t *testing.T) {
	const evil = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>`
	from := every()
	c := from.clusters[0]
	c.Message, c.Events, c.Next = evil, []view.Event{{Reason: evil, Message: evil}}, []view.Step{{Do: evil, Command: evil, Docs: "javascript:window.ran=1"}}
	c.Members[0].Node, c.Members[0].Message = evil, evil
	from.clusters[0] = c
	p := visit(t, from)
	for _, path := range []string{"/", webui.ClusterPath(c.Namespace, c.Name)} {
		p.Open(path)
		p.Eventually(`document.getElementById("live").textContent === "Live"`)
		p.Eventually(fmt.Sprintf(`document.body.innerText.includes(%q)`, "<script>window.ran=1</script>"))
		if browser.Eval[bool](p.Tab, `"ran" in window || document.querySelector("main img, main script") !== null`) {
			t.Errorf("%s runs the text of an object", path)
		}
	}
}

// manyClusters is how many clusters the list must show within maxPaint.
const (
	manyClusters = 500
	maxPaint     = time.Second
)

// The time is what the page needs of a core until all is painted, for other tests use the same cores.
func TestManyClustersPaintFast(t *testing.T) {
	all := every().clusters
	from := &source{}
	for i := range manyClusters {
		c := all[i%len(all)]
		c.Namespace = fmt.Sprintf("team-%03d", i)
		from.clusters = append(from.clusters, c)
	}
	view.Sort(from.clusters)
	p := visit(t, from)
	p.Do(browser.Call(performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}))
	before := p.busy()
	p.Open("/")
	p.Eventually(`performance.getEntriesByName("first-contentful-paint").length > 0`)
	busy := p.busy() - before
	painted := time.Duration(browser.Eval[float64](p.Tab, `performance.getEntriesByName("first-contentful-paint")[0].startTime`) * float64(time.Millisecond))
	if rows := browser.Eval[int](p.Tab, `document.querySelectorAll("tbody tr").length`); rows != manyClusters {
		t.Errorf("it has %d rows", rows)
	}
	t.Logf("%d clusters: first paint %s after the request, %s of a core", manyClusters, painted.Round(time.Millisecond), busy.Round(time.Millisecond))
	if busy > maxPaint {
		t.Errorf("%d clusters need %s of a core, want %s", manyClusters, busy, maxPaint)
	}
}

// busy is how long the main thread of the page has used a core.
func (p *tab) busy() time.Duration {
	p.Helper()
	found, err := browser.Get(p.Tab, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		p.Fatal(err)
	}
	for _, metric := range found.Metrics {
		if metric.Name == "TaskDuration" {
			return time.Duration(metric.Value * float64(time.Second))
		}
	}
	p.Fatal("the browser does not say how long the page was busy")
	return 0
}
