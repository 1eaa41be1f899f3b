package start

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
)

func TestAnEtcdThatEndedByItselfSoonStartsWithoutItsCheck(t *testing.T) {
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
		"it ran for long":             {ended(false, launch.Exit{Code: 1, RanFor: soonAfter + time.Second}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := endedByItself(tc.report); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
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
