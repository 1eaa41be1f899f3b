package policy

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// A Pod that went by another hand, or for a pause, comes back as the etcd that its member ran until another one may start.
func TestAPodComesAsTheVersionThatMayStart(t *testing.T) {
	up := Desired{Replicas: 3, Version: "3.7.3", Generation: 4}
	backed := Desired{Replicas: 3, Version: "3.7.3", Generation: 4, Backup: true}
	back := Desired{Replicas: 3, Version: "3.5.35", Generation: 4}
	patch := Desired{Replicas: 3, Version: "3.6.17", Generation: 4, Backup: true}
	wrong := Desired{Replicas: 3, Version: "3.7.99", Generation: 3, Backup: true}
	agree, unknown, differ := leases.UpgradeAgree, leases.UpgradeUnknown, leases.UpgradeDiffer
	never := func(o *Observed) { o.Members[2].Reports.Version = "" }
	lost := func(o *Observed) { o.Members[2].Pod, o.Members[2].PodUID, o.Members[2].Make = PodAbsent, "", 0 }
	old := func(o *Observed) { o.Record.MaxLearners = leases.MaxLearners35 }
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    string
	}{
		"what changes no version":             {Desired{Replicas: 3, Version: "3.6.16"}, nil, "3.6.16"},
		"without a store":                     {up, nil, "3.6.16"},
		"without a store, in its turn":        {up, []func(*Observed){ordered(up, agree, "")}, "3.7.3"},
		"without a store, once one went":      {up, []func(*Observed){runs(0, "3.7.3")}, "3.7.3"},
		"before the backup":                   {backed, []func(*Observed){saveSeen(SaveComing, "")}, "3.6.16"},
		"next to a backup that failed":        {backed, []func(*Observed){saveSeen(SaveFailed, "")}, "3.6.16"},
		"after the backup":                    {backed, []func(*Observed){saveSeen(SaveDone, "")}, "3.6.16"},
		"while the members are compared":      {backed, []func(*Observed){ordered(backed, unknown, "")}, "3.6.16"},
		"when they differ":                    {backed, []func(*Observed){ordered(backed, differ, "")}, "3.6.16"},
		"while they are compared again":       {backed, []func(*Observed){runs(0, "3.7.3"), ordered(backed, unknown, "")}, "3.7.3"},
		"to a patch that was corrected":       {backed, []func(*Observed){ordered(wrong, agree, ""), saveSeen(SaveDone, "")}, "3.7.3"},
		"to a patch, before the backup":       {patch, []func(*Observed){saveSeen(SaveComing, "")}, "3.6.16"},
		"to a patch, after it":                {patch, []func(*Observed){saveSeen(SaveDone, "")}, "3.6.17"},
		"in its turn":                         {backed, []func(*Observed){ordered(backed, agree, "")}, "3.7.3"},
		"a paused cluster, before the backup": {Desired{Replicas: 1, Version: "3.7.3", Backup: true}, []func(*Observed){saveSeen(0, "")}, "3.6.16"},
		"one that never ran, before":          {up, []func(*Observed){never}, "3.6.16"},
		"one that never ran, in its turn":     {up, []func(*Observed){never, ordered(up, agree, "")}, "3.7.3"},
		"one that never ran, next to another": {Desired{Replicas: 3, Version: "3.6.16"}, []func(*Observed){never}, "3.6.16"},
		"no report": {up, []func(*Observed){func(o *Observed) {
			for i := range o.Members {
				o.Members[i].Reports.Version = ""
			}
		}}, "3.7.3"},
		"one whose Lease was lost": {
			Desired{Replicas: 3, Version: "3.5.35", Ran: map[string]string{"c-c": "3.6.16"}},
			[]func(*Observed){old, func(o *Observed) { o.Members[2].Reports = leases.Member{} }}, "3.6.16",
		},
		"to a version that is refused":         {back, nil, "3.6.16"},
		"back, before etcd was reported":       {back, []func(*Observed){old}, "3.6.16"},
		"back, while etcd is reported":         {back, []func(*Observed){old, ordered(back, unknown, "")}, "3.6.16"},
		"back, in its turn":                    {back, []func(*Observed){old, ordered(back, agree, "")}, "3.5.35"},
		"back, by an order for something else": {back, []func(*Observed){old, ordered(up, agree, "")}, "3.6.16"},
		"over a skipped minor": {up,
			[]func(*Observed){func(o *Observed) { o.Members[2].Reports.Version = "3.5.35" }, ordered(up, agree, "")}, "3.5.35"},
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

func TestNoPodIsAWayAroundWhatAMinorWaitsFor(t *testing.T) {
	checkTable(t, startRows, "starts-as", "The version of a Pod that is created again: druid/policy.startRows",
		func(f startFacts, d rules.Decision[startVerdict]) string {
			goes := d.Verdict == startsAsAsked
			passed := f.agreed == rules.Yes || f.reached == rules.Yes && f.versionStep == versionStepMinor
			switch {
			case goes && f.versionStep == versionStepRefused:
				return "starts what etcd cannot go to"
			case goes && f.versionStep == versionStepPatch && f.saved == rules.No:
				return "starts another patch without a backup"
			case f.versionStep&(versionStepMinor|versionStepBack) != 0 && goes != passed:
				return "starts another minor although the gates of the first member were not passed, or the reverse"
			case f.versionStep == versionStepNone && !goes:
				return "keeps what changes no version"
			}
			return ""
		})
}

// TestDownPodRecreatedForOtherReason: before the comparison, a Pod that is down is created again only if something else is corrected.
// A Pod that could only come back as it is stays until its gates have passed: no Pod is replaced again and again.
func TestDownPodRecreatedForOtherReason(t *testing.T) {
	backed := Desired{Replicas: 3, Version: "3.7.3", Generation: 4, Backup: true}
	idle := func(o *Observed) {
		o.Members[2].EtcdReady, o.Members[2].Idle, o.Members[2].Serving = false, true, false
	}
	for remade, want := range map[rules.YesNo]string{0: "", rules.No: "", rules.Yes: "c-c"} {
		d, o := upgraded(backed, saveSeen(SaveDone, ""), idle, func(o *Observed) { o.Members[2].Remade = remade })
		if got := Evaluate(d, o).rollout.next; got != want {
			t.Errorf("remade %d: Pod %q goes, want %q", remade, got, want)
		}
	}
}

// TestLastOutdatedPodNotFlapping: the last outdated Pod does not come and go forever.
// The only member that is not yet as asked for: whether its Pod is there or gone, one backup is looked at, and it comes as what may start.
func TestLastOutdatedPodNotFlapping(t *testing.T) {
	patch := Desired{Replicas: 3, Version: "3.6.17", Generation: 4, Backup: true}
	d, there := upgraded(patch, runs(0, "3.6.17"), runs(1, "3.6.17"), saveSeen(SaveDone, ""))
	_, gone := upgraded(patch, runs(0, "3.6.17"), runs(1, "3.6.17"), saveSeen(SaveDone, ""), func(o *Observed) {
		o.Members[2].Pod, o.Members[2].Make, o.Members[2].EtcdReady, o.Members[2].Serving = PodAbsent, MakeUnknown, false, false
	})
	for name, o := range map[string]Observed{"there": there, "gone": gone} {
		if as := StartsAs("c-c", d, o); !NeedsSave(d, o) || as != "3.6.17" {
			t.Errorf("%s: the backup is looked at: %t; it starts as %s", name, NeedsSave(d, o), as)
		}
	}
}

// A member that is down keeps its Pod until etcd was reported that the group goes back: before that the older etcd would not start.
func TestDownPodWaitsForEtcdReport(t *testing.T) {
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
		if got := Evaluate(d, o).rollout.next == "c-c"; got != want {
			t.Errorf("answer %q: the Pod goes: %v, want %v", verdict, got, want)
		}
	}
}

// After its deadline a change of version begins nothing: neither is a backup made, nor etcd reported that the group goes back.
func TestVersionStopsAtDeadline(t *testing.T) {
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
		for _, s := range Steps(Evaluate(d, o)) {
			if s.Kind == CreateSnapshot || s.Kind == OrderUpgrade {
				t.Errorf("%s: %s is taken after the deadline", name, s.Kind)
			}
		}
	}
}

// TestVersionWaitsForLeases: a version waits while members have lost their Leases.
// A Lease that was lost takes nothing of the gates away.
func TestVersionWaitsForLeases(t *testing.T) {
	d, o := upgraded(Desired{Replicas: 3, Version: "3.7.3", Backup: true, Ran: map[string]string{"c-a": "3.6.16"}}, saveSeen(SaveComing, ""))
	for i := range o.Members {
		o.Members[i].Reports.Version = ""
	}
	if r := Evaluate(d, o).rollout; r.next != "" || r.sum != rollingUpgrades {
		t.Errorf("Pod %q goes, and the sum is %d", r.next, r.sum)
	}
}
