package ui

import (
	"bytes"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/etcd-druid/druid/test/ui/browser"
)

var dashboards = flag.String("dashboards", "", "the folder with the page of test/dashboards, to write the images of the dashboard again")

const (
	dashboardWidth = 1400
	// maxDashboard is the size of an image in bytes.
	maxDashboard = 300_000
)

// The tests of tools/prometheus check that the images show the dashboard as it is. Without Node.js there is no page to compare them with.
func TestDashboardImagesAreOnTheirPage(t *testing.T) {
	about, err := os.ReadFile(filepath.Join(docs, "how-to/install/set-up-alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	for row, name := range []string{"dashboard-fleet.png", "dashboard-cluster.png"} {
		path := filepath.Join(images, name)
		if *dashboards != "" {
			if err := os.WriteFile(path, draw(t, row), 0o644); err != nil { //nolint:gosec // a file of the documentation
				t.Fatal(err)
			}
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%v: run make dashboards", err)
			continue
		}
		if config, err := png.DecodeConfig(bytes.NewReader(raw)); err != nil || config.Width != dashboardWidth || len(raw) > maxDashboard {
			t.Errorf("%s has %d bytes and a width of %d (%v), want at most %d and %d", name, len(raw), config.Width, err, maxDashboard, dashboardWidth)
		}
		if before, _, ok := strings.Cut(string(about), "](../../images/"+name+")"); !ok || strings.HasSuffix(before, "![") {
			t.Errorf("the page does not show %s with a text in its place", name)
		}
	}
}

// draw takes a screenshot of a row of the dashboard. The image has the digest of what it shows.
func draw(t *testing.T, row int) []byte {
	t.Helper()
	p := chromium.Tab(t, "file://"+*dashboards)
	p.MayFail() // a file cannot fetch Grafana's icons and fonts
	p.Look(dashboardWidth, "light")
	p.Do(chromedp.Navigate(fmt.Sprintf("file://%s/index.html#%d", *dashboards, row)))
	p.Eventually(`document.body.dataset.digest`)
	p.Do(chromedp.EmulateViewport(dashboardWidth, int64(browser.Eval[float64](p, `document.body.scrollHeight`))))
	taken, err := browser.Get(p, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err != nil {
		t.Fatal(err)
	}
	if text := browser.Eval[string](p, `document.body.innerText`); strings.Contains(text, "No data") || len(p.Problems()) > 0 {
		t.Fatalf("row %d has problems %q, and shows:\n%s", row, p.Problems(), text)
	}
	return small(t, taken.Data, browser.Eval[string](p, `document.body.dataset.digest`))
}
