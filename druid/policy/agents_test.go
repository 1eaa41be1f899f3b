package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestAgentsAreReplacedOneAfterAnother(t *testing.T) {
	checkTable(t, agentRows, "agents", "An agent with an outdated image: druid/policy.agentRows",
		func(f agentFacts, d rules.Decision[verdict]) string {
			v := d.Verdict
			switch {
			case v == remove || v == create || v == mark:
				return "does more than to replace an agent"
			case v != change && v != keep && f.agent != AgentOutdated:
				return "waits for nothing"
			case v != change:
			case f.agent != AgentOutdated:
				return "replaces an agent that is not known to be outdated"
			case f.pod&(PodUnscheduled|PodUnstarted|PodLive) == 0:
				return "changes what is not ours, not there, or on its way"
			case f.leaves == rules.Yes:
				return "disturbs a member on its way out"
			case f.pendingUpdate != pendingUpdateNone:
				return "takes an image further that has not shown yet that it works"
			case f.memberHealth != memberHealthIdle && (f.turn == rules.No || f.record != RecordFormed):
				return "takes an agent away while the cluster changes"
			case f.memberHealth&(memberHealthAway|memberHealthNotKnown) != 0:
				return "replaces what may be at work"
			case f.memberHealth == memberHealthWell && (f.others != othersReady || f.place != placeFirst):
				return "takes a second member's agent away, or one out of order"
			}
			return ""
		})
}

// given is a cluster of three that all have an agent of another image than druid was given. Member c-b leads.
func given(change ...func(*Observed)) Observed {
	return whole(append([]func(*Observed){func(o *Observed) {
		for i := range o.Members {
			o.Members[i].Agent, o.Members[i].AgentImage, o.Members[i].Stable = AgentOutdated, "druid:1", true
		}
		o.Members[1].Reports.Role = leases.RoleLeader
	}}, change...)...)
}

// replaced is a change by which the member's agent was given the new image.
func replaced(i int, arrival Arrival) func(*Observed) {
	return func(o *Observed) {
		o.Members[i].Agent, o.Members[i].AgentImage, o.Members[i].Arrival = AgentCurrent, "druid:2", arrival
	}
}

func TestAgentUpdate(t *testing.T) {
	silent := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].Liveness, o.Members[i].Expired = leases.Stale, true }
	}
	idle := func(i int) func(*Observed) {
		return func(o *Observed) { silent(i)(o); o.Members[i].AgentIdle = true }
	}
	tests := map[string]struct {
		o      Observed
		want   []string
		reason string
		words  string
	}{
		"a follower goes first, and the budget stays: etcd runs on": {
			o: given(), want: []string{"ReplaceAgent agent-outdated c-a"}, reason: v1alpha1.ReasonUpdatingAgents,
			words: "0 of 3 agents updated: the agent of member c-a is being replaced",
		},
		"the second waits until the first renews its Lease": {
			o: given(replaced(0, ArrivalAwaited)), reason: v1alpha1.ReasonUpdatingAgents,
			words: "0 of 3 agents updated: the new agent of member c-a is not ready yet",
		},
		"and for long enough": {
			o: given(replaced(0, ArrivalUnconfirmed)), reason: v1alpha1.ReasonUpdatingAgents,
			words: "1 of 3 agents updated: the new agent of member c-a is not ready yet",
		},
		"then it goes": {
			o: given(replaced(0, ArrivalOver)), want: []string{"ReplaceAgent agent-outdated c-c"}, reason: v1alpha1.ReasonUpdatingAgents,
		},
		"the leader's goes last": {
			o: given(replaced(0, ArrivalOver), replaced(2, ArrivalOver)), want: []string{"ReplaceAgent agent-outdated c-b"},
			reason: v1alpha1.ReasonUpdatingAgents,
		},
		"the last one is awaited too": {
			o: given(replaced(0, ArrivalOver), replaced(2, ArrivalOver), replaced(1, ArrivalAwaited)), reason: v1alpha1.ReasonUpdatingAgents,
			words: "2 of 3 agents updated: the new agent of member c-b is not ready yet",
		},
		"a druid that just started calls a cluster up to date whose agents are": {
			o:      given(replaced(0, ArrivalUnconfirmed), replaced(2, ArrivalUnconfirmed), replaced(1, ArrivalUnconfirmed)),
			reason: v1alpha1.ReasonReconciled,
		},
		"an image that is no good stops after the first": {
			o: given(replaced(0, ArrivalLate)), reason: v1alpha1.ReasonAgentUpdateBlocked,
			words: "0 of 3 agents updated: no other agent is replaced, because the new agent of member c-a, of image druid:2, does not start. Correct " +
				"--agent-image of druid",
		},
		"also when it was the last": {
			o: given(replaced(0, ArrivalOver), replaced(2, ArrivalOver), replaced(1, ArrivalLate)), reason: v1alpha1.ReasonAgentUpdateBlocked,
		},
		"an idle one is not given an image that is no good elsewhere": {
			o: given(replaced(0, ArrivalLate), idle(2)), reason: v1alpha1.ReasonAgentUpdateBlocked,
		},
		"a corrected image goes where no agent runs, and only there": {
			o: given(idle(0)), want: []string{"ReplaceAgent agent-idle c-a"}, reason: v1alpha1.ReasonUpdatingAgents,
		},
		"and where it does nothing": {
			o: given(silent(2)), want: []string{"ReplaceAgent agent-unhealthy c-c"}, reason: v1alpha1.ReasonUpdatingAgents,
		},
		"one after another there too": {
			o: given(silent(0), silent(2)), want: []string{"ReplaceAgent agent-unhealthy c-a"}, reason: v1alpha1.ReasonUpdatingAgents,
		},
		"no Pod is replaced while a volume grows, because that may replace one": {
			o: given(func(o *Observed) { o.Members[2].Room = RoomGrows }), reason: v1alpha1.ReasonRollingUpdate,
		},
		"where none runs at all, at once": {
			o:      given(idle(0), idle(1), idle(2)),
			want:   []string{"ReplaceAgent agent-idle c-a", "ReplaceAgent agent-idle c-b", "ReplaceAgent agent-idle c-c"},
			reason: v1alpha1.ReasonUpdatingAgents,
		},
		"no Pod is replaced next to a member that is down": {
			o: given(replaced(2, ArrivalOver), func(o *Observed) {
				o.Members[2].EtcdReady, o.Members[2].Serving, o.Members[2].Stable, o.Members[2].Stuck = false, false, false, true
			}),
			reason: v1alpha1.ReasonAgentUpdateBlocked, words: "1 of 3 agents updated: no other agent is replaced, because member c-c is not ready",
		},
		"nor while a member leaves": {
			o: given(func(o *Observed) {
				o.Record.PendingRemoval, o.Members[2].Serving, o.BudgetMin = &leases.PendingRemoval{Member: "c-c", Mark: "m"}, false, 3
				o.Members[2].Reports.Removal = leases.RemovalRequest{State: leases.RemovalBegun, Mark: "m", ClusterID: "9"}
			}),
			reason: v1alpha1.ReasonScalingDown,
		},
		"nor next to a Pod that is replaced, which gets both": {
			o: given(func(o *Observed) { o.Members[2].Make, o.BudgetMin = MakeOutdated, 3 }),
			want: []string{
				"LabelPod leaving c-c serving=false", "DeletePod outdated c-c",
			},
			reason: v1alpha1.ReasonRollingUpdate,
		},
		"and no Pod is replaced next to an agent that was": {
			o:      given(replaced(0, ArrivalAwaited), func(o *Observed) { o.Members[2].Make, o.BudgetMin = MakeOutdated, 3 }),
			reason: v1alpha1.ReasonRollingUpdate,
			words:  "0 of 3 members updated: member c-a has a new agent",
		},
		"nor where the image is no good": {
			o:      given(replaced(0, ArrivalLate), func(o *Observed) { o.Members[2].Make = MakeOutdated }),
			reason: v1alpha1.ReasonRollingUpdateBlocked,
		},
		"a change of version that waits for a silent agent does not keep it from being repaired": {
			o: given(replaced(0, ArrivalOver), replaced(2, ArrivalOver), silent(1), func(o *Observed) {
				o.Record.Upgrade.Order = leases.UpgradeOrder{Nonce: "n", Version: "3.6.16"}
			}),
			want: []string{"ReplaceAgent agent-unhealthy c-b"}, reason: v1alpha1.ReasonUpgrading,
		},
		"no Pod is replaced while the leader is unknown": {
			o: given(func(o *Observed) { o.Members[1].Reports.Role = leases.RoleMember }), reason: v1alpha1.ReasonUpdatingAgents,
			words: "0 of 3 agents updated: it is not known which member leads",
		},
		"one on a node that is not reachable waits for it": {
			o:      given(func(o *Observed) { o.Members[0].NodeLost = true }),
			reason: v1alpha1.ReasonAgentUpdateBlocked,
			words:  "0 of 3 agents updated: no other agent is replaced, because member c-a is on an unreachable node",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := Desired{Replicas: 3}
			if test.o.Record.PendingRemoval != nil {
				d.Replicas = 2
			}
			got := []string{}
			for _, s := range short(Steps(Evaluate(d, test.o))) {
				if !strings.HasPrefix(s, "ApplyBudget") && !strings.HasPrefix(s, "LabelPod etcd-not-ready") {
					got = append(got, s)
				}
			}
			checkSteps(t, test.want, got)
			checkProgress(t, d, test.o, test.reason, test.words)
		})
	}
}

// The members are compared only when each agent reports its etcd's snapshot count, which an outdated one does not.
func TestAgentUpdateDuringComparison(t *testing.T) {
	d := Desired{Replicas: 3, Version: "3.7.3"}
	outdated := func(o *Observed) {
		for i := range o.Members {
			o.Members[i].Agent, o.Members[i].AgentImage, o.Members[i].Stable = AgentOutdated, "druid:1", true
		}
		o.Members[1].Reports.Role = leases.RoleLeader
	}
	for name, test := range map[string]struct {
		verdict leases.UpgradeVerdict
		want    bool
	}{
		"the comparison waits":  {leases.UpgradeUnknown, true},
		"the members are equal": {leases.UpgradeAgree, false},
	} {
		d, o := upgraded(d, outdated, ordered(d, test.verdict, ""))
		got := slices.ContainsFunc(Steps(Evaluate(d, o)), func(s Step) bool { return s.Kind == ReplaceAgent })
		if got != test.want {
			t.Errorf("%s: an agent is replaced: %t, want %t", name, got, test.want)
		}
	}
}
