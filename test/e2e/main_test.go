// Package e2e shows on a real Kubernetes that a cluster forms, serves and heals as docs/explanation/architecture.md says it does, and
// that what a member, a node, a volume or a user does to it costs no acknowledged write and forms no second cluster.
//
// Each test is a story with a row in the table of test/e2e/stories, which says when it runs, what it needs, and what it is of.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/plugin"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// Deadlines are several times what an idle machine needs: two cores carry several clusters at once.
const (
	formWithin = 4 * time.Minute
	healWithin = 4 * time.Minute
)

var (
	selection = flag.String("stories", "", `which stories to perform without -test.run: "all", "core", those that run "alone" or "alongside" `+
		`others, by "budget" (in make test), or "soak"`)
	agents    = flag.String("agents", string(harness.Fast), `the intervals of the agents: "fast", or those of "production"`)
	soakHours = flag.Float64("soak.hours", 1, "for how many hours -stories soak goes on")
	soakLoad  = flag.Int("soak.load", 0, "how many processes use a CPU each next to -stories soak")
	soakSeed  = flag.Uint64("soak.seed", 1, "the first seed of -stories soak")
)

// rig is the Kubernetes with druid that all tests share.
var rig *harness.Rig

// pluginName is the name by which kubectl finds its plugin. Under this name, the program of the tests is the plugin.
const pluginName = "kubectl-druid"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == pluginName {
		os.Exit(cli.Main(context.Background(), plugin.NewCommand(), slog.New(slog.DiscardHandler)))
	}
	flag.Parse()
	code, err := perform(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func perform(m *testing.M) (int, error) {
	ctx := context.Background()
	const root = "../.."
	seed, err := stories.SeedOf(ctx, root)
	if err != nil {
		return 0, err
	}
	reseed(seed)
	return stories.Program{
		Selection: stories.Selection(*selection), Root: root, Run: m.Run, Log: os.Stderr,
		Start: func() (stop func(), err error) {
			rig, stop, err = harness.Start(os.Stderr, harness.Pace(*agents))
			return stop, err
		},
		Soak: stories.Soaks{Hours: *soakHours, Load: *soakLoad, Seed: *soakSeed, Reseed: reseed},
	}.Perform(ctx)
}

// drawnFrom is what the random stories draw their lots from where their own flag is zero: by default the commit, so that each has
// its own and the same each time.
var drawnFrom uint64

func reseed(seed uint64) { drawnFrom = seed }

func seedOr(own uint64) uint64 {
	if own != 0 {
		return own
	}
	return drawnFrom
}
