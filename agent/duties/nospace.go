package duties

import (
	"context"
	"errors"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// cureTable is the name of what is done about alarms in the metric of all decisions.
const nospaceTable = "membership.cures"

// CurePolicy is what the configuration in force says of the alarm NOSPACE.
type NospacePolicy struct {
	// Enabled: the agents act on it; Compact: old revisions may be compacted for it.
	Enabled, Compact rules.Answer
	// Window of revisions that is kept for clients, by the time at which a leader's agent saw them. As long the members may take to free
	// what was compacted before it is believed that no more comes: etcd frees a thousand revisions each 10 ms (server/storage/mvcc,
	// defaultCompactionBatchLimit), thirty million in five minutes.
	Window time.Duration
	// Saved: the cluster is backed up, so only what is backed up may be compacted.
	Saved bool
	// Quota of our own member in bytes, which stands for those that do not report theirs.
	Quota int64
}

// curing is what one leadership knows of the key space and of the alarm.
type recovering struct {
	// seen are revisions and when we saw them first, oldest first; at most one is older than the window.
	seen []seenRevision
	// compactedAt is when we last compacted.
	compactedAt time.Time
	last        membership.NospaceDecision
}

type seenRevision struct {
	revision int64
	at       time.Time
}

// see notes the present revision and forgets what is not needed to report which one was there a window ago.
func (c *recovering) see(revision int64, now time.Time, window time.Duration) {
	if n := len(c.seen); revision > 0 && (n == 0 || c.seen[n-1].revision < revision) {
		c.seen = append(c.seen, seenRevision{revision, now})
	}
	for len(c.seen) > 1 && now.Sub(c.seen[1].at) >= window {
		c.seen = c.seen[1:]
	}
}

// aged is the newest revision that was there a window ago, 0 when that is not known; newest is the last one that was seen.
func (c *recovering) aged(now time.Time, window time.Duration) (aged, newest int64) {
	if len(c.seen) == 0 {
		return 0, 0
	}
	if oldest := c.seen[0]; now.Sub(oldest.at) >= window {
		aged = oldest.revision
	}
	return aged, c.seen[len(c.seen)-1].revision
}

// cure does the next thing about etcd's alarms; acted says that something was done. What is left to do is seen in etcd: which alarms
// stand, what is compacted, how large the files are.
func (r *round) nospace(ctx context.Context, self Cluster, view membership.View, policy DefragPolicy) (acted bool, err error) {
	status, err := r.localStatus(ctx)
	if err != nil {
		return false, err
	}
	r.recovering.see(status.Revision, time.Now(), policy.Nospace.Window)
	c := alarmState{sizes: sizes{self: self, view: view, thresholds: policy.Thresholds}, facts: membership.NospaceFacts{
		Alarms: membership.NoAlarm, Enabled: policy.Nospace.Enabled, Authoritative: rules.Unknown, Leads: rules.Unknown,
		Fill: membership.FillUnknown, History: membership.HistoryUnknown, Settled: rules.Unknown, Healthy: rules.Unknown,
		Room: rules.Unknown, Alone: rules.Unknown, Moved: rules.Unknown,
	}}
	if status.Alarmed() {
		r.diagnose(ctx, &c, policy.Nospace)
	}
	d := membership.DecideNospace(c.facts)
	if d.Verdict != membership.NospaceKeep && d.Verdict != membership.NospaceWait {
		// It is due by what was last known of Kubernetes: now that is read again.
		if err := r.freshAlarmState(ctx, &c); err != nil {
			return false, err
		}
		d = membership.DecideNospace(c.facts)
	}
	r.noteNospace(ctx, c, d)
	return r.applyNospace(ctx, c, d)
}

// treat does what was decided.
func (r *round) applyNospace(ctx context.Context, c alarmState, d membership.NospaceDecision) (acted bool, err error) {
	switch d.Verdict {
	case membership.NospaceCompact:
		return true, r.compactHistory(ctx, c.target)
	case membership.NospaceDefrag:
		return true, r.defragOne(ctx, c.sizes)
	case membership.NospaceMove:
		return true, r.moveFor(ctx, c.sizes, d.Rule)
	case membership.NospaceDisarm:
		return true, r.disarm(ctx, c.raised)
	case membership.NospaceKeep, membership.NospaceWait:
	}
	return false, nil
}

// compactHistory discards what is older than revision. One who was faster did the same.
func (r *round) compactHistory(ctx context.Context, revision int64) (err error) {
	client, err := r.Dial(ctx, r.Local)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	crash.Before("compact-history")
	err = membership.Compact(ctx, client, revision)
	crash.After("compact-history")
	if err != nil && !errors.Is(err, membership.ErrCompacted) {
		return err
	}
	r.recovering.compactedAt = time.Now()
	r.Log.WarnContext(ctx, "history compacted", "revision", revision, "rule", "compact")
	return nil
}

// disarm takes back the alarms NOSPACE, each by its own member, so that no other kind goes with them.
func (r *round) disarm(ctx context.Context, raised []membership.Alarm) (err error) {
	client, err := r.Dial(ctx, r.Local)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, alarm := range raised {
		if alarm.Type != membership.AlarmNoSpace {
			continue
		}
		crash.Before("disarm-no-space")
		err := membership.DisarmNoSpace(ctx, client, alarm.MemberID)
		crash.After("disarm-no-space")
		if err != nil {
			return err
		}
		r.Log.InfoContext(ctx, "alarm disarmed", "memberID", leases.FormatID(alarm.MemberID))
	}
	return nil
}

// noteCure counts, logs and reports a decision once per change. One that waits reports a person, because writes are refused meanwhile.
func (r *round) noteNospace(ctx context.Context, c alarmState, d membership.NospaceDecision) {
	if r.recovering.last.Rule == d.Rule {
		return
	}
	quiet := d.Rule == "no-alarm"
	if quiet && r.recovering.last.Rule == "" {
		r.recovering.last = d
		return // as in every cluster that is well
	}
	r.reportAlarm(d)
	r.Decisions.WithLabelValues(nospaceTable, d.Rule).Inc()
	if quiet {
		r.Log.InfoContext(ctx, "alarm cure ended")
		return
	}
	r.Log.WarnContext(ctx, "alarm cure decided", "member", c.member.Name, "mode", d.Verdict, "rule", d.Rule, "reason", d.Why,
		"revision", c.target)
}

// tellAlarm what is done, if that is anything else than before.
func (r *round) reportAlarm(d membership.NospaceDecision) {
	if r.Alarmed != nil && r.recovering.last != d {
		notified := d
		if d.Rule == "no-alarm" {
			notified = membership.NospaceDecision{}
		}
		r.Alarmed(notified)
	}
	r.recovering.last = d
}
