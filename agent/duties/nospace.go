package duties

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// nospaceTable is the name of the alarm decisions in the metric of all decisions.
const nospaceTable = "membership.nospaceRules"

// NospacePolicy is the configuration in force for the alarm NOSPACE.
type NospacePolicy struct {
	// Enabled says that the agents act on the alarm. Compact says that they may compact old revisions.
	Enabled, Compact rules.Answer
	// Window is the age up to which revisions are kept for clients, measured from when a leader's agent saw them.
	// After a compaction, the members have the same time to free space before the agent concludes that no more
	// follows. etcd frees a thousand revisions each 10 ms (server/storage/mvcc, defaultCompactionBatchLimit), which is
	// thirty million in five minutes.
	Window time.Duration
	// Saved says that the cluster is backed up. Then the agent compacts only revisions that are backed up.
	Saved bool
	// Quota of the agent's own member in bytes. It is assumed for members that do not report theirs.
	Quota int64
}

// spaceMemory is what one leadership knows of the key space and of the alarm.
type spaceMemory struct {
	// seen has revisions and when they were seen first, oldest first. At most one is older than the window.
	seen []seenRevision
	// compactedAt is when this leadership last compacted.
	compactedAt time.Time
	last        membership.NospaceDecision
}

type seenRevision struct {
	revision int64
	at       time.Time
}

// see records the present revision and drops the ones that aged does not need.
func (c *spaceMemory) see(revision int64, now time.Time, window time.Duration) {
	if n := len(c.seen); revision > 0 && (n == 0 || c.seen[n-1].revision < revision) {
		c.seen = append(c.seen, seenRevision{revision, now})
	}
	for len(c.seen) > 1 && now.Sub(c.seen[1].at) >= window {
		c.seen = c.seen[1:]
	}
}

// aged returns the newest revision that existed one window ago, 0 if that is not known, and the last revision that was
// seen.
func (c *spaceMemory) aged(now time.Time, window time.Duration) (aged, newest int64) {
	if len(c.seen) == 0 {
		return 0, 0
	}
	if oldest := c.seen[0]; now.Sub(oldest.at) >= window {
		aged = oldest.revision
	}
	return aged, c.seen[len(c.seen)-1].revision
}

// nospace takes the next step for etcd's alarms. acted reports whether it changed something. The progress is read from
// etcd: the alarms, the compacted revision and the sizes of the files.
func (r *databases) nospace(ctx context.Context, self Cluster, view membership.View, policy DefragPolicy) (acted bool, err error) {
	status, err := r.localStatus(ctx)
	if err != nil {
		return false, err
	}
	r.spaceMemory.see(status.Revision, time.Now(), policy.Nospace.Window)
	c := alarmState{sizes: sizes{self: self, view: view, thresholds: policy.Thresholds}, facts: membership.NospaceFacts{
		Alarms: membership.NoAlarm, Enabled: policy.Nospace.Enabled, Authoritative: rules.Unknown, Leads: rules.Unknown,
		Fill: membership.FillUnknown, History: membership.HistoryUnknown, Stable: rules.Unknown, Healthy: rules.Unknown,
		Room: rules.Unknown, Alone: rules.Unknown, Moved: rules.Unknown,
	}}
	if status.Alarmed() {
		r.diagnose(ctx, &c, policy.Nospace)
	}
	d := membership.DecideNospace(c.facts)
	if d.Verdict != membership.NospaceKeep && d.Verdict != membership.NospaceWait {
		// The step is due according to the last read of Kubernetes. Read it again before the step.
		if err := r.freshAlarmState(ctx, &c); err != nil {
			return false, err
		}
		d = membership.DecideNospace(c.facts)
	}
	r.noteNospace(ctx, c, d)
	return r.applyNospace(ctx, c, d)
}

// applyNospace carries out the decision.
func (r *databases) applyNospace(ctx context.Context, c alarmState, d membership.NospaceDecision) (acted bool, err error) {
	switch d.Verdict {
	case membership.NospaceCompact:
		return true, r.compactHistory(ctx, c.target)
	case membership.NospaceDefrag:
		_, err := r.defragOne(ctx, c.sizes)
		return true, err
	case membership.NospaceMove:
		return true, r.moveFor(ctx, c.sizes, d.Rule)
	case membership.NospaceDisarm:
		return true, r.disarm(ctx, c.raised)
	case membership.NospaceKeep, membership.NospaceWait:
	}
	return false, nil
}

// compactHistory discards the revisions older than revision. It succeeds if they are compacted already.
func (r *databases) compactHistory(ctx context.Context, revision int64) error {
	err := r.withLocal(ctx, func(ctx context.Context, client *clientv3.Client) error {
		crash.Before("compact-history")
		err := membership.Compact(ctx, client, revision)
		crash.After("compact-history")
		if errors.Is(err, membership.ErrCompacted) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	r.spaceMemory.compactedAt = time.Now()
	r.Log.WarnContext(ctx, "old revisions compacted", "revision", revision, "rule", "compact")
	return nil
}

// disarm clears the alarms NOSPACE.
func (r *databases) disarm(ctx context.Context, raised []membership.Alarm) error {
	return r.disarmEach(ctx, raised, membership.AlarmNoSpace, func(ctx context.Context, client *clientv3.Client, alarm membership.Alarm) error {
		crash.Before("disarm-no-space")
		err := membership.Disarm(ctx, client, alarm)
		crash.After("disarm-no-space")
		return err
	})
}

// disarmEach clears the alarms of one type member by member, so that alarms of other types stay.
func (r *round) disarmEach(ctx context.Context, raised []membership.Alarm, kind string,
	disarm func(context.Context, *clientv3.Client, membership.Alarm) error,
) error {
	return r.withLocal(ctx, func(ctx context.Context, client *clientv3.Client) error {
		for _, alarm := range raised {
			if alarm.Type != kind {
				continue
			}
			if err := disarm(ctx, client, alarm); err != nil {
				return err
			}
			r.Log.WarnContext(ctx, "alarm disarmed", "alarm", alarm.Type, "memberID", leases.FormatID(alarm.MemberID))
		}
		return nil
	})
}

// noteNospace counts, logs and reports a decision once per change. It also reports decisions to wait, because etcd
// refuses writes meanwhile and you might have to act.
func (r *databases) noteNospace(ctx context.Context, c alarmState, d membership.NospaceDecision) {
	if r.spaceMemory.last.Rule == d.Rule {
		return
	}
	quiet := d.Rule == "no-alarm"
	if quiet && r.spaceMemory.last.Rule == "" {
		r.spaceMemory.last = d
		return // as in every cluster that is well
	}
	r.reportAlarm(d)
	r.Decisions.WithLabelValues(nospaceTable, d.Rule).Inc()
	if quiet {
		r.Log.InfoContext(ctx, "alarm NOSPACE resolved")
		return
	}
	r.Log.WarnContext(ctx, "alarm NOSPACE decision changed", "member", c.member.Name, "mode", d.Verdict, "rule", d.Rule, "reason", d.Why,
		"revision", c.target)
}

// reportAlarm reports the decision if it differs from the last one.
func (r *databases) reportAlarm(d membership.NospaceDecision) {
	if r.Alarmed != nil && r.spaceMemory.last != d {
		reported := d
		if d.Rule == "no-alarm" {
			reported = membership.NospaceDecision{}
		}
		r.Alarmed(reported)
	}
	r.spaceMemory.last = d
}
