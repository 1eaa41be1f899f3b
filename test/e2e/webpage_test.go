package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/plugin"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/ui/browser"
)

// The roles and names of parts of the web page.
const (
	regionRole = "region"
	fleetTable = "EtcdClusters, the worst first"
	// desktop is a width of a window in which tables are tables.
	desktop = 1440
)

// openWebPage runs kubectl druid ui until the end of the test, and opens the address that it prints in a Chromium.
func openWebPage(t *testing.T, p pluginOf) *browser.Tab {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	read, write := io.Pipe()
	root := plugin.NewCommand()
	root.SetArgs([]string{"ui", "--kubeconfig", rig.Lab.KubeconfigPath(), "--namespace", p.Namespace})
	root.SetOut(write)
	root.SetErr(write)
	var group errgroup.Group
	group.Go(func() error {
		defer write.Close()
		if code := cli.Main(ctx, root, slog.New(slog.DiscardHandler)); code != 0 {
			return fmt.Errorf("kubectl druid ui: exit code %d", code)
		}
		return nil
	})
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	printed := bufio.NewReader(read)
	var line string
	for !strings.Contains(line, "http://") {
		var err error
		if line, err = printed.ReadString('\n'); err != nil {
			t.Fatalf("kubectl druid ui printed no address: %v", err)
		}
	}
	group.Go(func() error {
		_, err := io.Copy(io.Discard, printed)
		return err
	})
	chromium, stop, err := browser.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	address := strings.TrimSpace(line)
	base, _, _ := strings.Cut(address, "/?")
	page := chromium.Tab(t, base)
	page.Look(desktop, "light")
	page.Do(chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("#notice")))
	return page
}

// opensOnThePage goes from the list of clusters to the cluster of the story. From then on, only the server's messages change the page.
func (s *shownStates) opensOnThePage(t *testing.T) {
	t.Helper()
	page := s.page.For(t)
	cluster := s.p.Namespace + "/" + s.p.Name
	page.Do(chromedp.Click(chromedp.CSS(fmt.Sprintf("[id=%q]", "l-"+cluster))), chromedp.WaitReady(chromedp.CSS("#members")))
	page.Eventually(`document.getElementById("live").textContent === "Live"`)
	page.Do(chromedp.Evaluate[chromedp.Void](`window.openedByStory = true`))
}

// onThePage waits until the page of the cluster has the state and all advice in the regions for it, without a reload. Then it looks at the
// list, and returns to the cluster.
func (s *shownStates) onThePage(t *testing.T, word string, printed, advice []string) {
	t.Helper()
	page := s.page.For(t)
	s.followsOnThePage(t, word, append(printed, advice...)...)
	s.looksWell(t)
	page.Do(chromedp.Click(chromedp.CSS("nav a")), chromedp.WaitReady(chromedp.CSS("#fleet")))
	harness.Eventually(t, time.Minute, "the list on the web page", func(context.Context) error {
		return errors.Join(s.has(page, "table", fleetTable, word, s.p.Name), s.none(page, "alert"))
	})
	s.looksWell(t)
	s.opensOnThePage(t)
}

// followsOnThePage waits until the page of the cluster has the state and the advice, without a reload.
func (s *shownStates) followsOnThePage(t *testing.T, word string, advice ...string) {
	t.Helper()
	page := s.page.For(t)
	begun := time.Now()
	harness.Eventually(t, time.Minute, "the web page", func(context.Context) error {
		return errors.Join(s.has(page, regionRole, "What now", advice...), s.has(page, regionRole, s.p.Namespace+"/"+s.p.Name, word), s.none(page, "alert"))
	})
	if !browser.Eval[bool](page, `window.openedByStory === true`) {
		t.Error("the web page was loaded again, and did not follow the cluster by itself")
	}
	t.Logf("the web page shows %s after %s", word, time.Since(begun).Round(time.Millisecond))
}

// looksWell fails for what is wrong with the look of the page on a small phone and on a desktop.
func (s *shownStates) looksWell(t *testing.T) {
	t.Helper()
	page := s.page.For(t)
	for _, width := range []int64{browser.Narrow, desktop} {
		page.Look(width, "light")
		for _, fault := range page.Faults() {
			t.Errorf("the web page, %d pixels: %s", width, fault)
		}
	}
}

// has returns an error if the element with a role and a name lacks one of the words.
func (s *shownStates) has(page *browser.Tab, role, name string, words ...string) error {
	found, err := page.Texts(role, name)
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("%d elements are a %s %q", len(found), role, name)
	}
	text := s.steady(found[0])
	var missing []error
	for _, word := range words {
		if !strings.Contains(text, word) {
			missing = append(missing, fmt.Errorf("no %q in the %s %q: %s", word, role, name, text))
		}
	}
	return errors.Join(missing...)
}

// none returns an error if an element has the role.
func (s *shownStates) none(page *browser.Tab, role string) error {
	found, err := page.Texts(role, "")
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("the page has a %s: %q", role, found)
	}
	return err
}

// adviceOf returns the steps and the commands that status printed below "What now", or its last line.
func adviceOf(status string) (advice []string) {
	_, next, found := strings.Cut(status, "\nWhat now\n")
	if !found {
		return nil
	}
	for line := range strings.Lines(next) {
		line = strings.TrimSpace(line)
		if _, step, numbered := strings.Cut(line, ". "); numbered && line[0] >= '1' && line[0] <= '9' {
			line = step
		}
		if !strings.HasPrefix(line, "https://") && !strings.HasPrefix(line, "[exit code ") {
			advice = append(advice, line)
		}
	}
	return advice
}
