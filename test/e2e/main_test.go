// Package e2e shows on a real Kubernetes that a cluster forms, serves and heals as docs/architecture.md says it does, and
// that what a member, a node, a volume or a user does to it costs no acknowledged write and forms no second cluster.
//
// Stories that touch only their own cluster run beside one another; those that touch what all share run alone, first or, with
// -stories, on a rig of their own at the same time.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

// Deadlines are several times what an idle machine needs: two cores carry several clusters at once.
const (
	formWithin = 4 * time.Minute
	healWithin = 4 * time.Minute
)

// stories is how many stories run at once: three are a dozen etcds, of which each syncs its writes. With six of them two cores had
// no time for elections.
const stories = "3"

var class = flag.String("stories", string(harness.AllStories), `run only the stories that run "alone" on a rig, or those that run "beside" one another`)

// rig is the Kubernetes with druid that all tests share.
var rig *harness.Rig

func TestMain(m *testing.M) {
	flag.Parse()
	if err := harness.Stories(*class).Choose("."); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", stories); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
	}
	var stop func()
	var err error
	rig, stop, err = harness.Start(os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: bring up the rig:", err)
		return 1
	}
	defer stop()
	return m.Run()
}
