package start

import (
	"context"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/loop"
)

// interval grows during a long wait, so that a cluster that waits for user action costs little.
func (b *Bootstrapper) interval() time.Duration {
	if over := time.Since(b.started) - calmAfter; over > 0 {
		return min(calmInterval, b.poll+over/8)
	}
	return b.poll
}

// Pauses before an etcd that keeps crashing is started again: none after the first crash, then doubling.
const (
	crashPause, maxCrashPause = time.Second, 30 * time.Second
	// soonAfter separates crashes at start from later ones: an etcd that ran longer did not crash because of its
	// start.
	soonAfter = 10 * time.Second
)

// restAfterCrash waits before the next start of an etcd that exits repeatedly. It returns false if ctx ended.
func (b *Bootstrapper) restAfterCrash(ctx context.Context, report launch.Report, say func(string)) bool {
	rest, why := b.crashRest(report)
	if rest == 0 {
		return ctx.Err() == nil
	}
	say(fmt.Sprintf("%s; the next start is in %s", why, rest))
	return loop.Sleep(ctx, rest)
}

// crashRest returns how long to wait and why. launch counts only crashes of etcd. A program that could not be run is
// not one of them. But it would fail again at once, and each such start can cost a claim in the record.
func (b *Bootstrapper) crashRest(report launch.Report) (rest time.Duration, why string) {
	exit := report.LastExit
	if exit != nil && exit.Code == -1 && exit.Signal == "" {
		b.notRun++
		return doubling(b.notRun - 1), "etcd could not be started: " + exit.Message
	}
	b.notRun = 0
	// A learner that lost the race with another joining member exits too. It is started again at once.
	if report.Crashes < 2 || exit == nil || exit.RanFor > soonAfter || b.joining.attempts > 1 {
		return 0, ""
	}
	return doubling(report.Crashes - 2), fmt.Sprintf("etcd exited %d times in a row, last with code %d %s; see the log of the etcd container",
		report.Crashes, exit.Code, exit.Signal)
}

func doubling(times int) time.Duration { return min(maxCrashPause, crashPause<<min(times, 5)) }
