// Package bench measures on a rig of its own what docs/explanation/benchmarks.md states, and prints it as that page has it. It judges
// nothing: figures of a shared machine are read next to those of the bare run that is measured with them.
package bench

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

var (
	rig    *harness.Rig
	report table
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Without -bench there is nothing to measure, and the machine is spared a rig.
	if f := flag.Lookup("test.bench"); f == nil || f.Value.String() == "" {
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var stop func()
	var err error
	rig, stop, err = harness.Start(os.Stderr, harness.Production)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: bring up the rig:", err)
		return 1
	}
	defer stop()
	code := m.Run()
	fmt.Println(report.markdown())
	return code
}
