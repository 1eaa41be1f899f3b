package start

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// pruned deletes quarantined data when the rules of datadir allow it.
func (s *finisher) pruned(ctx context.Context) (bool, error) {
	all, err := datadir.AllQuarantined(s.b.cfg.VolumePath)
	if err != nil {
		return false, err
	}
	all = datadir.Prunable(all, time.Now(), datadir.RoomOf(s.b.cfg.VolumePath))
	begun, err := datadir.PruneBegun(s.b.cfg.VolumePath)
	if err != nil || len(all) == 0 && !begun {
		return err == nil, err
	}
	d, err := s.decidePrune(ctx)
	if err != nil || d.Verdict != datadir.DeleteQuarantined {
		return false, errors.Join(err, fmt.Errorf("%d quarantined data directories are kept: %s", len(all), d.Rule))
	}
	var names []string
	for _, quarantined := range datadir.PruneOrder(all, uint64(s.identityFile.ClusterID)) {
		names = append(names, quarantined.Name)
	}
	if err := datadir.Prune(s.b.cfg.VolumePath, names...); err != nil {
		return false, err
	}
	s.log.InfoContext(ctx, "quarantined data deleted", "rule", d.Rule, "quarantined", names)
	return true, nil
}

func (s *finisher) decidePrune(ctx context.Context) (rules.Decision[datadir.PruneVerdict], error) {
	r := s.record(ctx)
	if r.err != nil {
		return datadir.DecidePrune(unknownPruneFacts), r.err
	}
	f := pruneFactsOf(r.record, s.identityFile)
	view, err := membership.Observe(ctx, s.b.dial, membership.Query{
		Endpoints: []string{s.b.local()}, ClusterID: uint64(s.identityFile.ClusterID), Timeout: endpointTimeout,
	})
	if err != nil {
		return datadir.DecidePrune(f), err
	}
	entry, ok := view.Member(uint64(s.identityFile.MemberID))
	f.Voter = answer(ok && entry.Started() && !entry.Learner)
	f.Quorum = answer(membership.QuorumWithout(view, 0, s.b.health(ctx, view.Voters())) == rules.Yes)
	return datadir.DecidePrune(f), nil
}

// unknownPruneFacts are those of an agent that has read nothing. They keep the data.
var unknownPruneFacts = datadir.PruneFacts{Voter: rules.Unknown, Quorum: rules.Unknown, Current: rules.Unknown, Undecided: rules.Unknown}

// pruneFactsOf is what the record says about the data in quarantine of a member. What the raft group says is not known yet.
func pruneFactsOf(record leases.Record, own datadir.IdentityFile) datadir.PruneFacts {
	f := unknownPruneFacts
	f.Current = answer(record.Phase == leases.PhaseFormed && record.ClusterID == uint64(own.ClusterID) && record.FormedEpoch == own.Epoch)
	f.Undecided = answer(record.Undecided != leases.Undecided{})
	return f
}
