package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// promotionTable is the promotions' name in the metric of all decisions.
const promotionTable = "membership.promotions"

// votes says whether our member votes, and asks the voters for it where the promotions allow it.
func (s *settler) votes(ctx context.Context) (bool, error) {
	status, err := s.self(ctx)
	if err != nil {
		return false, err
	}
	if status.Role != membership.RoleLearner {
		return status.Leader != 0, nil
	}
	if time.Since(s.asked) > askAgain {
		s.read, s.leased, s.asked = s.record(ctx), s.leaseIsFresh(ctx), time.Now()
	}
	r := s.read
	if r.err != nil {
		return false, r.err
	}
	view, err := s.b.list(ctx, r.record, uint64(s.stamp.ClusterID))
	if err != nil {
		return false, err
	}
	d := membership.DecidePromotion(s.promotionFacts(r, view))
	if "promotion "+d.Rule != s.word {
		s.word = "promotion " + d.Rule
		s.b.metrics.WithLabelValues(promotionTable, d.Rule).Inc()
		s.log.InfoContext(ctx, "promotion decided", "mode", d.Verdict, "rule", d.Rule)
	}
	if d.Verdict != membership.PromoteMember {
		s.turns = 0
		return d.Verdict == membership.Done, nil
	}
	// raft takes one change at a time and etcd lets the others wait for seconds: learners ask one after another.
	if s.turns++; s.turns <= before(view, uint64(s.stamp.MemberID)) {
		return false, nil
	}
	return false, s.promote(ctx, view)
}

func (s *settler) promotionFacts(r recordState, view membership.View) membership.PromotionFacts {
	f := membership.PromotionFacts{
		Kind: membership.LearnerUnstarted, Firm: rules.No, Voters: membership.VotersOf(view),
		Joined: rules.AnswerOf(allStarted(view, r.record.Members)),
		Room:   rules.AnswerOf(len(view.Learners()) < r.record.MaxLearners),
	}
	if entry, ok := view.Member(uint64(s.stamp.MemberID)); ok {
		f.Kind = membership.KindOf(entry)
	}
	if r.record.Phase == leases.PhaseFormed && r.record.Lists(s.b.cfg.Member) && r.record.ClusterID == view.ClusterID {
		f.Firm = s.leased
	}
	return f
}

// leaseIsFresh reads our own Lease: what follows changes the member list (R1).
func (s *settler) leaseIsFresh(ctx context.Context) rules.Answer {
	switch lease, _ := s.lease(ctx); lease {
	case Fresh:
		return rules.Yes
	case LeaseUnread:
		return rules.Unknown
	default:
		return rules.No
	}
}

func (s *settler) lease(ctx context.Context) (lease Lease, detail string) {
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	var own ownLease
	own.member, own.err = s.b.store.Member(ctx, s.b.cfg.Member)
	return classifyLease(s.b.cfg, own)
}

// allStarted says whether every desired member is in the list and published itself.
func allStarted(view membership.View, desired []string) bool {
	return !slices.ContainsFunc(desired, func(name string) bool {
		return !slices.ContainsFunc(view.Members, func(m membership.Member) bool { return m.Name == name })
	})
}

// before is how many other started learners come before us.
func before(view membership.View, id uint64) int {
	n := 0
	for _, m := range view.Learners() {
		if m.Started() && m.ID < id {
			n++
		}
	}
	return n
}

// promote asks a voter. That we have not caught up yet is no error: it is asked again.
func (s *settler) promote(ctx context.Context, view membership.View) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	client, err := s.b.dial(ctx, view.Endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	crash.Before("promote")
	err = membership.Promote(ctx, client, uint64(s.stamp.MemberID))
	crash.After("promote")
	switch {
	case errors.Is(err, membership.ErrLearnerNotReady), errors.Is(err, membership.ErrNotLearner):
		return nil
	case err != nil:
		return fmt.Errorf("promote: %w", err)
	}
	s.log.InfoContext(ctx, "learner promoted", "memberID", leases.FormatID(uint64(s.stamp.MemberID)))
	return nil
}
