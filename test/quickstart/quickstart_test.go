package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/leases"
)

// TestMembersCountedByLeases: members are counted by what their Leases report.
func TestMembersCountedByLeases(t *testing.T) {
	cases := map[string]struct {
		members          members
		voters           int
		leader, follower string
	}{
		"no member yet": {
			members: members{"a": {}, "b": {}},
		},
		"a learner does not vote": {
			members: members{"a": {ID: 1, Role: leases.RoleLeader}, "b": {ID: 2, Role: leases.RoleLearner}},
			voters:  1, leader: "a",
		},
		"all vote": {
			members: members{"a": {ID: 1, Role: leases.RoleMember}, "b": {ID: 2, Role: leases.RoleLeader}, "c": {ID: 3, Role: leases.RoleMember}},
			voters:  3, leader: "b", follower: "a",
		},
		"of two that say they lead, an old one is not reported apart": {
			members: members{"a": {ID: 1, Role: leases.RoleLeader}, "b": {ID: 2, Role: leases.RoleLeader}},
			voters:  2,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.members.voters(); got != c.voters {
				t.Errorf("voters: got %d, want %d", got, c.voters)
			}
			if got := c.members.leader(); got != c.leader {
				t.Errorf("leader: got %q, want %q", got, c.leader)
			}
			if got := c.members.follower(); got != c.follower {
				t.Errorf("follower: got %q, want %q", got, c.follower)
			}
		})
	}
}

func TestNarratorIndentsWhatCommandsPrint(t *testing.T) {
	var out strings.Builder
	n := &narrator{out: &out, begun: time.Now()}
	n.typed("kubectl", "put", "two words")
	w := n.output()
	for _, part := range []string{"first\nsec", "ond\n", "\nlast"} {
		if _, err := fmt.Fprint(w, part); err != nil {
			t.Fatal(err)
		}
	}
	want := "\n   $ kubectl put 'two words'\n   first\n   second\n   \n   last"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
