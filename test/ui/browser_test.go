package ui

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/internal/webui"
	"github.com/etcd-druid/druid/test/situations"
)

// maxWait with pages that need milliseconds on an idle machine.
const maxWait = 2 * time.Minute

// programs are the names of Chromium, the smallest first.
var programs = []string{"chromium-headless-shell", "chromium", "google-chrome"}

// browser is the Chromium of all tests. Each test has a tab of its own.
var browser context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path := ""
	for _, name := range programs {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		_, _ = fmt.Fprintf(os.Stderr, "none of %s is installed: run make setup\n", strings.Join(programs, ", "))
		return 1
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	started, end := chromedp.NewContext(allocator)
	defer end()
	browser = started //nolint:fatcontext // the browser is started once
	if err := chromedp.Do(browser); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "start %s: %v\n", path, err)
		return 1
	}
	return m.Run()
}

// source has views that a test changes.
type source struct {
	mu       sync.Mutex
	clusters []view.Cluster
	err      error
}

func (s *source) Fleet(context.Context) (webui.Fleet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return webui.Fleet{Clusters: slices.Clone(s.clusters)}, s.err
}

func (s *source) Cluster(_ context.Context, namespace, name string) (view.Cluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clusters {
		if c.Namespace == namespace && c.Name == name {
			return c, s.err
		}
	}
	return view.Cluster{}, fmt.Errorf("there is no cluster %s/%s", namespace, name)
}

// Backups has two lineages and a gap.
func (s *source) Backups(context.Context, string, string) (webui.Backups, error) {
	ago := func(days int) time.Time { return situations.Now.AddDate(0, 0, -days) }
	return webui.Backups{
		Member: "demo-bqdq7", Store: "bucket backups at AWS region eu-central-1", Prefix: "default/demo", Totals: "2 lineages.",
		Notes: []string{"Gap in lineage 00000001-9f31c2d4."},
		Lanes: []webui.Lane{
			{Summary: catalog.Summary{
				Lineage: "00000001-9f31c2d4", Formation: &catalog.Formation{Created: ago(20)}, Fulls: 21, Deltas: 1893, Size: 3 << 30,
				Restorable: []catalog.Range{{From: 1, To: 30211, Since: ago(20), Until: ago(11)}, {From: 31000, To: 41877, Since: ago(9), Until: ago(5)}},
			}},
			{Depth: 1, Summary: catalog.Summary{
				Lineage: "00000002-51aa07be", Formation: &catalog.Formation{Parent: "00000001-9f31c2d4", Fork: 41870, Created: ago(5)}, Fulls: 2, Deltas: 12,
				Size:       210 << 20,
				Restorable: []catalog.Range{{From: 1_000_041_870, To: 1_000_042_001, Since: ago(5), Until: situations.Now}},
			}},
		},
	}, nil
}

// replace puts another view in the place of one.
func (s *source) replace(namespace string, c view.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.clusters {
		if s.clusters[i].Namespace == namespace {
			c.Namespace = namespace
			s.clusters[i] = c
		}
	}
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// every has all situations, each in a namespace of its own.
func every() *source { return &source{clusters: situations.Views()} }

// tab is a page that a test looks at.
type tab struct {
	*testing.T
	ctx context.Context
	// base is the address of the server, and stop ends it.
	base string
	stop func()

	mu       sync.Mutex
	problems []string
}

// visit serves the source, and opens its first page in a tab of its own, in which other windows have left no cookie.
func visit(t *testing.T, from webui.Source, first ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := webui.New(webui.Options{Source: from, Now: func() time.Time { return situations.Now }, Scope: "All namespaces", Start: "/"}, listener)
	if err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return server.Serve(serving, listener) })
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	ctx, expire := context.WithTimeout(ctx, maxWait)
	base, _, _ := strings.Cut(server.URL(), "/?")
	p := &tab{T: t, ctx: ctx, base: base, stop: stop}
	t.Cleanup(func() {
		expire()
		closeTab()
		stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		for _, problem := range p.problems {
			t.Error(problem)
		}
	})
	if err := chromedp.Listen(ctx, p.note); err != nil {
		t.Fatal(err)
	}
	p.do(append(first, call(network.Enable, network.EnableParams{}), chromedp.Navigate(server.URL()), chromedp.WaitReady(chromedp.CSS("#notice")))...)
	return p
}

// note keeps what must not happen on a page.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, "the script failed: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		p.problems = append(p.problems, fmt.Sprintf("the console has %s %v", e.Type, e.Args))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, p.base+"/") && !strings.HasPrefix(e.Request.URL, "data:") { // the icon of a field of the browser is data
			p.problems = append(p.problems, "it asks for "+e.Request.URL)
		}
	default:
	}
}

// call is a command of the browser whose answer has nothing to read.
func call[P any](command cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

func (p *tab) open(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.base+path), chromedp.WaitReady(chromedp.CSS("#notice")))
}

// eval returns the value of an expression.
func eval[T any](p *tab, expression string) T {
	p.Helper()
	return ask(p, chromedp.Evaluate[T](expression))
}

// ask returns the result of an action.
func ask[T any](p *tab, action chromedp.Action[T]) T {
	p.Helper()
	value, err := chromedp.Run(p.ctx, action)
	if err != nil {
		p.Fatal(err)
	}
	return value
}

// eventually waits until an expression is true.
func (p *tab) eventually(expression string) {
	p.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(maxWait/2))); err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
}

// look sets the width of the window in pixels, and the colors that the user prefers.
func (p *tab) look(width int64, scheme string) {
	p.Helper()
	p.do(chromedp.EmulateViewport(width, 800), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}))
}
