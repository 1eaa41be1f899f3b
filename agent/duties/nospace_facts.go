package duties

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// alarmState is one observation of a cluster with an alarm. Its sizes name the member to defragment next.
type alarmState struct {
	sizes
	facts  membership.NospaceFacts
	raised []membership.Alarm
	// target is the revision at which to compact, 0 for none.
	target int64
}

// diagnose queries only etcd. It uses the last read of Kubernetes and assumes that the volume has room.
func (r *databases) diagnose(ctx context.Context, c *alarmState, policy NospacePolicy) {
	f := &c.facts
	f.Alarms = membership.AlarmsUnknown
	if raised, err := r.alarms(ctx); err == nil {
		c.raised, f.Alarms = raised, membership.AlarmsOf(raised)
	}
	if f.Alarms != membership.NoSpaceRaised || f.Enabled != rules.Yes {
		return // no other facts are needed
	}
	filled, health := r.fill(ctx, c.view, policy.Quota)
	due := func(m membership.Member, s membership.Space) bool {
		last, tried := r.defrag.attempts[m.ID]
		return !tried || last.AgainFull(s, time.Since(last.at), r.nospaceAgain)
	}
	for id, full := range filled {
		if r.defrag.attempts[id].Spent(full.Space) {
			full.InUse = full.Size
			filled[id] = full
		}
	}
	c.member, f.Fill = membership.FillOf(c.view, c.self.MemberID, filled, due)
	c.space = filled[c.member.ID].Space
	if f.Fill == membership.OverThreshold {
		f.History, c.target = r.history(ctx, policy)
	}
	if f.History == membership.HistoryGone {
		r.recount(c, filled, due)
	}
	f.Alone = rules.AnswerOf(len(c.view.Voters()) < 2)
	f.Leads = r.leading(ctx, c.view)
	f.Healthy = membership.AllHealthy(c.view, health)
	f.Moved = rules.AnswerOf(!r.defrag.movedAt.IsZero() && time.Since(r.defrag.movedAt) < movePause)
	f.Room = rules.Yes
	r.desiredNow(&c.sizes, r.authoritative(c.self))
	f.Authoritative, f.Stable = c.sizes.facts.Authoritative, c.sizes.facts.Stable
}

// freshAlarmState reads the record and the Leases again. Where no member's database is meant, it reads the Lease of
// the agent's own member.
func (r *databases) freshAlarmState(ctx context.Context, c *alarmState) error {
	loose := c.facts.Fill == membership.FollowerLoose || c.facts.Fill == membership.LeaderLoose
	if !loose {
		c.member = membership.Member{ID: c.self.MemberID, Name: c.self.Member}
	}
	if err := r.freshSizes(ctx, &c.sizes); err != nil {
		return err
	}
	c.facts.Authoritative, c.facts.Stable = c.sizes.facts.Authoritative, c.sizes.facts.Stable
	if loose {
		c.facts.Room = c.sizes.facts.Room
	}
	return nil
}

// recount counts a member as fragmented, although it is crowded, until it was defragmented after the last compaction.
// etcd counts the space that a commit freed only at the next commit, and while it refuses writes there might be none.
// Only a defragmentation then shows what is in use.
func (r *databases) recount(c *alarmState, filled map[uint64]membership.Filled, due func(membership.Member, membership.Space) bool) {
	doubted := maps.Clone(filled)
	stale := func(m membership.Member) bool {
		last, tried := r.defrag.attempts[m.ID]
		return !tried || last.Failures == 0 && last.at.Before(r.spaceMemory.compactedAt)
	}
	for _, m := range c.view.Members {
		if f := doubted[m.ID]; stale(m) {
			f.InUse = 0
			doubted[m.ID] = f
		}
	}
	member, fill := membership.FillOf(c.view, c.self.MemberID, doubted, func(m membership.Member, s membership.Space) bool {
		return stale(m) || due(m, s)
	})
	if fill == membership.FollowerLoose || fill == membership.LeaderLoose {
		c.member, c.space, c.facts.Fill = member, filled[member.ID].Space, fill
	}
}

func (r *databases) alarms(ctx context.Context) (raised []membership.Alarm, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, done, err := r.Dial(ctx, r.Local)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	return membership.Alarms(ctx, client)
}

// fill asks every member, including learners, for its size and quota, and every voter for a read that its database
// must answer.
func (r *databases) fill(ctx context.Context, view membership.View, quota int64) (map[uint64]membership.Filled, map[uint64]rules.Answer) {
	var mu sync.Mutex
	filled, health := map[uint64]membership.Filled{}, map[uint64]rules.Answer{}
	var group errgroup.Group
	for _, m := range view.Members {
		group.Go(func() error {
			status, err := statusOf(ctx, r.Dial, view.ClusterID, m)
			if err != nil {
				return nil // size and health of a member that does not respond are unknown
			}
			serves := rules.AnswerOf(status.Serves())
			if serves == rules.Yes && !m.Learner && r.reads(ctx, m) != nil {
				serves = rules.Unknown
			}
			mu.Lock()
			defer mu.Unlock()
			health[m.ID] = serves
			filled[m.ID] = membership.Filled{
				Space: membership.Space{Size: status.DBSize, InUse: status.DBSizeInUse}, Quota: quotaOf(status, quota),
			}
			return nil
		})
	}
	_ = group.Wait() // no error is returned
	return filled, health
}

// quotaOf returns the quota that the member reports, or else the quota of the agent's own member: druid gives all
// members the same.
func quotaOf(s membership.Status, ours int64) int64 {
	return cmp.Or(s.Quota, ours, config.DefaultQuotaBytes)
}

// history returns which old revisions may be discarded now, and the revision at which to compact.
func (r *databases) history(ctx context.Context, policy NospacePolicy) (membership.History, int64) {
	if policy.Compact != rules.Yes {
		return membership.HistoryKept, 0
	}
	aged, newest := r.spaceMemory.aged(time.Now(), policy.Window)
	if aged == 0 {
		return membership.HistoryRecent, 0
	}
	target := aged
	if policy.Saved {
		saved, err := r.savedRevision(ctx)
		if err != nil {
			return membership.HistoryUnknown, 0
		}
		if target = min(aged, saved); target == 0 {
			return membership.HistoryUnsaved, 0
		}
	}
	compacted, err := r.compactedAt(ctx, target)
	switch {
	case err != nil:
		return membership.HistoryUnknown, 0
	case compacted == rules.No:
		return membership.HistoryThere, target
	case !r.spaceMemory.compactedAt.IsZero() && time.Since(r.spaceMemory.compactedAt) < policy.Window:
		return membership.HistoryGoing, 0
	case target < aged:
		return membership.HistoryUnsaved, 0
	case aged < newest:
		return membership.HistoryRecent, 0
	}
	return membership.HistoryGone, 0
}

func (r *databases) compactedAt(ctx context.Context, revision int64) (compacted rules.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, done, err := r.Dial(ctx, r.Local)
	if err != nil {
		return rules.Unknown, err
	}
	defer func() { done(err) }()
	return membership.CompactedAt(ctx, client, revision)
}

// savedRevision returns the revision up to which the present lineage is backed up according to the snapshot Leases, 0
// for none. Entries of another lineage describe other data and do not count.
func (r *databases) savedRevision(ctx context.Context) (saved int64, err error) {
	for _, component := range []leases.Component{leases.ComponentFullSnapshot, leases.ComponentDeltaSnapshot} {
		b, err := r.Store.Backup(ctx, component)
		if err != nil && !errors.Is(err, leases.ErrAbsent) {
			return 0, err
		}
		if err == nil && b.Lineage != "" && b.Lineage == r.record.Lineage {
			saved = max(saved, b.Revision)
		}
	}
	return saved, nil
}
