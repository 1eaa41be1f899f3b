package agent

import (
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/leader"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/membership"
)

// defragPolicy is what the configuration says of defragmentations at now, of a cluster that is backed up or not and whose members have a
// quota.
func defragPolicy(d config.Defragmentation, saved bool, quota int64, now time.Time) leader.DefragPolicy {
	p := leader.DefragPolicy{
		Enabled: rules.AnswerOf(d.Enabled), Window: rules.Unknown, Scheduled: rules.AnswerOf(d.Schedule != ""),
		Interval: time.Duration(d.Interval),
		Cure: leader.CurePolicy{
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
func (a *Agent) alarmed(d membership.CureDecision) {
	alarm := ""
	if d.Rule != "" {
		alarm = d.Rule
		if d.Verdict == membership.CureWait || d.Verdict == membership.CureKeep {
			alarm += ": " + d.Why
		}
	}
	a.facts.alarmed(alarm)
	a.publish()
}
