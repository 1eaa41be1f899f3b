package plan

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// A Pod that went by another hand, or for a pause, comes back as the etcd that its member ran until another one may start.
func TestAPodComesAsTheVersionThatMayStart(t *testing.T) {
	up := Desired{Replicas: 3, Version: "3.7.3", Generation: 4}
	backed := Desired{Replicas: 3, Version: "3.7.3", Generation: 4, Backup: true}
	back := Desired{Replicas: 3, Version: "3.5.35", Generation: 4}
	agree, unknown := leases.UpgradeAgree, leases.UpgradeUnknown
	lost := func(o *Observed) { o.Members[2].Pod, o.Members[2].PodUID, o.Members[2].Make = PodAbsent, "", 0 }
	old := func(o *Observed) { o.Record.MaxLearners = leases.MaxLearners35 }
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    string
	}{
		"what changes no version":             {Desired{Replicas: 3, Version: "3.6.16"}, nil, "3.6.16"},
		"without a store":                     {up, nil, "3.7.3"},
		"before the backup":                   {backed, []func(*Observed){saveSeen(SaveComing, "")}, "3.6.16"},
		"beside a backup that failed":         {backed, []func(*Observed){saveSeen(SaveFailed, "")}, "3.6.16"},
		"after the backup":                    {backed, []func(*Observed){saveSeen(SaveDone, "")}, "3.7.3"},
		"in its turn":                         {backed, []func(*Observed){ordered(backed, agree, "")}, "3.7.3"},
		"a paused cluster, before the backup": {Desired{Replicas: 1, Version: "3.7.3", Backup: true}, []func(*Observed){saveSeen(0, "")}, "3.6.16"},
		"one that never told":                 {back, []func(*Observed){func(o *Observed) { o.Members[2].Says.Version = "" }}, "3.5.35"},
		"one whose Lease was lost": {
			Desired{Replicas: 3, Version: "3.5.35", Ran: map[string]string{"c-c": "3.6.16"}},
			[]func(*Observed){old, func(o *Observed) { o.Members[2].Says = leases.Member{} }}, "3.6.16",
		},
		"to a version that is refused":         {back, nil, "3.6.16"},
		"back, before etcd was told":           {back, []func(*Observed){old}, "3.6.16"},
		"back, while etcd is told":             {back, []func(*Observed){old, ordered(back, unknown, "")}, "3.6.16"},
		"back, in its turn":                    {back, []func(*Observed){old, ordered(back, agree, "")}, "3.5.35"},
		"back, by an order for something else": {back, []func(*Observed){old, ordered(up, agree, "")}, "3.6.16"},
		"over a skipped minor":                 {up, []func(*Observed){func(o *Observed) { o.Members[2].Says.Version = "3.5.35" }, ordered(up, agree, "")}, "3.5.35"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d, o := upgraded(test.desired, append(test.change, lost)...)
			if got := StartsAs("c-c", d, o); got != test.want {
				t.Errorf("it starts as %s, want %s", got, test.want)
			}
		})
	}
}

// A member that is down keeps its Pod until etcd was told that the group goes back: before that the older etcd would not start.
func TestNoDownPodGoesBackBeforeEtcdWasTold(t *testing.T) {
	back := Desired{Replicas: 3, Version: "3.5.35", Generation: 4}
	down := func(o *Observed) {
		o.Record.MaxLearners = leases.MaxLearners35
		o.Members[2].EtcdReady, o.Members[2].Idle, o.Members[2].Serving = false, true, false
	}
	for verdict, want := range map[leases.UpgradeVerdict]bool{"": false, leases.UpgradeUnknown: false, leases.UpgradeAgree: true} {
		d, o := upgraded(back, down)
		if verdict != "" {
			ordered(back, verdict, "")(&o)
		}
		if got := rolloutOf(d, o).next == "c-c"; got != want {
			t.Errorf("answer %q: the Pod goes: %v, want %v", verdict, got, want)
		}
	}
}

// After its deadline a change of version begins nothing: neither is a backup made, nor etcd told that the group goes back.
func TestAChangeOfVersionBeginsNothingAfterItsDeadline(t *testing.T) {
	old := func(o *Observed) { o.Record.MaxLearners = leases.MaxLearners35 }
	for name, test := range map[string]struct {
		desired Desired
		change  func(*Observed)
	}{
		"backup":    {Desired{Replicas: 3, Version: "3.7.3", Backup: true}, saveSeen(SaveAbsent, "")},
		"downgrade": {Desired{Replicas: 3, Version: "3.5.35"}, old},
	} {
		test.desired.Expired = true
		d, o := upgraded(test.desired, test.change)
		for _, s := range Steps(d, o) {
			if s.Kind == CreateSnapshot || s.Kind == OrderUpgrade {
				t.Errorf("%s: %s is taken after the deadline", name, s.Kind)
			}
		}
	}
}

// A Lease that was lost takes nothing of the gates away.
func TestAVersionWaitsWhoseMembersLostTheirLeases(t *testing.T) {
	d, o := upgraded(Desired{Replicas: 3, Version: "3.7.3", Backup: true, Ran: map[string]string{"c-a": "3.6.16"}}, saveSeen(SaveComing, ""))
	for i := range o.Members {
		o.Members[i].Says.Version = ""
	}
	if r := rolloutOf(d, o); r.next != "" || r.sum != rollingUpgrades {
		t.Errorf("Pod %q goes, and the sum is %d", r.next, r.sum)
	}
}
