package start

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
)

// TestSoonEndedEtcdStartsUnchecked: an etcd that ended by itself soon starts without its check.
func TestSoonEndedEtcdStartsUnchecked(t *testing.T) {
	ended := func(clean bool, exit launch.Exit) launch.Report { return launch.Report{Clean: clean, LastExit: &exit} }
	for name, tc := range map[string]struct {
		report launch.Report
		want   bool
	}{
		"its check failed":            {ended(false, launch.Exit{Code: 1, RanFor: 3 * time.Second}), true},
		"it was the first":            {launch.Report{}, false},
		"it was stopped":              {ended(true, launch.Exit{Code: 1, RanFor: 3 * time.Second}), false},
		"it ended well":               {ended(false, launch.Exit{RanFor: 3 * time.Second}), false},
		"it was killed":               {ended(false, launch.Exit{Code: -1, Signal: "killed", RanFor: 3 * time.Second}), false},
		"the program could not start": {ended(false, launch.Exit{Code: -1, Message: "no such file"}), false},
		"its check took long":         {ended(false, launch.Exit{Code: 1, RanFor: 4 * time.Minute}), true},
		"it ran for longer":           {ended(false, launch.Exit{Code: 1, RanFor: checkBound + time.Second}), false},
	} {
		t.Run(name, func(t *testing.T) {
			for listed := NoQuorum; listed <= Voter; listed <<= 1 {
				if got, want := startsUnchecked(tc.report, listed), tc.want && listed != NoQuorum; got != want {
					t.Errorf("listed %s: got %t, want %t", listed, got, want)
				}
			}
		})
	}
}

// failed is the report of an etcd whose initial check ended it.
func failed(crashes int) launch.Report {
	return launch.Report{State: launch.StateIdle, Crashes: crashes, LastExit: &launch.Exit{Code: 1, RanFor: 3 * time.Second}}
}

// An unchecked start never forms a quorum: with a third member down, the other one alone is none.
func TestUncheckedStartNeedsQuorum(t *testing.T) {
	c, _ := formed(t)
	again := c.members["c-c"]
	again.halt()
	b := again.boot()
	starts := func(crashes int) (unchecked bool, inform []string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), maxWait)
		defer cancel()
		order, err := b.Next(ctx, launch.Idle{Report: failed(crashes)}, func(o launch.Order) {
			if inform = append(inform, o.Reason); crashes > 1 {
				c.members["c-b"].halt()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		unchecked = slices.ContainsFunc(order.Argv, func(arg string) bool { return strings.Contains(arg, "InitialCorruptCheck=false") })
		if b.Unchecked() != unchecked {
			t.Errorf("Unchecked is %t, and etcd starts with %s", !unchecked, order.Argv)
		}
		return unchecked, inform
	}
	if unchecked, _ := starts(1); !unchecked {
		t.Error("next to a quorum of the others, etcd does not start without its check")
	}
	unchecked, inform := starts(2) // c-b goes down in the pause before the start
	if unchecked || len(inform) == 0 {
		t.Errorf("with another member down, etcd starts without its check; said %q", inform)
	}
	if unchecked, _ := starts(1); unchecked {
		t.Error("with another member down since long, etcd starts without its check")
	}
}

// The quorum is asked again after everything else that precedes a start.
func TestALostQuorumStartsNothingUnchecked(t *testing.T) {
	c, _ := formed(t)
	again := c.members["c-c"]
	again.halt()
	b := again.boot()
	decided, lost := b.decided, false
	b.decided = func(p Published) {
		decided(p)
		if p.Mode == ModeResume && !lost { // it is published between the observation and the act
			lost = true
			c.members["c-b"].halt()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	order, err := b.Next(ctx, launch.Idle{Report: failed(1)}, func(launch.Order) {})
	if err != nil {
		t.Fatal(err)
	}
	if !lost || b.Unchecked() || slices.ContainsFunc(order.Argv, func(arg string) bool { return strings.Contains(arg, "InitialCorruptCheck=false") }) {
		t.Errorf("with c-b lost (%t) after the decision, etcd starts with %s", lost, order.Argv)
	}
}

func TestOnlyAnUncheckedStartTurnsTheCheckOff(t *testing.T) {
	for minor, flags := range map[int][2]string{
		5: {"--experimental-initial-corrupt-check=true", "--experimental-initial-corrupt-check=false"},
		6: {"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true", "--feature-gates=InitialCorruptCheck=false,CompactHashCheck=true"},
		7: {"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true", "--feature-gates=InitialCorruptCheck=false,CompactHashCheck=true"},
	} {
		for unchecked, want := range map[bool]string{false: flags[0], true: flags[1]} {
			args := ofMinor(minor, start{unchecked: unchecked})
			if !slices.Contains(args, want) {
				t.Errorf("etcd 3.%d, unchecked %t: %s, want %s", minor, unchecked, strings.Join(args, " "), want)
			}
		}
	}
}
