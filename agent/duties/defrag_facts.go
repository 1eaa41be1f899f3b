package duties

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// sizes is one observation of all databases.
type sizes struct {
	self       Cluster
	view       membership.View
	thresholds membership.Thresholds
	facts      membership.DefragFacts
	// member is the next member to defragment, and space is what its database has.
	member membership.Member
	space  membership.Space
}

// measure asks every voter for its sizes and its health. It uses the last read of Kubernetes and assumes that the
// volume has room, so that it makes no Kubernetes call while nothing is due.
func (r *databases) measure(ctx context.Context, w *sizes, due func(membership.Member, membership.Space) bool) {
	spaces, health := r.space(ctx, w.view)
	w.member, w.facts.Turn = membership.MostFragmented(w.view, w.self.MemberID, spaces, due)
	w.space = spaces[w.member.ID]
	w.facts.Alone = rules.AnswerOf(len(w.view.Voters()) < 2)
	w.facts.Leads = r.leading(ctx, w.view)
	w.facts.Healthy = membership.AllHealthy(w.view, health)
	w.facts.Moved = rules.AnswerOf(!r.defrag.movedAt.IsZero() && time.Since(r.defrag.movedAt) < movePause)
	w.facts.Room = rules.Yes
	r.desiredNow(w, r.authoritative(w.self))
}

// due says which databases are fragmented, and were not defragmented lately or without effect.
func (r *databases) due(thresholds membership.Thresholds) func(membership.Member, membership.Space) bool {
	return func(m membership.Member, s membership.Space) bool {
		last, tried := r.defrag.attempts[m.ID]
		return thresholds.Fragmented(s) && (!tried || last.Again(s, time.Since(last.at)))
	}
}

// desiredNow takes the desired members from the record that was read last.
func (r *databases) desiredNow(w *sizes, authoritative rules.Answer) {
	w.facts.Authoritative = authoritative
	w.facts.Stable = membership.Stable(w.view, r.record.Members)
	if r.record.PendingRemoval != nil || r.record.Replacing != nil || r.record.Undecided != (leases.Undecided{}) {
		w.facts.Stable = rules.No
	}
}

// freshSizes reads the record, the Lease of the agent's own member and the Lease of the selected member again.
func (r *databases) freshSizes(ctx context.Context, w *sizes) error {
	if err := r.read(ctx); err != nil {
		return err
	}
	own, err := r.Store.Member(ctx, w.self.Member)
	if err != nil {
		return err
	}
	lease := own
	if w.member.Name != w.self.Member {
		if lease, err = r.Store.Member(ctx, w.member.Name); err != nil {
			return err
		}
	}
	authoritative := r.authoritative(w.self)
	if own.PodUID != w.self.PodUID {
		authoritative = rules.No // a superseded agent changes nothing
	}
	r.desiredNow(w, authoritative)
	w.facts.Room = roomIn(lease, w.member, w.space)
	return nil
}

// roomIn says whether the member's volume has room for the copy, according to what its agent wrote in the Lease.
func roomIn(lease leases.Member, m membership.Member, s membership.Space) rules.Answer {
	if lease.ID != m.ID || lease.VolumeFree == 0 {
		return rules.Unknown
	}
	return rules.AnswerOf(lease.VolumeFree >= s.InUse+s.InUse/10+walRoom)
}

// space asks every voter for its sizes and for a read that its database must answer.
func (r *databases) space(ctx context.Context, view membership.View) (map[uint64]membership.Space, map[uint64]rules.Answer) {
	voters := view.Voters()
	statuses, healths := make([]membership.Status, len(voters)), make([]rules.Answer, len(voters))
	var group errgroup.Group
	for i, m := range voters {
		group.Go(func() error {
			statuses[i], healths[i] = r.spaceOf(ctx, view.ClusterID, m)
			return nil
		})
	}
	_ = group.Wait() // an error is Unknown
	spaces, health := map[uint64]membership.Space{}, map[uint64]rules.Answer{}
	for i, m := range voters {
		health[m.ID] = healths[i]
		if statuses[i].MemberID == m.ID {
			spaces[m.ID] = membership.Space{Size: statuses[i].DBSize, InUse: statuses[i].DBSizeInUse}
		}
	}
	return spaces, health
}

// spaceOf asks one member. During a defragmentation it answers neither request (etcd 3.5.35, 3.6.16 and 3.7.3). Until
// it has caught up afterwards, it does not answer the read.
func (r *databases) spaceOf(ctx context.Context, clusterID uint64, m membership.Member) (status membership.Status, health rules.Answer) {
	status, err := statusOf(ctx, r.Dial, clusterID, m)
	if err != nil {
		return membership.Status{}, rules.Unknown
	}
	if !status.Healthy() {
		return status, rules.No
	}
	if err := r.reads(ctx, m); err != nil {
		return status, rules.Unknown
	}
	return status, rules.Yes
}

// reads verifies that the member has applied what the cluster agreed on, and that its database answers.
func (r *databases) reads(ctx context.Context, m membership.Member) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, done, err := r.Dial(ctx, m.ClientURLs...)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	return membership.Linearizable(ctx, client)
}
