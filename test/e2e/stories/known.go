package stories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-druid/druid/test/ledger"
)

// lately is how many of a story's last entries say how long it takes.
const lately = 3

// Know what the ledger says of each story of the table, and how close the change comes to it.
func Know(table []Story, history []ledger.Entry, change map[string]Closeness, now time.Time) map[string]Known {
	known := map[string]Known{}
	for _, s := range table {
		k := Known{Change: change[s.Name]}
		var seen []ledger.Entry
		since := time.Time{} // when it was performed last, or the ledger began
		for _, e := range history {
			switch {
			case e.Test == s.Key():
				seen, since, k.Runs = append(seen, e), e.At, -1 // the line of its own run follows
			case e.Kind == ledger.KindRun:
				k.Runs++
				if since.IsZero() {
					since = e.At
				}
			}
		}
		if len(seen) == 0 && k.Runs > 0 {
			k.Runs++ // before one that was performed in the first run
		}
		if k.Runs = max(k.Runs, 0); !since.IsZero() {
			k.Age = now.Sub(since)
		}
		for _, e := range seen[max(0, len(seen)-lately):] {
			if e.Passed() {
				k.Took = max(k.Took, time.Duration(e.Seconds*float64(time.Second)))
			}
		}
		known[s.Name] = k
	}
	return known
}

// gather asks the ledger, git and the sources. What cannot be had is printed by say, and not relied on.
func gather(ctx context.Context, root string, say func(string, ...any)) (map[string]Known, error) {
	path, err := ledger.Path()
	if err != nil {
		return nil, err
	}
	history, err := ledger.ReadEntries(path)
	if err != nil {
		return nil, err
	}
	change, err := closest(ctx, root, history)
	if err != nil {
		say("which stories the change touches is unknown: %v", err)
	}
	return Know(Table, history, change, time.Now()), nil
}

func closest(ctx context.Context, root string, history []ledger.Entry) (map[string]Closeness, error) {
	changed, err := changedFiles(ctx, root, history)
	if err != nil {
		return nil, err
	}
	imports, err := Imports(root)
	if err != nil {
		return nil, err
	}
	tests, err := Tests(filepath.Join(root, "test", "e2e"))
	if err != nil {
		return nil, err
	}
	return Closest(Table, changed, imports, tests), nil
}

var errNoCommit = errors.New("the ledger has no green run of a commit that git knows")

// changedFiles are those that differ from the last green run's commit, and those that git does not know.
func changedFiles(ctx context.Context, root string, history []ledger.Entry) ([]string, error) {
	for _, e := range slices.Backward(history) {
		if e.Kind != ledger.KindRun || !e.Green {
			continue
		}
		if _, err := git(ctx, root, "cat-file", "-e", e.Commit+"^{commit}"); err != nil {
			continue // another clone's
		}
		differ, err := git(ctx, root, "diff", "--name-only", e.Commit)
		if err != nil {
			return nil, err
		}
		unknown, err := git(ctx, root, "ls-files", "--others", "--exclude-standard")
		return strings.Fields(differ + unknown), err
	}
	return nil, errNoCommit
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// SeedOf the commit that is checked out: each has its own, and the same each time.
func SeedOf(ctx context.Context, root string) (uint64, error) {
	head, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(head[:8], 16, 64)
}

// The spans of a run that Choose does not know of.
const (
	defaultBudget = 28 * time.Minute
	rigSpan       = 30 * time.Second // a rig comes up with druid, and is taken down
)

// timeLeft is what the run's budget leaves for stories.
func timeLeft(now time.Time) (time.Duration, error) {
	budget, err := seconds(ledger.BudgetVariable, defaultBudget)
	if err != nil {
		return 0, err
	}
	reserve, err := seconds(ledger.ReserveVariable, 0)
	if err != nil {
		return 0, err
	}
	began, err := seconds(ledger.BeganVariable, time.Duration(now.Unix())*time.Second)
	if err != nil {
		return 0, err
	}
	return budget - reserve - rigSpan - now.Sub(time.Unix(int64(began/time.Second), 0)), nil
}

func seconds(variable string, otherwise time.Duration) (time.Duration, error) {
	value := os.Getenv(variable)
	if value == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q, want seconds", variable, value)
	}
	return time.Duration(n) * time.Second, nil
}
