package policy

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestAcknowledgementsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, acknowledgements, "acknowledgements", "Whether druid believes that a member was removed: druid/policy.acknowledgements",
		func(f ackFacts, d rules.Decision[ackVerdict]) string {
			certain := f.still == rules.Yes && f.leader&(ackLeaderOther|ackLeaderNone|ackLeaderItself) != 0
			itself := f.leaves == rules.Yes && f.leader != ackLeaderItself && f.writer == writerItself && (f.leader == ackLeaderNone || f.agent == AgentOutdated)
			switch v := d.Verdict; {
			case v != ackWait && !certain:
				return "judges while it is not certain who leads"
			case v == ackBelieve && f.leader == ackLeaderItself:
				return "believes that the member that leads was removed"
			case v == ackBelieve && f.writer == writerOther:
				return "believes an agent that does not lead"
			case v == ackBelieve && f.writer == writerLeader && f.leader != ackLeaderOther:
				return "believes a leader that no Lease names"
			case v == ackBelieve && f.writer == writerItself && !itself:
				return "believes a member that it has left, while another agent can confirm it"
			case v == ackRepeat && (f.writer == writerLeader && f.leader == ackLeaderOther || itself):
				return "takes back what it can believe"
			// No wedge: where an agent can answer, druid believes or asks again.
			case v == ackWait && certain && (f.leader != ackLeaderNone || f.leaves == rules.Yes):
				return "waits although an agent can answer"
			}
			return ""
		})
}

// One member after another says that it leads. Each case shows the facts and the decision of one combination of Leases.
func TestOnlyTheOneLeaderIsBelieved(t *testing.T) {
	says := func(by string, change ...func(*Observed)) []func(*Observed) {
		return append([]func(*Observed){func(o *Observed) {
			o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-c", Mark: "m"}
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", By: by, ClusterID: "9"}
			o.LeaderStill = true
		}}, change...)
	}
	leads := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].Reports.Role = leases.RoleLeader }
	}
	is := func(i int, l leases.Liveness) func(*Observed) {
		return func(o *Observed) { o.Members[i].Liveness = l }
	}
	moved := func(o *Observed) { o.LeaderStill = false }
	leave := func(o *Observed) { o.Record.Leaving = true }
	outdated := func(o *Observed) { o.Members[2].Agent = AgentOutdated }
	for name, test := range map[string]struct {
		observed []func(*Observed)
		rule     string
		want     marked
	}{
		"the leader's agent":                              {says("pod-c-a", leads(0)), "by-the-leader", markDone},
		"another agent":                                   {says("pod-c-b", leads(0)), "leader-again", markElsewhere},
		"an agent whose Pod was replaced":                 {says("former", leads(0)), "leader-again", markElsewhere},
		"the member itself":                               {says("pod-c-c", leads(0)), "leader-again", markElsewhere},
		"an agent that says that it leads too":            {says("pod-c-b", leads(0), leads(1)), "leader-not-certain", markRemoving},
		"the leader's agent, while another says the same": {says("pod-c-a", leads(0), leads(1)), "leader-not-certain", markRemoving},
		"that one does not renew its Lease any more":      {says("pod-c-a", leads(0), leads(1), is(1, leases.Stale)), "by-the-leader", markDone},
		"the leader's agent, which does not renew":        {says("pod-c-a", leads(0), is(0, leases.Stale)), "without-leader", markRemoving},
		"an agent that leads since a moment ago":          {says("pod-c-b", leads(1), moved), "leader-changed", markRemoving},
		"a druid that just started has seen no renewal":   {says("pod-c-a", leads(0), is(0, leases.Unknown)), "leader-not-certain", markRemoving},
		"the member that leaves says that it leads":       {says("pod-c-a", leads(2)), "leads-itself", markElsewhere},
		"the member that leaves leads since a moment ago": {says("pod-c-a", leads(2), moved), "leader-not-certain", markRemoving},
		"another one leads an earlier raft group": {says("pod-c-a", leads(0), leads(1), func(o *Observed) {
			o.Record.ClusterID, o.Members[0].Reports.ClusterID, o.Members[1].Reports.ClusterID = 9, 9, 8
		}), "by-the-leader", markDone},
		"a leader whose Lease names no Pod": {says("", leads(0), func(o *Observed) { o.Members[0].Reports.PodUID = "" }),
			"leader-not-certain", markRemoving},
		"no leader": {says("pod-c-a"), "without-leader", markRemoving},
		"an unlisted name does not lead": {says("pod-c-a", leads(0), leads(1), func(o *Observed) { o.Members[1].Listed = false }),
			"by-the-leader", markDone},
		"all leave, and an external member leads":        {says("pod-c-c", leave), "by-itself", markDone},
		"all leave, and the former leader acknowledged":  {says("pod-c-a", leave), "its-agent-again", markElsewhere},
		"all leave, and another one acknowledged":        {says("pod-c-b", leave, leads(0)), "leader-again", markElsewhere},
		"all leave, and the leader's agent acknowledged": {says("pod-c-a", leave, leads(0)), "by-the-leader", markDone},
		"all leave, and leadership came back":            {says("pod-c-c", leave, leads(0)), "leader-again", markElsewhere},
		"all leave, with an older agent":                 {says("pod-c-c", leave, leads(0), outdated), "by-an-older-agent", markDone},
		"an older agent of a cluster that stays":         {says("pod-c-c", leads(0), outdated), "leader-again", markElsewhere},
		"all leave, and leadership just moved outside":   {says("pod-c-c", leave, moved), "leader-changed", markRemoving},
		"all leave, and the member forges that it leads": {says("pod-c-c", leave, leads(2)), "leads-itself", markElsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			o := whole(test.observed...)
			decision := acknowledgements.Decide(ackFactsOf(o.Members[2], o))
			if got := markOf(o.Members[2], o); decision.Rule != test.rule || got != test.want {
				t.Errorf("rule %s, mark %s; want %s, %s", decision.Rule, got, test.rule, test.want)
			}
			if out := o.Members[2].isOut(o); out != (test.want == markDone) {
				t.Errorf("out of the raft group: %t", out)
			}
		})
	}
}

// The UID of the Pod identifies the leader: a new Pod of the same member is another one.
func TestAnotherLeaderIsAnotherClaim(t *testing.T) {
	claim := func(change ...func(*Observed)) string {
		t.Helper()
		got, certain := whole(change...).LeaderClaim()
		if !certain {
			t.Errorf("not certain: %s", got)
		}
		return got
	}
	first := func(o *Observed) { leading(o, 0) }
	seen := map[string]string{}
	for name, got := range map[string]string{
		"none": claim(), "one": claim(first), "another": claim(func(o *Observed) { leading(o, 1) }),
		"its next Pod": claim(first, func(o *Observed) { o.Members[0].Reports.PodUID = "next" }),
	} {
		if other, taken := seen[got]; taken {
			t.Errorf("%s and %s are the same claim %q", name, other, got)
		}
		seen[got] = name
	}
	if got, certain := whole(first, func(o *Observed) { leading(o, 1) }).LeaderClaim(); certain {
		t.Errorf("two leaders are certain: %s", got)
	}
}

// The Pod of a member that has left is not created again while druid examines the acknowledgement of that Pod's agent.
func TestAckOutlivesItsAgentsPod(t *testing.T) {
	left := func(change ...func(*Observed)) Observed {
		return whole(append([]func(*Observed){func(o *Observed) {
			o.Record.PendingRemoval, o.Record.Leaving = &leases.PendingRemoval{Member: "c-c", Mark: "m"}, true
			o.Members[2].Reports.Removal = leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", By: "pod-c-c", ClusterID: "9"}
		}}, change...)...)
	}
	for name, test := range map[string]struct {
		observed Observed
		want     bool
	}{
		"druid has not seen for 30 s who leads":   {left(), true},
		"druid believes it":                       {left(func(o *Observed) { o.LeaderStill = true }), true},
		"it is not certain who leads":             {left(func(o *Observed) { leading(o, 0); leading(o, 1) }), true},
		"another member leads, and has to answer": {left(func(o *Observed) { leading(o, 0); o.LeaderStill = true }), false},
		"the agent of another member wrote it":    {left(func(o *Observed) { o.Members[2].Reports.Removal.By = "pod-c-a" }), false},
		"the cluster stays":                       {left(func(o *Observed) { o.Record.Leaving = false }), false},
		"it answers an earlier request":           {left(func(o *Observed) { o.Members[2].Reports.Removal.Mark = "earlier" }), false},
		"it is about another raft group":          {left(func(o *Observed) { o.Members[2].Reports.Removal.ClusterID = "8" }), false},
		"the removal is only claimed":             {left(func(o *Observed) { o.Members[2].Reports.Removal.State = leases.RemovalBegun }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.observed.Members[2].answered(test.observed); got != test.want {
				t.Errorf("the Pod is not created: %t, want %t", got, test.want)
			}
		})
	}
}
