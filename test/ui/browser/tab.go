package browser

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// maxWait with pages that need milliseconds on an idle machine.
const maxWait = 2 * time.Minute

// Tab is a page that a test looks at.
type Tab struct {
	*testing.T
	*page
}

// page is what does not change with the test.
type page struct {
	ctx context.Context
	// base is the address of the server.
	base string

	mu       sync.Mutex
	problems []string
	// mayFail says that requests may fail.
	mayFail bool
}

// Tab returns an empty tab, in which other windows have left no cookie. It requests nothing but what is below the base address.
// At its end the test fails for each problem.
func (b Browser) Tab(t *testing.T, base string) *Tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &Tab{t, &page{ctx: ctx, base: base}}
	t.Cleanup(func() {
		closeTab()
		for _, problem := range p.Problems() {
			t.Error(problem)
		}
	})
	// The first action binds the tab to its context, which has no deadline.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, p.note); err != nil {
		t.Fatal(err)
	}
	p.Do(Call(network.Enable, network.EnableParams{}), Call(log.Enable, cdp.Empty{}))
	return p
}

// For is the same tab in another test, such as a part of the test that opened it.
func (p *Tab) For(t *testing.T) *Tab { return &Tab{t, p.page} }

// MayFail says that requests may fail from now on, for example because the test ends the server.
func (p *Tab) MayFail() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mayFail = true
}

// Problems are what happened and must not.
func (p *Tab) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problems
}

// note keeps what must not happen on a page.
func (p *page) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, "the script failed: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		p.problems = append(p.problems, fmt.Sprintf("the console has %s %v", e.Type, e.Args))
	case *log.EventEntryAdded:
		// The stream of a page ends with its server, which a test can end before the tab.
		if strings.Contains(e.Entry.Text, "ERR_INCOMPLETE_CHUNKED_ENCODING") && strings.Contains(e.Entry.URL, "/live/") {
			return
		}
		if p.mayFail && (e.Entry.Source == log.EntrySourceNetwork || strings.HasPrefix(e.Entry.Text, "Fetch API cannot load")) {
			return
		}
		p.problems = append(p.problems, fmt.Sprintf("the console has: %s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, p.base+"/") && !strings.HasPrefix(e.Request.URL, "data:") { // the icon of a field of the browser is data
			p.problems = append(p.problems, "it asks for "+e.Request.URL)
		}
	default:
	}
}

// Call is a command of the browser whose answer has nothing to read.
func Call[P any](command cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// Get returns the answer to a command of the browser.
func Get[P, R any](p *Tab, command cdp.Command[P, R], params P) (R, error) {
	ctx, cancel := context.WithTimeout(p.ctx, maxWait)
	defer cancel()
	return chromedp.Call(ctx, command, params)
}

// Do performs actions.
func (p *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, maxWait)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

// Open goes to a path below the base address, and waits until a page of kubectl druid ui is there.
func (p *Tab) Open(path string) {
	p.Helper()
	p.Do(chromedp.Navigate(p.base+path), chromedp.WaitReady(chromedp.CSS("#notice")))
}

// Eval returns the value of an expression.
func Eval[T any](p *Tab, expression string) T {
	p.Helper()
	return Ask(p, chromedp.Evaluate[T](expression))
}

// Ask returns the result of an action.
func Ask[T any](p *Tab, action chromedp.Action[T]) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, maxWait)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.Fatal(err)
	}
	return value
}

// Eventually waits until an expression is true.
func (p *Tab) Eventually(expression string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, maxWait)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(maxWait/2))); err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
}

// Look sets the width of the window in pixels, and the colors that the user prefers.
func (p *Tab) Look(width int64, scheme string) {
	p.Helper()
	p.Do(chromedp.EmulateViewport(width, 800), Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}))
}
