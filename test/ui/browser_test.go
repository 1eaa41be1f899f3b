package ui

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/internal/webui"
	"github.com/etcd-druid/druid/test/situations"
	"github.com/etcd-druid/druid/test/ui/browser"
)

// chromium is that of all tests. Each test has a tab of its own.
var chromium browser.Browser

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	started, stop, err := browser.Start(context.Background())
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	chromium = started
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
	*browser.Tab
	// end ends the server.
	end func()
}

// visit serves the source, and opens its first page in a tab of its own.
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
	t.Cleanup(func() {
		stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	base, _, _ := strings.Cut(server.URL(), "/?")
	p := chromium.Tab(t, base)
	p.Do(append(first, chromedp.Navigate(server.URL()), chromedp.WaitReady(chromedp.CSS("#notice")))...)
	return &tab{p, func() {
		p.MayFail()
		stop()
	}}
}
