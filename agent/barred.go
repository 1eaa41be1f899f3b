package agent

import (
	"context"

	"github.com/etcd-druid/druid/agent/bootstrap"
	"github.com/etcd-druid/druid/agent/launch"
)

// barriers are the rules under which the member Lease reports that launch has no volume to start etcd on. Then no one asks
// for a start decision: nothing on the volume may be looked at before launch holds its lock.
var barriers = map[launch.State]bootstrap.Decision{
	launch.StateBlocked:  {Mode: bootstrap.ModeWait, Rule: "data-in-use"},
	launch.StateUnusable: {Mode: bootstrap.ModeRefuse, Rule: "volume-unusable"},
}

// watchBarriers reports in the Lease what bars launch from the volume, in launch's words, and when it is gone.
func (a *Agent) watchBarriers(ctx context.Context) error {
	var notified bootstrap.Decision
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
