package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// recoveredFromOne is a cluster that a recovery formed again from the disk of c-a. The Leases of the others are those
// of the earlier raft group.
func recoveredFromOne(o *Observed) {
	o.Record.ClusterID, o.Record.FormedEpoch, o.Record.Epoch = 10, 2, 2
	o.Record.MemberList = &leases.MemberList{Members: []leases.ListedMember{{ID: "1", Name: "c-a", PeerURL: "http://c-a.p:2380"}}}
	for i := range o.Members {
		o.Members[i].Reports.ClusterID, o.Members[i].Reports.Epoch = 9, 1
	}
	o.Members[0].Reports.ClusterID, o.Members[0].Reports.Epoch = 10, 2
}

// onLostNode declares the node of a member lost. Only that node can mount its volume.
func onLostNode(i int) func(*Observed) {
	return func(o *Observed) {
		m := &o.Members[i]
		m.Liveness, m.EtcdReady, m.Serving = leases.Stale, false, false
		m.NodeLost, m.Node, m.Volume, m.NodeName = true, NodeOutOfService, VolumeLocal, "n"+m.Name
	}
}

// TestEarlierGroupMembersAreNoVoters: members of an earlier raft group are no voters.
// The nodes of the others were declared lost, so they join the new raft group only on other nodes, without the volumes that they had.
func TestEarlierGroupMembersAreNoVoters(t *testing.T) {
	listed := func(i int, learner bool) func(*Observed) {
		return func(o *Observed) {
			m := &o.Members[i]
			m.Reports.ClusterID, m.Reports.Epoch = 10, 2
			o.Record.MemberList.Members = append(o.Record.MemberList.Members,
				leases.ListedMember{ID: leases.FormatID(m.Reports.ID), Name: m.Name, PeerURL: "http://" + m.Name + ".p:2380", Learner: learner})
		}
	}
	learns := func(o *Observed) { // c-b has another volume, and waits for c-c
		listed(1, true)(o)
		m := &o.Members[1]
		m.Liveness, m.Reports.Role, m.Reports.Repairing.ClaimUID = leases.Live, leases.RoleLearner, "former"
		m.NodeLost, m.Node = false, NodeReady
	}
	former := func(o *Observed) { // c-b still serves in the earlier group
		m := &o.Members[1]
		m.Liveness, m.EtcdReady, m.NodeLost, m.Node = leases.Live, true, false, NodeReady
	}
	down := func(o *Observed) { o.Members[0].EtcdReady = false }
	replacing := func(o *Observed) { o.Record.Replacing = &leases.Replacing{Member: "c-b", PodUID: "pod-c-b"} }
	const announced, held, inTurn = "volume-on-lost-node-announced", "volume-on-lost-node-held", "volume-on-lost-node-in-turn"
	for name, tc := range map[string]struct {
		change []func(*Observed)
		voters int
		spared rules.YesNo
		rule   string
	}{
		"next to a learner":             {[]func(*Observed){learns}, 2, rules.No, announced},
		"of the earlier group":          {nil, 1, rules.Yes, announced},
		"of the group":                  {[]func(*Observed){func(o *Observed) { o.Members[2].Reports.ClusterID = 10 }}, 2, rules.No, held},
		"of a group after the record":   {[]func(*Observed){func(o *Observed) { o.Members[2].Reports.Epoch = 3 }}, 2, rules.No, held},
		"the survivor does not serve":   {[]func(*Observed){down}, 1, rules.No, held},
		"the earlier group serves":      {[]func(*Observed){former, down}, 1, rules.No, held},
		"it has the raft ID of a voter": {[]func(*Observed){former, down, func(o *Observed) { o.Record.MemberList.Members[0].ID = "2" }}, 1, rules.No, held},
		"out of turn":                   {[]func(*Observed){replacing}, 1, rules.Yes, announced},
		"the agent does not renew":      {[]func(*Observed){replacing, func(o *Observed) { o.Members[0].Liveness = leases.Stale }}, 1, rules.Yes, inTurn},
		"the list has another raft ID":  {[]func(*Observed){replacing, func(o *Observed) { o.Record.MemberList.Members[0].ID = "7" }}, 1, rules.Yes, inTurn},
		"one of two voters is not here": {[]func(*Observed){listed(1, false)}, 2, rules.No, held},
		"a tie in the group":            {[]func(*Observed){func(o *Observed) { o.Record.Undecided.Revision = 5 }}, 1, rules.Yes, "volume-on-lost-node-undecided"},
	} {
		t.Run(name, func(t *testing.T) {
			o := whole(append([]func(*Observed){recoveredFromOne, onLostNode(1), onLostNode(2)}, tc.change...)...)
			if got := votersOf(o, o.listed()); got != tc.voters {
				t.Errorf("%d voters, want %d", got, tc.voters)
			}
			if got := spared(o.Members[2], o, o.listed()); got != tc.spared {
				t.Errorf("spared: %s, want %s", got, tc.spared)
			}
			if got := nodeRows.Decide(nodeFactsOf(o.Members[2], o, o.listed())).Rule; got != tc.rule {
				t.Errorf("rule %s, want %s", got, tc.rule)
			}
		})
	}
}

// The other members still serve in the earlier raft group. They do not have the data of the only member of the new one.
func TestTheOnlyCopyOfTheNewRaftGroupStays(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Observed)
		rule   string // of the steps that may not be there
	}{
		"its node is declared lost": {onLostNode(0), "volume-on-lost-node"},
		"and the Lease announces it": {func(o *Observed) {
			onLostNode(0)(o)
			o.Members[0].Reports.Repairing.ClaimUID = o.Members[0].ClaimUID
		}, "volume-on-lost-node"},
		"its claim is deleted": {func(o *Observed) { o.Members[0].Claim = ClaimTerminating }, "volume-lost"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rulesOf(whole(tc.change), tc.rule); len(got) == 0 {
				t.Errorf("no step %s without a recovery", tc.rule)
			}
			if got := rulesOf(whole(recoveredFromOne, tc.change), tc.rule); len(got) > 0 {
				t.Errorf("steps %v would delete the only copy", got)
			}
		})
	}
}

// rulesOf are the rules of the steps for three members that begin with prefix.
func rulesOf(o Observed, prefix string) (names []string) {
	for _, s := range Steps(Evaluate(Desired{Replicas: 3, ClusterID: o.Record.ClusterID}, o)) {
		if strings.HasPrefix(s.Rule, prefix) {
			names = append(names, s.Rule)
		}
	}
	return names
}

// A Pod that was in the earlier raft group has no data of the new one.
func TestEarlierGroupPodHoldsNoData(t *testing.T) {
	gone := func(o *Observed) {
		for i := range o.Members[1:] {
			m := &o.Members[1+i]
			m.Pod, m.PodUID, m.ClaimUID, m.EtcdReady, m.Liveness = PodAbsent, "", "", false, leases.Stale
		}
	}
	lost := func(o Observed) bool {
		return slices.ContainsFunc(Evaluate(Desired{Replicas: 3, ClusterID: o.Record.ClusterID}, o).problems,
			func(p Problem) bool { return p.Reason == v1alpha1.ReasonDataLost })
	}
	if !lost(whole(inMemory, gone)) {
		t.Error("the data of two of three voters is lost, and no problem says so")
	}
	if o := whole(inMemory, gone, recoveredFromOne); lost(o) {
		t.Error("a member of an earlier raft group is a voter that lost its data")
	}
}

// While no majority of the members has the same data, druid deletes no copy: it can be the one that decides.
func TestNoVolumeIsDeletedDuringATie(t *testing.T) {
	tie := func(o *Observed) {
		o.Record.Undecided = leases.Undecided{Revision: 5, Confirmed: 5, Hashes: "c-a 1, c-b 2"}
	}
	marked := func(o *Observed) {
		onLostNode(2)(o)
		o.Members[2].Reports.Repairing.ClaimUID = o.Members[2].ClaimUID
	}
	deleted := func(o *Observed) { o.Members[2].Claim = ClaimTerminating }
	in := func(pod PodState) func(*Observed) {
		return func(o *Observed) { o.Members[2].Pod, o.Members[2].EtcdReady, o.Members[2].Serving = pod, false, false }
	}
	deleting := func(o Observed) []string { return append(rulesOf(o, "volume-"), rulesOf(o, "pod-of-")...) }
	for name, tc := range map[string]struct {
		change  []func(*Observed)
		rules   []string
		reason  string
		message string
	}{
		"a lost node": {[]func(*Observed){onLostNode(2)}, []string{"volume-on-lost-node-announced"},
			v1alpha1.ReasonNodeLost, "its copy can be the one that decides"},
		"a lost node that the Lease announces": {[]func(*Observed){marked}, []string{"volume-on-lost-node"}, v1alpha1.ReasonNodeLost,
			"its copy can be the one that decides"},
		"a lost node, and data in the Pod": {[]func(*Observed){inMemory, marked}, []string{"volume-on-lost-node"},
			v1alpha1.ReasonNodeLost, "its copy can be the one that decides"},
		"a deleted claim": {[]func(*Observed){deleted}, []string{"volume-lost"}, v1alpha1.ReasonVolumeDeleted,
			"Save it, and then delete the Pod"},
		"a deleted claim of a Pod that was not started": {[]func(*Observed){deleted, in(PodUnstarted)}, []string{"pod-of-deleted-claim"},
			v1alpha1.ReasonVolumeDeleted, "Save it, and then delete the Pod"},
		"a deleted claim of a Pod that ended": {[]func(*Observed){deleted, in(PodEnded)}, []string{"pod-of-deleted-claim"},
			v1alpha1.ReasonVolumeDeleted, "Save it, and then delete the Pod"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.rules, deleting(whole(tc.change...))); diff != "" {
				t.Errorf("without a tie (-want +got):\n%s", diff)
			}
			o := whole(append(tc.change, tie)...)
			if got := deleting(o); len(got) > 0 {
				t.Errorf("steps %v delete a copy", got)
			}
			says := func(p Problem) bool { return p.Reason == tc.reason && strings.Contains(p.Message, tc.message) }
			if all := Evaluate(Desired{Replicas: 3, ClusterID: 9}, o).problems; !slices.ContainsFunc(all, says) {
				t.Errorf("the problems are %+v", all)
			}
		})
	}
}
