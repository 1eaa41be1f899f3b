package duties

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

var (
	// ErrNoSuccessor means that no other voter could take leadership, or not the requested one.
	ErrNoSuccessor = errors.New("no other healthy voter")
	// ErrSuccessor means that the requested voter cannot take leadership. The error says why.
	ErrSuccessor = errors.New("the requested member cannot lead")
)

// StepDownTimeout bounds a transfer of leadership that a user requests. It takes an election timeout.
const StepDownTimeout = 15 * time.Second

// Transferred is how the API and the command of the agents print a completed transfer: the name and the ID of the new leader.
type Transferred struct {
	Member   string `json:"member,omitempty"`
	MemberID string `json:"memberID"`
}

// TransferredTo returns what is printed about a new leader.
func TransferredTo(m membership.Member) Transferred {
	return Transferred{Member: m.Name, MemberID: leases.FormatID(m.ID)}
}

// Transfer moves raft leadership away from the member at endpoint local to the started voter with the longest log. It
// does nothing if the member does not lead. The caller bounds it by ctx, because etcd ends in any case.
func Transfer(ctx context.Context, dial membership.Dial, local string) (to uint64, err error) {
	moved, err := TransferTo(ctx, dial, local, "")
	return moved.ID, err
}

// TransferTo is Transfer to the voter with a name. Without a name it is Transfer. It returns the member that leads then, or the zero Member
// if the member at local does not lead.
func TransferTo(ctx context.Context, dial membership.Dial, local, name string) (to membership.Member, err error) {
	client, done, err := dial(ctx, local)
	if err != nil {
		return to, err
	}
	defer func() { done(err) }()
	status, err := membership.ReadStatus(ctx, client, local)
	if err != nil || status.Role != membership.RoleLeader {
		return to, err
	}
	view, err := membership.Observe(ctx, dial, membership.Query{
		Endpoints: []string{local}, ClusterID: status.ClusterID, Timeout: callTimeout,
	})
	if err != nil {
		return to, err
	}
	to, err = successorNamed(status.MemberID, name, view, statuses(ctx, dial, view))
	if err != nil {
		return membership.Member{}, fmt.Errorf("move leadership away from member %s: %w", leases.FormatID(status.MemberID), err)
	}
	defer crash.Around("move-leader")()
	return to, membership.MoveLeader(ctx, client, to.ID)
}

// successorNamed returns the voter with the name if it can lead, or without a name the best one.
func successorNamed(self uint64, name string, view membership.View, voters []membership.Status) (membership.Member, error) {
	if name == "" {
		id, ok := successor(self, voters)
		if !ok {
			return membership.Member{}, ErrNoSuccessor
		}
		to, _ := view.Member(id)
		return to, nil
	}
	i := slices.IndexFunc(view.Members, func(m membership.Member) bool { return m.Name == name })
	switch {
	case i < 0:
		return membership.Member{}, fmt.Errorf("%w: %s", ErrNoVoter, name)
	case view.Members[i].ID == self:
		return membership.Member{}, fmt.Errorf("%w: %s leads already", ErrSuccessor, name)
	case view.Members[i].Learner:
		return membership.Member{}, fmt.Errorf("%w: %s is a learner, which does not vote", ErrSuccessor, name)
	}
	to := view.Members[i]
	for _, s := range voters {
		if s.MemberID != to.ID {
			continue
		}
		if _, ok := successor(self, []membership.Status{s}); ok {
			return to, nil
		}
		return membership.Member{}, fmt.Errorf("%w: %s knows no leader, or has a problem", ErrSuccessor, name)
	}
	return membership.Member{}, fmt.Errorf("%w: %s does not answer", ErrSuccessor, name)
}

// successor returns the voter that serves and has the highest raft index. Of equal voters it returns the one with the
// lowest ID. The alarm NOSPACE excludes no voter, because it applies to all members alike.
func successor(self uint64, voters []membership.Status) (uint64, bool) {
	var best membership.Status
	for _, s := range voters {
		if s.MemberID == self || !s.Serves() || s.Role == membership.RoleLearner {
			continue
		}
		if best.MemberID == 0 || s.RaftIndex > best.RaftIndex || s.RaftIndex == best.RaftIndex && s.MemberID < best.MemberID {
			best = s
		}
	}
	return best.MemberID, best.MemberID != 0
}
