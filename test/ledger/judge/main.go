// Command judge ends a run of `make test`: it appends the run to the ledger, prints what was repeated and what was not run, and
// fails if the run is red by the policy of test/ledger.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/test/ledger"
)

func main() {
	failed := flag.String("failed", "", "the steps of make that failed, separated by commas")
	flakes := flag.String("flakes", "test/FLAKES.md", "the explained flakes")
	flag.Parse()
	if err := judge(context.Background(), os.Stdout, *failed, *flakes); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

var errRed = errors.New("the run is red")

func judge(ctx context.Context, to io.Writer, failed, flakes string) error {
	run, ok := ledger.Current()
	if !ok {
		return fmt.Errorf("%s is not set: `make test` sets it to the directory of its run", ledger.RunVariable)
	}
	path, err := ledger.Path()
	if err != nil {
		return err
	}
	commit, err := head(ctx)
	if err != nil {
		return err
	}
	facts, plan, err := run.Gather(commit)
	if err != nil {
		return err
	}
	if facts.History, err = ledger.ReadEntries(path); err != nil {
		return err
	}
	if facts.Explained, err = ledger.ReadExplanations(flakes); err != nil {
		return err
	}
	facts.Steps = strings.FieldsFunc(failed, func(r rune) bool { return r == ',' })
	findings := ledger.Judge(facts)
	ledger.Report(to, run.Name(), facts, plan, findings)
	own := ledger.Entry{Kind: ledger.KindRun, Run: run.Name(), Commit: commit, At: time.Now().UTC(), Green: len(findings) == 0}
	if err := ledger.Merge(path, append(slices.Clone(facts.Tests), own)); err != nil {
		return err
	}
	if len(findings) > 0 {
		return errRed
	}
	return nil
}

// head is the commit that the run is of.
func head(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("find the commit: git rev-parse HEAD: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
