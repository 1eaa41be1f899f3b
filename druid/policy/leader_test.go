package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/leases"
)

// TestTheLabelOfTheLeaderFollowsIt holds which labels are written. A cluster at rest has no step.
func TestTheLabelOfTheLeaderFollowsIt(t *testing.T) {
	leads := func(i int, term uint64) func(*Observed) {
		return func(o *Observed) {
			o.Members[i].Reports.Role, o.Members[i].Reports.Raft.Term = leases.RoleLeader, term
		}
	}
	labelled := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].Leader = true }
	}
	silent := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].Liveness = leases.Stale }
	}
	down := func(i int) func(*Observed) {
		return func(o *Observed) {
			o.Members[i].Liveness, o.Members[i].EtcdReady, o.Members[i].Serving = leases.Stale, false, false
		}
	}
	wanted, unwanted := Desired{Replicas: 3, LeaderWanted: true}, Desired{Replicas: 3}
	for name, test := range map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    []string
	}{
		"no Service":             {unwanted, []func(*Observed){leads(0, 2)}, nil},
		"no Service any more":    {unwanted, []func(*Observed){leads(0, 2), labelled(0)}, []string{"leader-not-requested c-a false"}},
		"a Service":              {wanted, []func(*Observed){leads(0, 2)}, []string{"leads c-a true"}},
		"at rest":                {wanted, []func(*Observed){leads(0, 2), labelled(0)}, nil},
		"no leader is known yet": {wanted, nil, nil},
		"another member leads":   {wanted, []func(*Observed){leads(1, 3), labelled(0)}, []string{"no-longer-leads c-a false", "leads c-b true"}},
		"two call themselves leader": {wanted, []func(*Observed){leads(0, 2), leads(1, 3), labelled(0)},
			[]string{"no-longer-leads c-a false", "leads c-b true"}},
		"the leader's agent is silent": {wanted, []func(*Observed){leads(0, 2), labelled(0), silent(0)}, nil},
		"it is silent, and another member leads": {wanted, []func(*Observed){leads(0, 2), labelled(0), silent(0), leads(1, 3)},
			[]string{"no-longer-leads c-a false", "leads c-b true"}},
		"the leader is down, and no other is known": {wanted, []func(*Observed){leads(0, 2), labelled(0), down(0)}, []string{"leader-without-clients c-a false"}},
		"an election": {wanted, []func(*Observed){labelled(0)}, []string{"no-longer-leads c-a false"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range Steps(Evaluate(test.desired, whole(test.change...))) {
				if s.Kind == LabelPod && s.Leader != nil {
					got = append(got, fmt.Sprintf("%s %s %t", s.Rule, s.Member, *s.Leader))
				}
			}
			slices.SortFunc(got, func(a, b string) int { return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1]) })
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

// A leader that is about to go, or from which clients are cut off, leaves the Service of the leader with the client Service.
func TestLeaderLeavesBothServices(t *testing.T) {
	leader := func(o *Observed) {
		o.Members[0].Reports.Role, o.Members[0].Leader = leases.RoleLeader, true
	}
	for name, test := range map[string]struct {
		desired Desired
		change  func(*Observed)
	}{
		"its volume is lost":     {Desired{Replicas: 3, LeaderWanted: true}, func(o *Observed) { o.Members[0].Claim = ClaimTerminating }},
		"clients are cut off":    {Desired{Replicas: 3, LeaderWanted: true, CutOff: true}, func(*Observed) {}},
		"its Pod is terminating": {Desired{Replicas: 3, LeaderWanted: true}, func(o *Observed) { o.Members[0].Pod = PodTerminating }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range Steps(Evaluate(test.desired, whole(leader, test.change))) {
				if s.Kind == LabelPod && s.Member == "c-a" && s.Leader != nil && !*s.Leader && s.Serving != nil && !*s.Serving {
					return
				}
			}
			t.Error("it stays in one of the two")
		})
	}
}
