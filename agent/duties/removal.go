package duties

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// removalTable is the name of the removal decisions in the metric of all decisions.
const removalTable = "membership.removals"

// errLeadershipMoved means that the raft term changed since the removal was decided.
var errLeadershipMoved = errors.New("raft leadership changed after the decision")

// removal is the duty that removes superfluous members.
type removal struct {
	*round
	// since says when each superfluous member was first seen.
	since map[uint64]time.Time
	// last decision per member, so that a repeated decision is reported once.
	last map[uint64]string
}

// Run implements Duty. It never asks for a next step: a removal has its own pauses.
func (r *removal) Run(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
	return false, r.removeSuperfluous(ctx, self, view)
}

// removeSuperfluous decides about every member of the list and removes at most one. It queries Kubernetes and the
// other voters only when a removal is due, so that a list without superfluous members costs nothing.
func (r *removal) removeSuperfluous(ctx context.Context, self Cluster, view membership.View) error {
	r.forgetGone(view)
	for _, m := range view.Members {
		facts := r.facts(self, view, m, r.authoritative(self), r.coming(ctx, m))
		if facts.Elapsed == rules.Yes {
			// The removal is due according to what was last known. Read everything again before the removal.
			var err error
			if facts, err = r.freshFacts(ctx, self, view, m); err != nil {
				return err
			}
		}
		decision := membership.DecideRemoval(facts)
		r.inform(ctx, m, decision)
		if decision.Verdict == membership.Keep {
			delete(r.since, m.ID)
			continue
		}
		if _, seen := r.since[m.ID]; !seen {
			r.since[m.ID] = time.Now()
		}
		if decision.Verdict == membership.RemoveMember {
			// The intent needs no mark of its own. A successor finds the same list and the same record, waits its own
			// grace period, and decides again.
			defer crash.Around("remove-superfluous")()
			return r.remove(ctx, view, m, decision.Rule)
		}
	}
	return nil
}

// forgetGone drops the state of members that are no longer listed.
func (r *removal) forgetGone(view membership.View) {
	for id := range r.last {
		if _, listed := view.Member(id); !listed {
			delete(r.since, id)
			delete(r.last, id)
		}
	}
}

// facts returns what is known without further requests. Quorum is Unknown, which blocks a removal.
func (r *removal) facts(self Cluster, view membership.View, m membership.Member, authoritative, coming rules.Answer) membership.RemovalFacts {
	since, seen := r.since[m.ID]
	return membership.RemovalFacts{
		Self:          rules.AnswerOf(m.ID == self.MemberID || m.ID == view.Answerer),
		Authoritative: authoritative,
		Desired:       membership.Desired(m, r.record.Members, r.PeerURL),
		Kind:          membership.KindOf(m),
		Adopted:       rules.AnswerOf(r.record.Adopted()),
		// The health of the desired voters is checked when the removal is due.
		Released: rules.AnswerOf(r.RemoveExternalMembers() && !r.record.Leaving && allVote(view, r.record.Members)),
		Coming:   coming,
		Quorum:   rules.Unknown,
		Elapsed:  rules.AnswerOf(seen && time.Since(since) >= r.Grace()),
		Turn: rules.AnswerOf(r.record.PendingRemoval == nil && r.record.Undecided == leases.Undecided{} &&
			(r.removedAt.IsZero() || time.Since(r.removedAt) >= r.Grace())),
	}
}

// authoritative says whether the record that was last read is authoritative for the desired members.
func (r *round) authoritative(self Cluster) rules.Answer {
	if r.version == "" {
		return rules.Unknown
	}
	return rules.AnswerOf(r.record.Phase == leases.PhaseFormed && r.record.ClusterID == self.ClusterID && r.record.Lists(self.Member))
}

// coming says whether a Pod will start the member. Agents cannot read Pods, so druid writes on the member Lease which
// learner no Pod will start. A Lease that is missing, unreadable or without that entry means nothing.
func (r *removal) coming(ctx context.Context, m membership.Member) rules.Answer {
	if membership.KindOf(m) != membership.LearnerUnstarted {
		return rules.Unknown
	}
	for _, name := range r.record.Members {
		if !m.At(r.PeerURL(name)) {
			continue
		}
		lease, err := r.Store.Member(ctx, name)
		if err == nil && lease.Repairing.NotComing == leases.FormatID(m.ID) {
			return rules.No
		}
	}
	return rules.Unknown
}

// freshFacts reads the record, the Lease of the agent's own member and the health of every voter again.
func (r *removal) freshFacts(ctx context.Context, self Cluster, view membership.View, m membership.Member) (membership.RemovalFacts, error) {
	if err := r.read(ctx); err != nil {
		return membership.RemovalFacts{}, err
	}
	own, err := r.Store.Member(ctx, self.Member)
	if err != nil {
		return membership.RemovalFacts{}, err
	}
	authoritative := r.authoritative(self)
	if own.PodUID != self.PodUID || own.Removal.State != leases.RemovalNone {
		authoritative = rules.No // a superseded agent changes nothing, and a member that is to be removed removes no other
	}
	facts := r.facts(self, view, m, authoritative, r.coming(ctx, m))
	health := r.health(ctx, view)
	facts.Quorum = membership.QuorumWithout(view, m.ID, health)
	if facts.Released == rules.Yes {
		facts.Released = membership.OthersHealthy(view, m.ID, health, func(m membership.Member) rules.Answer {
			return membership.Desired(m, r.record.Members, r.PeerURL)
		})
	}
	return facts, nil
}

// allVote says whether each of names is a started voter.
func allVote(view membership.View, names []string) bool {
	voters := view.Voters()
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(voters, func(m membership.Member) bool { return m.Name == name })
	})
}

// health asks every voter itself. No answer is Unknown, never No.
func (r *round) health(ctx context.Context, view membership.View) map[uint64]rules.Answer {
	return healthOf(ctx, r.Dial, view)
}

func healthOf(ctx context.Context, dial membership.Dial, view membership.View) map[uint64]rules.Answer {
	voters := view.Voters()
	answers := make([]rules.Answer, len(voters))
	var group errgroup.Group
	for i, m := range voters {
		group.Go(func() error {
			answers[i] = rules.Unknown
			if status, err := statusOf(ctx, dial, view.ClusterID, m); err == nil {
				answers[i] = rules.AnswerOf(status.Healthy())
			}
			return nil
		})
	}
	_ = group.Wait() // an error is Unknown
	health := make(map[uint64]rules.Answer, len(voters))
	for i, m := range voters {
		health[m.ID] = answers[i]
	}
	return health
}

// inform counts and logs a decision once per change.
func (r *removal) inform(ctx context.Context, m membership.Member, d rules.Decision[membership.RemovalVerdict]) {
	if r.last[m.ID] == d.Rule {
		return
	}
	r.last[m.ID] = d.Rule
	r.Decisions.WithLabelValues(removalTable, d.Rule).Inc()
	if d.Verdict != membership.Keep {
		r.Log.WarnContext(ctx, "superfluous member detected", "member", m.Name, "memberID", leases.FormatID(m.ID), "mode", d.Verdict, "rule", d.Rule)
	}
}

// remove is the only irreversible call. It succeeds if the member was removed already.
func (r *round) remove(ctx context.Context, view membership.View, m membership.Member, rule string) error {
	return r.withLocal(ctx, func(ctx context.Context, client *clientv3.Client) error {
		status, err := membership.ReadStatus(ctx, client, r.Local)
		if err != nil {
			return err
		}
		id := leases.FormatID(m.ID)
		if !leads(status, view) {
			return fmt.Errorf("remove member %s: %w", id, errLeadershipMoved)
		}
		r.Log.WarnContext(ctx, "member removal started", "member", m.Name, "memberID", id, "rule", rule)
		r.removedAt = time.Now() // also when the answer is lost: it may have been done
		if err := membership.Remove(ctx, client, m.ID); err != nil && !errors.Is(err, membership.ErrNotFound) {
			return err
		}
		r.Log.WarnContext(ctx, "member removed", "member", m.Name, "memberID", id, "rule", rule)
		return nil
	})
}

// leads says whether the member with this status leads in the term of the view.
func leads(status membership.Status, view membership.View) bool {
	return status.Role == membership.RoleLeader && status.RaftTerm == view.RaftTerm && status.ClusterID == view.ClusterID
}

// listOf converts a view to the list that the record publishes.
func listOf(view membership.View) leases.MemberList {
	list := leases.MemberList{RaftTerm: view.RaftTerm, RaftIndex: view.RaftIndex}
	for _, m := range view.Members {
		list.Add(m.ID, m.Name, m.PeerURLs, m.Learner)
	}
	return list
}

// sameMembers says whether two lists have the same members. It ignores the raft position, which always changes.
func sameMembers(published *leases.MemberList, list leases.MemberList) bool {
	return published != nil && slices.Equal(published.Members, list.Members)
}

// publish writes the member list into the record when it changed. The record must belong to the same raft group. A
// list of a later raft position is never overwritten, because a former leader can be slow.
func (r *round) publish(ctx context.Context, self Cluster, list leases.MemberList) error {
	published := r.record.MemberList
	switch {
	case sameMembers(published, list), r.record.Phase != leases.PhaseFormed, r.record.ClusterID != self.ClusterID:
		return nil
	case published != nil && published.RaftTerm > list.RaftTerm:
		return nil
	}
	record := r.record
	record.MemberList = &list
	crash.Before("publish-list")
	version, err := r.Store.UpdateRecord(ctx, r.version, record)
	crash.After("publish-list")
	if err != nil {
		return r.notWritten(err)
	}
	r.record, r.version = record, version
	r.Log.InfoContext(ctx, "member list published", "members", len(list.Members), "revision", list.RaftIndex)
	return nil
}
