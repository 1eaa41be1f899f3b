package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
)

// Next observes, decides and acts until etcd may start. It implements launch.Decider's half: the caller holds the volume's
// lock for as long as it runs.
func (b *Bootstrapper) Next(ctx context.Context, idle launch.Idle, inform func(launch.Order)) (launch.Order, error) {
	b.forgetVolume()
	b.leaseAt, b.started, b.bootstraps = time.Time{}, time.Now(), bootstraps{}
	notified := ""
	say := func(reason string) {
		if reason != notified {
			notified = reason
			inform(waiting(reason))
		}
	}
	for ctx.Err() == nil {
		order, reason, err := b.step(ctx, idle.Report)
		switch {
		case errors.Is(err, errNotYet):
			say(err.Error())
			continue
		case err != nil && ctx.Err() == nil:
			b.fail(ctx, err)
			say(fmt.Sprintf("%s: %s", b.last.Rule, err))
		case order != nil:
			if !b.restAfterCrash(ctx, idle.Report, say) {
				break
			}
			return *order, nil
		case reason != "":
			say(reason)
		default:
			continue // something was done: look again at once
		}
		pause(ctx, b.interval())
	}
	return launch.Order{}, context.Cause(ctx)
}

// step is one look and what follows from it: an order, the reason of a wait, or neither where something was done.
func (b *Bootstrapper) step(ctx context.Context, report launch.Report) (*launch.Order, string, error) {
	o := b.observe(ctx, report, false)
	d := b.decide(&o)
	if needsFreshLease(d) && !o.fresh {
		o = b.observe(ctx, report, true)
		d = b.decide(&o)
	}
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	d.Reason = o.reason(d)
	b.publish(ctx, d, &o)
	if d.Mode == ModeWait || d.Mode == ModeRefuse {
		return nil, d.Reason, nil
	}
	order, err := b.act(ctx, d, &o)
	return order, "", err
}

// fail logs why an act did not succeed, once per change.
func (b *Bootstrapper) fail(ctx context.Context, err error) {
	if err.Error() != b.failed {
		b.failed = err.Error()
		b.log.WarnContext(ctx, "start decision failed", "rule", b.last.Rule, "err", err)
	}
}

// needsFreshLease: everything but Resume is decided by what was read just now (R1).
func needsFreshLease(d Decision) bool {
	return d.Mode != ModeResume && d.Mode != ModeWait && d.Mode != ModeRefuse
}

// publish reports a decision, once per change.
func (b *Bootstrapper) publish(ctx context.Context, d Decision, o *observation) {
	changed := d.Rule != b.last.Rule
	if changed {
		b.started = time.Now()
		b.metrics.WithLabelValues(startTable, d.Rule).Inc()
		b.log.InfoContext(ctx, "start decided", "mode", d.Mode, "rule", d.Rule, "reason", d.Reason, "facts", o.Facts)
	}
	if changed || d.Reason != b.last.Reason {
		b.decided(Published{Decision: d, Data: o.dataWords()})
	}
	b.last = d
}

// dataWords is the state of the data for the member Lease.
func (o *observation) dataWords() string {
	if o.Data == Corrupt {
		return o.volume.report.String()
	}
	return o.Data.String()
}

// interval grows once a wait lasts: a cluster that waits for a person costs little.
func (b *Bootstrapper) interval() time.Duration {
	if over := time.Since(b.started) - calmAfter; over > 0 {
		return min(calmInterval, b.poll+over/8)
	}
	return b.poll
}

// Pauses before an etcd that keeps crashing is started again: none after the first crash, then doubling.
const (
	crashPause, maxCrashPause = time.Second, 30 * time.Second
	// soonAfter: an etcd that ran longer than this did not crash by being started.
	soonAfter = 10 * time.Second
)

// restAfterCrash waits before the next start of an etcd that ends again and again; false means that ctx ended.
func (b *Bootstrapper) restAfterCrash(ctx context.Context, report launch.Report, say func(string)) bool {
	rest, why := b.crashRest(report)
	if rest == 0 {
		return ctx.Err() == nil
	}
	say(fmt.Sprintf("%s; it is started again in %s", why, rest))
	return pause(ctx, rest)
}

// crashRest is how long to wait and why. A program that could not be run at all is no crash of etcd, which launch counts,
// but at once it would fail again: each such start may cost a claim in the record.
func (b *Bootstrapper) crashRest(report launch.Report) (rest time.Duration, why string) {
	exit := report.LastExit
	if exit != nil && exit.Code == -1 && exit.Signal == "" {
		b.notRun++
		return doubling(b.notRun - 1), "etcd could not be started: " + exit.Message
	}
	b.notRun = 0
	// The starts of a learner that lost the race with another joiner end too, and are to be repeated at once.
	if report.Crashes < 2 || exit == nil || exit.RanFor > soonAfter || b.joining.attempts > 1 {
		return 0, ""
	}
	return doubling(report.Crashes - 2), fmt.Sprintf("etcd ended %d times in a row, last with code %d %s; its log says why",
		report.Crashes, exit.Code, exit.Signal)
}

func doubling(times int) time.Duration { return min(maxCrashPause, crashPause<<min(times, 5)) }
