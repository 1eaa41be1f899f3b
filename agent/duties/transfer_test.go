package duties

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/membership"
)

// TestTransferToHealthyVoter: a transfer moves leadership to a healthy voter.
func TestTransferToHealthyVoter(t *testing.T) {
	c := newCluster(t)
	leader := c.mustLead()
	var to uint64
	c.eventually("a successor is found", func() (err error) { // one that answers within a second and a half
		to, err = Transfer(t.Context(), transport.NewClients(transport.Transport{}).Dial, c.endpoint(leader))
		return err
	})
	if to == 0 || to == uint64(c.members[leader].Server.MemberID()) {
		t.Fatalf("moved to %x", to)
	}
	c.eventually("all follow the new leader", func() error {
		now, err := c.leader()
		if err == nil && uint64(c.members[now].Server.MemberID()) != to {
			err = fmt.Errorf("%s leads", now)
		}
		return err
	})
	if to, err := Transfer(t.Context(), transport.NewClients(transport.Transport{}).Dial, c.endpoint(leader)); err != nil || to != 0 {
		t.Errorf("a follower moved leadership to %x: %v", to, err)
	}
}

func TestLeadershipMovesToTheNamedVoter(t *testing.T) {
	c := newCluster(t)
	c.mustLead()
	for _, name := range slices.Sorted(maps.Keys(c.members)) { // one of them leads at first, and again after the others
		c.eventually("the named voter leads", func() error {
			now, err := c.leader()
			if err != nil || now == name {
				return err
			}
			to, err := TransferTo(t.Context(), transport.NewClients(transport.Transport{}).Dial, c.endpoint(now), name)
			if err == nil && to.ID != 0 && (to.Name != name || to.ID != uint64(c.members[name].Server.MemberID())) {
				t.Errorf("moved to %v, want %s", to, name)
			}
			return errors.Join(err, fmt.Errorf("%s led", now))
		})
	}
	leader := c.mustLead()
	if to, err := TransferTo(t.Context(), transport.NewClients(transport.Transport{}).Dial, c.endpoint(leader), "no-such-member"); !errors.Is(err, ErrNoVoter) ||
		to.ID != 0 {
		t.Errorf("to no member: %v, %v", to, err)
	}
	if now := c.mustLead(); now != leader {
		t.Errorf("%s leads", now)
	}
}

// TestNamedSuccessorMustServe: only a voter that serves is a named successor.
func TestNamedSuccessorMustServe(t *testing.T) {
	view := membership.View{Members: []membership.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}, {ID: 4, Name: "d", Learner: true}}}
	voters := []membership.Status{
		{MemberID: 1, Leader: 1, Role: membership.RoleLeader}, {MemberID: 2, Leader: 1, Role: membership.RoleMember, RaftIndex: 7},
		{MemberID: 3, Role: membership.RoleMember, RaftIndex: 9}, {MemberID: 4, Leader: 1, Role: membership.RoleLearner},
	}
	for name, test := range map[string]struct {
		to     uint64
		voters []membership.Status
		err    error
		says   string
	}{
		"":  {2, voters, nil, ""},
		"b": {2, voters, nil, ""},
		"a": {0, voters, ErrSuccessor, "leads already"},
		"c": {0, voters, ErrSuccessor, "knows no leader, or has a problem"},
		"d": {0, voters, ErrSuccessor, "learner"},
		"e": {0, voters, ErrNoVoter, "e"},
	} {
		got, err := successorNamed(1, name, view, test.voters)
		if got.ID != test.to || !errors.Is(err, test.err) || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := successorNamed(1, "b", view, voters[:1]); !errors.Is(err, ErrSuccessor) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("one that does not answer: %v", err)
	}
	if _, err := successorNamed(1, "", view, voters[:1]); !errors.Is(err, ErrNoSuccessor) {
		t.Errorf("no other one: %v", err)
	}
}

// TestSuccessorIsMostCaughtUp: the successor is the healthy voter that has caught up the most.
func TestSuccessorIsMostCaughtUp(t *testing.T) {
	voter := func(id, index uint64, change func(*membership.Status)) membership.Status {
		s := membership.Status{MemberID: id, RaftIndex: index, Leader: 1, Role: membership.RoleMember}
		change(&s)
		return s
	}
	well := func(*membership.Status) {}
	for name, test := range map[string]struct {
		voters []membership.Status
		want   uint64
	}{
		"the longest log":              {[]membership.Status{voter(1, 99, well), voter(2, 5, well), voter(3, 7, well)}, 3},
		"of equals the lowest ID":      {[]membership.Status{voter(3, 7, well), voter(2, 7, well)}, 2},
		"not one that ails":            {[]membership.Status{voter(2, 5, well), voter(3, 7, func(s *membership.Status) { s.Errors = []string{"CORRUPT"} })}, 2},
		"not one that knows no leader": {[]membership.Status{voter(3, 7, func(s *membership.Status) { s.Leader = 0 })}, 0},
		"not one that gave no answer":  {[]membership.Status{{}}, 0},
		"not a learner":                {[]membership.Status{voter(3, 7, func(s *membership.Status) { s.Role = membership.RoleLearner })}, 0},
		"none in a cluster of one":     {[]membership.Status{voter(1, 99, well)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := successor(1, test.voters); got != test.want || ok != (test.want != 0) {
				t.Errorf("got %d %t, want %d", got, ok, test.want)
			}
		})
	}
}
