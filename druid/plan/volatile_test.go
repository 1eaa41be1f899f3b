package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// inMemory is a cluster whose members store in memory.
func inMemory(o *Observed) {
	for i := range o.Members {
		m := &o.Members[i]
		m.Claim, m.ClaimUID, m.Says.VolumeUID, m.Settled = ClaimUnwanted, m.PodUID, m.PodUID, true
	}
	o.Members[0].Says.Role = leases.RoleLeader
}

func TestMembersInMemoryLoseNoQuorumByOurHand(t *testing.T) {
	three, one := Desired{Replicas: 3, ClusterID: 9}, Desired{Replicas: 1, ClusterID: 9}
	outdated := func(o *Observed) {
		for i := range o.Members {
			o.Members[i].Make = MakeOutdated
		}
		o.BudgetMin = len(o.Members)
	}
	single := func(o *Observed) { o.Members, o.Record.Members, o.BudgetMin = o.Members[:1], o.Record.Members[:1], 1 }
	lostNode := func(marked bool) func(*Observed) {
		return func(o *Observed) {
			m := &o.Members[2]
			m.NodeLost, m.Node, m.Volume, m.NodeName, m.Liveness, m.Serving = true, NodeOutOfService, VolumeLocal, "n3", leases.Stale, false
			if marked {
				m.Says.Healing.ClaimUID = m.ClaimUID
			}
		}
	}
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    []string
	}{
		"a whole cluster has no steps": {three, nil, nil},
		"a lost Pod comes back, and no claim": {three, []func(*Observed){func(o *Observed) {
			m := &o.Members[1]
			m.Pod, m.PodUID, m.ClaimUID, m.EtcdReady, m.Serving, m.Voter = PodAbsent, "", "", false, false, false
		}}, []string{"CreatePod pod-missing c-b"}},
		"the Lease names the Pod as the volume": {three, []func(*Observed){func(o *Observed) {
			o.Members[1].PodUID, o.Members[1].ClaimUID = "other", "other"
		}}, []string{"MarkLease pod-unmarked c-b"}},
		"outdated Pods go one at a time, the leader's last": {three, []func(*Observed){outdated}, []string{
			"LabelPod leaving c-b serving=false", "DeletePod outdated c-b",
		}},
		"not while one gets its data from the others": {three, []func(*Observed){outdated, func(o *Observed) {
			o.Members[2].Make, o.Members[2].Says.Role, o.Members[2].Serving, o.Members[2].Voter, o.BudgetMin = MakeCurrent, leases.RoleLearner, false, false, 2
		}}, nil},
		"the only copy is never replaced": {one, []func(*Observed){single, outdated}, nil},
		"nor where no etcd runs next to it": {one, []func(*Observed){single, outdated, func(o *Observed) {
			o.Members[0].Idle, o.Members[0].EtcdReady, o.Members[0].Serving = true, false, false
		}}, nil},
		"a member that never joined has nothing to lose": {three, []func(*Observed){func(o *Observed) {
			m := &o.Members[2]
			m.Says, m.Voter, m.Serving, m.EtcdReady, m.Idle, m.Make = leases.Member{PodUID: m.PodUID, VolumeUID: m.ClaimUID}, false, false, false, true, MakeOutdated
			m.Liveness, o.BudgetMin = leases.Never, 2
		}}, []string{"DeletePod outdated-idle c-c"}},
		"what was on a lost node is announced": {three, []func(*Observed){lostNode(false)}, []string{"MarkHealing volume-on-lost-node-announced c-c"}},
		"and given up with the Pod":            {three, []func(*Observed){lostNode(true)}, []string{"DeletePod volume-on-lost-node c-c"}},
		"not while the others are no quorum": {three, []func(*Observed){lostNode(true), func(o *Observed) {
			o.Members[1].EtcdReady, o.Members[1].Serving = false, false
		}}, nil},
		"a removed member leaves no claim": {three, []func(*Observed){func(o *Observed) {
			m := o.Members[2]
			m.Name, m.Listed, m.Pod, m.PodUID, m.ClaimUID, m.Voter = "c-d", false, PodAbsent, "", "", false
			m.Says.Retire = leases.Retirement{State: leases.RetireDone, Mark: "m", ClusterID: "9"}
			o.Members = append(o.Members, m)
		}}, []string{"DeleteLease removed-lease c-d"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := short(Steps(test.desired, whole(append([]func(*Observed){inMemory}, test.change...)...)))
			if diff := cmp.Diff(append([]string{}, test.want...), got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatMemoryLostIsReportedAPerson(t *testing.T) {
	gone := func(i int) func(*Observed) {
		return func(o *Observed) {
			m := &o.Members[i]
			m.Pod, m.PodUID, m.ClaimUID, m.EtcdReady = PodAbsent, "", "", false
		}
	}
	empty := func(i int) func(*Observed) {
		return func(o *Observed) {
			o.Members[i].EtcdReady, o.Members[i].Says.Data, o.Members[i].Says.Reason = false, leases.DataEmpty, "no quorum answers"
		}
	}
	begunEmpty := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].EtcdReady, o.Members[i].Says.Data = false, leases.DataEmpty }
	}
	down := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].EtcdReady, o.Members[i].Says.Data = false, "intact" }
	}
	tests := map[string]struct {
		change []func(*Observed)
		want   string
	}{
		"nothing":                               {[]func(*Observed){inMemory}, "AsExpected "},
		"one of three":                          {[]func(*Observed){inMemory, gone(0)}, "AsExpected "},
		"two of three":                          {[]func(*Observed){inMemory, gone(0), empty(1)}, "DataLost 2 of 3 voters lost their Pods"},
		"two whose etcd ended: they come back":  {[]func(*Observed){inMemory, down(0), down(1)}, "AsExpected "},
		"all, whose first etcd does not answer": {[]func(*Observed){inMemory, begunEmpty(0), begunEmpty(1), begunEmpty(2)}, "AsExpected "},
		"two whose Pods are gone, with volumes": {[]func(*Observed){gone(0), gone(1)}, "AsExpected "},
		"a member that Kubernetes has not started again": {[]func(*Observed){inMemory, gone(0), func(o *Observed) {
			o.Members[1].Pod, o.Members[1].EtcdReady = PodUnscheduled, false
		}}, "DataLost "},
		"an empty volume of the Pod before": {[]func(*Observed){inMemory, gone(0), empty(1), func(o *Observed) { o.Members[1].PodUID = "other" }}, "AsExpected "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := Status(Desired{Replicas: 3, ClusterID: 9}, whole(test.change...), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
			if !strings.HasPrefix(c.Reason+" "+c.Message, test.want) {
				t.Errorf("Degraded is %s %q, want %q", c.Reason, c.Message, test.want)
			}
		})
	}
	o := whole(inMemory, func(o *Observed) {
		o.Members, o.Record.Members, o.Members[0].Make = o.Members[:1], o.Record.Members[:1], MakeOutdated
	})
	status := Status(Desired{Replicas: 1, ClusterID: 9}, o, v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
	if c := condition(status, v1alpha1.ConditionProgressing); c.Reason != v1alpha1.ReasonRollingUpdateBlocked || !strings.Contains(c.Message, "c-a stores in memory") {
		t.Errorf("Progressing is %+v, want it to say why the only copy is not replaced", c)
	}
}
