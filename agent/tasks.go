package agent

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Pauses before a loop that ended is begun again.
const (
	restartPause    = time.Second
	maxRestartPause = time.Minute
	// steady is the run time after which the end of a task is not attributed to its start.
	steady = 2 * time.Minute
)

// keep runs a task until ctx ends, and restarts it when it fails or panics. So no part of the agent ends because
// another part did.
func (a *Agent) keep(ctx context.Context, name string, run func(context.Context) error) {
	rest := loop.Backoff{First: restartPause, Last: maxRestartPause}
	for ctx.Err() == nil {
		started := time.Now()
		err := loop.Recover(func() error { return run(ctx) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) >= steady {
			rest.Reset()
		}
		a.metrics.restarts.WithLabelValues(name).Inc()
		a.log.ErrorContext(ctx, "task failed, restarting", "loop", name, "err", err)
		loop.Sleep(ctx, rest.Next())
	}
}

// The loops whose beat liveness looks at: the two that never wait for anything but a bounded call.
const (
	loopObserver = "observer"
	loopRenewer  = "renewer"
)

// beats records when each task last completed a cycle.
type beats struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newBeats() *beats {
	now := time.Now()
	return &beats{last: map[string]time.Time{loopObserver: now, loopRenewer: now}}
}

func (b *beats) beat(task string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[task] = time.Now()
}

// stuck returns the name of a task that has not completed a cycle within its bound, or an empty string.
func (b *beats) stuck(bounds map[string]time.Duration) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for task, last := range b.last {
		if time.Since(last) > bounds[task] {
			return task
		}
	}
	return ""
}

// stopGrace is how long etcd may take to exit when the agent stops it. Its data is not used again.
const stopGrace = 10 * time.Second

// finishRetry is the pause before the agent follows a start again after an error.
const finishRetry = time.Second

// resolvePending follows every etcd that launch runs until its start is complete: formed, promoted and cleaned up.
func (a *Agent) resolvePending(ctx context.Context) error {
	for {
		status, ok := a.await(ctx, launch.Status.Running)
		if !ok {
			return nil
		}
		pid := status.Report.PID
		done, err := a.follow(ctx, pid)
		switch {
		case err != nil:
			a.log.WarnContext(ctx, "start not completed, retrying", "err", err)
			loop.Sleep(ctx, finishRetry)
		case done:
			releaseUnused()
			a.prunes(ctx, pid)
		}
	}
}

// prunes deletes quarantined data whose time ends, until launch runs another etcd than pid. launch holds the lock of the volume only while
// it is connected.
func (a *Agent) prunes(ctx context.Context, pid int) {
	for {
		if _, err := a.whileRuns(ctx, pid, a.bootstrapper.PruneQuarantined); err != nil {
			a.log.WarnContext(ctx, "quarantined data not deleted, retrying", "err", err)
			loop.Sleep(ctx, finishRetry)
		}
		status, ok := a.await(ctx, func(s launch.Status) bool { return s.Connected && (s.Running() || s.Report.PID != pid) })
		if !ok || status.Report.PID != pid {
			return
		}
	}
}

// follow runs FinishStart while launch is connected and runs etcd as pid. It reports whether the start of that etcd is
// complete. FinishStart writes to the volume, whose lock launch holds. After launch has ended, the lock can belong to a
// later Pod.
func (a *Agent) follow(ctx context.Context, pid int) (done bool, err error) {
	ended, err := a.whileRuns(ctx, pid, a.bootstrapper.FinishStart)
	return err == nil && !ended, err
}

// whileRuns calls run with a context that ends when launch does not run etcd as pid any more, and a function that stops that etcd.
// It reports whether etcd ended first. An error of run is then of no interest.
func (a *Agent) whileRuns(ctx context.Context, pid int, run func(context.Context, func(context.Context, string) error) error) (ended bool, err error) {
	running, end := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error {
		defer end()
		a.await(running, func(s launch.Status) bool { return !s.Running() || s.Report.PID != pid })
		return nil
	})
	defer func() { end(); _ = group.Wait() }() // it ends with running
	err = run(running, func(ctx context.Context, reason string) error { return a.launch.Stop(ctx, stopGrace, reason) })
	if running.Err() != nil {
		return true, nil
	}
	return false, err
}

// watchOrders stops an etcd without a quorum if the cluster record calls for that.
func (a *Agent) watchOrders(ctx context.Context) error {
	return a.watch(ctx, "recovery", a.bootstrapper.WatchOrders)
}

// watchDifference stops an etcd whose data differs from that of a majority of all voters.
func (a *Agent) watchDifference(ctx context.Context) error {
	return a.watch(ctx, "differing", a.differing.Run)
}

// watch follows each etcd that launch runs, and calls run, which can stop it, for a task of the agent.
func (a *Agent) watch(ctx context.Context, task string, run func(context.Context, func(context.Context, string) error) error) error {
	for {
		status, ok := a.await(ctx, launch.Status.Running)
		if !ok {
			return nil
		}
		if _, err := a.whileRuns(ctx, status.Report.PID, run); err != nil {
			a.log.WarnContext(ctx, "etcd not stopped, retrying", "task", task, "err", err)
			loop.Sleep(ctx, finishRetry)
		}
	}
}

// await blocks until the status of launch is as wanted. It returns false if ctx ended, also if the status is as wanted: otherwise, the loops
// that wait for an etcd that runs would never end.
func (a *Agent) await(ctx context.Context, wanted func(launch.Status) bool) (launch.Status, bool) {
	for {
		status, changed := a.launch.State()
		switch {
		case ctx.Err() != nil:
			return status, false
		case wanted(status):
			return status, true
		}
		select {
		case <-ctx.Done():
			return status, false
		case <-changed:
		}
	}
}

// decider is the Bootstrapper with the function that moves leadership away.
type decider struct {
	*start.Bootstrapper
	agent *Agent
}

// Stopping does what must happen before etcd stops.
func (d decider) Stopping(ctx context.Context) { d.handOver(ctx) }

// transfer moves leadership to another voter before etcd stops. etcd does so too, but with an open watch it first
// waits for its clients, which leaves the cluster without a leader for seconds.
func (d decider) transfer(ctx context.Context) {
	to, err := duties.Transfer(ctx, d.agent.clients.Dial, d.agent.local())
	switch {
	case err != nil:
		d.agent.log.WarnContext(ctx, "leadership transfer failed", "err", err)
	case to != 0:
		d.agent.log.InfoContext(ctx, "leadership transferred", "memberID", leases.FormatID(to))
	}
}

// defragPolicy returns the policy for defragmentations at now from the configuration. saved says whether the cluster
// has backups, quota is the quota of its members.
func defragPolicy(d config.Defragmentation, saved bool, quota int64, now time.Time) duties.DefragPolicy {
	p := duties.DefragPolicy{
		Enabled: rules.AnswerOf(d.Enabled), Window: rules.Unknown, Scheduled: rules.AnswerOf(d.Schedule != ""),
		Interval: time.Duration(d.Interval),
		Nospace: duties.NospacePolicy{
			Enabled: rules.AnswerOf(d.Enabled && d.OutOfSpace != config.OutOfSpaceNothing),
			Compact: rules.AnswerOf(d.OutOfSpace == config.OutOfSpaceCompact),
			Window:  time.Duration(d.HistoryWindow), Saved: saved, Quota: quota,
		},
		Thresholds: membership.Thresholds{FreePercent: d.MinFreePercent, FreeBytes: d.MinFreeBytes},
	}
	if open, err := d.Open(now); err == nil { // the decision reports a schedule that cannot be read
		p.Window = rules.AnswerOf(open)
	}
	return p
}

// compared reports a comparison of the members.
func (a *Agent) compared(c membership.Comparison, equal bool) {
	a.equal.Store(equal)
	a.metrics.compared(c)
}

// alarmed writes the handling of an alarm to the member Lease, where druid reads it.
func (a *Agent) alarmed(d membership.NospaceDecision) {
	alarm := ""
	if d.Rule != "" {
		alarm = d.Rule
		if d.Verdict == membership.NospaceWait || d.Verdict == membership.NospaceKeep {
			alarm += ": " + d.Why
		}
	}
	a.facts.alarmed(alarm)
	a.publish()
}

// barriers are the rules with which the member Lease reports that launch has no volume to start etcd on. There is then
// no start decision, because the agent must not read the volume before launch holds its lock.
var barriers = map[launch.State]start.Decision{
	launch.StateBlocked:  {Mode: start.ModeWait, Rule: "data-in-use"},
	launch.StateUnusable: {Mode: start.ModeRefuse, Rule: "volume-unusable"},
}

// watchBarriers reports in the Lease what prevents launch from using the volume, in the words of launch, and when that
// has ended.
func (a *Agent) watchBarriers(ctx context.Context) error {
	var reported start.Decision
	for {
		status, changed := a.launch.State()
		barrier := barriers[status.Report.State]
		if barrier.Rule != "" {
			barrier.Reason = status.Report.Error
		}
		// The report of a launch that is gone remains valid until the next launch reports.
		if status.Connected && barrier != reported {
			a.facts.bar(barrier)
			a.publish()
			reported = barrier
			a.log.InfoContext(ctx, "volume status changed", "mode", barrier.Mode, "rule", barrier.Rule, "reason", barrier.Reason)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
