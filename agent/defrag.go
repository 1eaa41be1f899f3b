package agent

import (
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/leader"
	"github.com/etcd-druid/druid/membership"
)

// defragPolicy is what the configuration says of defragmentations at now.
func defragPolicy(d config.Defragmentation, now time.Time) leader.DefragPolicy {
	p := leader.DefragPolicy{
		Enabled: membership.AnswerOf(d.Enabled), Window: membership.Unknown, Scheduled: membership.AnswerOf(d.Schedule != ""),
		Interval:   time.Duration(d.Interval),
		Thresholds: membership.Thresholds{FreePercent: d.MinFreePercent, FreeBytes: d.MinFreeBytes},
	}
	if open, err := d.Open(now); err == nil { // the decision tells of a schedule that cannot be read
		p.Window = membership.AnswerOf(open)
	}
	return p
}
