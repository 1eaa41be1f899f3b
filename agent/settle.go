package agent

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/bootstrap"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/leader"
	"github.com/etcd-druid/druid/leases"
)

// stopGrace is what an etcd may take to end when the agent wants it to: it is one whose data no one will use.
const stopGrace = 10 * time.Second

// settleRetry is the pause before a start that could not be followed is followed again.
const settleRetry = time.Second

// settle follows every etcd that launch runs until its start is complete: formed, promoted, cleaned up.
func (a *Agent) settle(ctx context.Context) error {
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
			pause(ctx, settleRetry)
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
	err = a.bootstrapper.Settle(running, func(ctx context.Context, reason string) error {
		return a.launch.Stop(ctx, stopGrace, reason)
	})
	if running.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
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
	*bootstrap.Bootstrapper
	agent *Agent
}

// Stopping is the place for what must come before etcd ends.
func (d decider) Stopping(ctx context.Context) { d.handOver(ctx) }

// transfer moves leadership to another voter before etcd stops. etcd does so itself, but with an open watch only after it
// has waited for its clients, seconds without a leader.
func (d decider) transfer(ctx context.Context) {
	o := d.agent.options
	to, err := leader.Transfer(ctx, o.Transport.Etcd, d.agent.local())
	switch {
	case err != nil:
		d.agent.log.WarnContext(ctx, "leadership not moved", "err", err)
	case to != 0:
		d.agent.log.InfoContext(ctx, "leadership moved", "memberID", leases.FormatID(to))
	}
}
