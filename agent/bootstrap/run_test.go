package bootstrap

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
)

func TestAnEtcdThatEndsAgainAndAgainIsGivenARest(t *testing.T) {
	crashed := func(times int, ran time.Duration) launch.Report {
		return launch.Report{Crashes: times, LastExit: &launch.Exit{Code: 1, RanFor: ran}}
	}
	killed := launch.Report{Crashes: 1, LastExit: &launch.Exit{Code: -1, Signal: "killed"}}
	notRun := launch.Report{Clean: true, LastExit: &launch.Exit{Code: -1, Message: "no such file"}}
	tests := map[string]struct {
		attempts int
		reports  []launch.Report
		want     []time.Duration
	}{
		"none before the first start":       {0, []launch.Report{{}}, []time.Duration{0}},
		"none after the first crash":        {0, []launch.Report{crashed(1, 0), killed}, []time.Duration{0, 0}},
		"doubling, up to a bound":           {0, []launch.Report{crashed(2, 0), crashed(3, 0), crashed(99, 0)}, []time.Duration{time.Second, 2 * time.Second, maxCrashPause}},
		"none for one that ran for a while": {0, []launch.Report{crashed(9, time.Minute)}, []time.Duration{0}},
		"none for a learner that lost a race with another joiner": {
			2, []launch.Report{crashed(2, 0)}, []time.Duration{0},
		},
		"doubling for a program that cannot be run, also a joiner's": {
			2, []launch.Report{notRun, notRun, notRun, notRun, notRun, notRun, notRun},
			[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, maxCrashPause, maxCrashPause},
		},
		"begun again once it could be run": {0, []launch.Report{notRun, notRun, crashed(1, 0), notRun}, []time.Duration{time.Second, 2 * time.Second, 0, time.Second}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := &Bootstrapper{joining: joining{attempts: tc.attempts}}
			for i, report := range tc.reports {
				if got, why := b.crashRest(report); got != tc.want[i] {
					t.Errorf("rest %d: %s (%s), want %s", i, got, why, tc.want[i])
				}
			}
		})
	}
}
