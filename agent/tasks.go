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
	// steady: a loop that ran for this long did not end by being started.
	steady = 2 * time.Minute
)

// keep runs a loop until ctx ends, and begins it again when it fails or panics: nothing of the agent ends because
// something else of it did.
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
		a.log.ErrorContext(ctx, "loop ended", "loop", name, "err", err)
		loop.Sleep(ctx, rest.Next())
	}
}

// The loops whose beat liveness looks at: the two that never wait for anything but a bounded call.
const (
	loopObserver = "observer"
	loopRenewer  = "renewer"
)

// beats remembers when each loop last came round.
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

// stuck names a loop that has not come round within its bound, or nothing.
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

// stopGrace is what an etcd may take to end when the agent wants it to: it is one whose data no one will use.
const stopGrace = 10 * time.Second

// settleRetry is the pause before a start that could not be followed is followed again.
const finishRetry = time.Second

// settle follows every etcd that launch runs until its start is complete: formed, promoted, cleaned up.
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
			a.log.WarnContext(ctx, "start not followed", "err", err)
			loop.Sleep(ctx, finishRetry)
		case done:
			releaseUnused()
			a.await(ctx, func(s launch.Status) bool { return s.Connected && s.Report.PID != pid })
		}
	}
}

// follow runs Settle for as long as launch is there and runs etcd as pid, and says whether nothing is left to do for that
// etcd. Settle writes on the volume, whose lock is launch's: once launch is gone, it may be a successor's.
func (a *Agent) follow(ctx context.Context, pid int) (done bool, err error) {
	running, end := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error {
		defer end()
		a.await(running, func(s launch.Status) bool { return !s.Running() || s.Report.PID != pid })
		return nil
	})
	defer func() { end(); _ = group.Wait() }() // it ends with running
	err = a.bootstrapper.FinishStart(running, func(ctx context.Context, reason string) error {
		return a.launch.Stop(ctx, stopGrace, reason)
	})
	if running.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// await blocks until launch's status is as wanted; false means that ctx ended before.
func (a *Agent) await(ctx context.Context, wanted func(launch.Status) bool) (launch.Status, bool) {
	for {
		status, changed := a.launch.State()
		if wanted(status) {
			return status, true
		}
		select {
		case <-ctx.Done():
			return status, false
		case <-changed:
		}
	}
}

// decider is the Bootstrapper with what only the wiring knows: how to move leadership away.
type decider struct {
	*start.Bootstrapper
	agent *Agent
}

// Stopping is the place for what must come before etcd ends.
func (d decider) Stopping(ctx context.Context) { d.handOver(ctx) }

// transfer moves leadership to another voter before etcd stops. etcd does so itself, but with an open watch only after it
// has waited for its clients, seconds without a leader.
func (d decider) transfer(ctx context.Context) {
	o := d.agent.options
	to, err := duties.Transfer(ctx, o.Transport.Etcd, d.agent.local())
	switch {
	case err != nil:
		d.agent.log.WarnContext(ctx, "leadership not moved", "err", err)
	case to != 0:
		d.agent.log.InfoContext(ctx, "leadership moved", "memberID", leases.FormatID(to))
	}
}

// defragPolicy is what the configuration says of defragmentations at now, of a cluster that is backed up or not and whose members have a
// quota.
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

// alarmed brings what is done about an alarm into our Lease, where druid reads it.
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

// barriers are the rules under which the member Lease reports that launch has no volume to start etcd on. Then no one asks
// for a start decision: nothing on the volume may be looked at before launch holds its lock.
var barriers = map[launch.State]start.Decision{
	launch.StateBlocked:  {Mode: start.ModeWait, Rule: "data-in-use"},
	launch.StateUnusable: {Mode: start.ModeRefuse, Rule: "volume-unusable"},
}

// watchBarriers reports in the Lease what bars launch from the volume, in launch's words, and when it is gone.
func (a *Agent) watchBarriers(ctx context.Context) error {
	var notified start.Decision
	for {
		status, changed := a.launch.State()
		barrier := barriers[status.Report.State]
		if barrier.Rule != "" {
			barrier.Reason = status.Report.Error
		}
		// What a launch said that is gone holds until the next one says otherwise.
		if status.Connected && barrier != notified {
			a.facts.bar(barrier)
			a.publish()
			notified = barrier
			a.log.InfoContext(ctx, "volume judged", "mode", barrier.Mode, "rule", barrier.Rule, "reason", barrier.Reason)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
