package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestVersionNeedsBackupAndComparison: no version changes without backup and comparison.
func TestVersionNeedsBackupAndComparison(t *testing.T) {
	checkTable(t, upgradeRows, "upgrade", "A change of etcd's version: druid/policy.upgradeRows", func(f upgradeFacts, d rules.Decision[upgradeVerdict]) string {
		u := d.Verdict
		changes := f.course&(courseOn|courseBack) != 0
		switch {
		case u.gate == gateOpen && f.course != courseNone && f.check != checkAgree:
			return "goes on, and it is not known that the members are equal"
		case u.gate == gateOpen && f.course == courseRefused, u.gate == gateRefused && f.course != courseRefused:
			return "mistakes what etcd can do"
		case u.gate == gateOpen && changes && f.begun == rules.No && f.saved&(SaveUnasked|SaveDone) == 0:
			return "goes on without a backup"
		case u.step == upgradeAsk && changes && f.begun == rules.No && f.saved&(SaveUnasked|SaveDone) == 0:
			return "begins without a backup"
		case f.check == checkDiffer && f.course&(courseNone|courseRefused) == 0 && u.gate != gateClosed:
			return "goes on although the members differ"
		case u.step == upgradeEnd && (f.course != courseDone || f.check != checkAgree):
			return "forgets that the members are to be compared"
		case f.course == courseNone && (u.gate != gateOpen || u.step != upgradeNothing):
			return "hinders what changes no version"
		}
		return ""
	})
}

// upgraded is a cluster of three that runs 3.6.16 and is to run another version.
func upgraded(d Desired, change ...func(*Observed)) (Desired, Observed) {
	if d.Replicas == 0 {
		d.Replicas = 3
	}
	o := edited()
	for i := range o.Members {
		o.Members[i].Reports.Version = "3.6.16"
	}
	o.Record.MaxLearners = leases.MaxLearners
	for _, f := range change {
		f(&o)
	}
	return d, o
}

// ordered has the order for the members as they are stand on the record, answered.
func ordered(d Desired, verdict leases.UpgradeVerdict, why string) func(*Observed) {
	return func(o *Observed) {
		o.Record.Upgrade.Order = leases.UpgradeOrder{Nonce: "earlier", Version: d.Version}
		c, _ := courseOf(d, *o, o.listed())
		order, _ := orderFor(d, *o, o.listed(), c)
		o.Record.Upgrade = leases.Upgrade{Order: order, Answer: leases.UpgradeAnswer{Nonce: order.Nonce, Verdict: verdict, Why: why}}
	}
}

func runs(i int, version string) func(*Observed) {
	return func(o *Observed) {
		o.Members[i].Make, o.Members[i].Reports.Version, o.Members[i].PodUID = MakeCurrent, version, "another"
		o.Members[i].Reports.PodUID = "another"
	}
}

// unattached has no Pod reach the store. Another one that would come in its place does, where remade says so.
func unattached(remade rules.YesNo) func(*Observed) {
	return func(o *Observed) {
		for i := range o.Members {
			o.Members[i].Remade = remade
			o.Unattached = append(o.Unattached, o.Members[i].Name)
		}
	}
}

// remade has another Pod come in the place of each member's, or not.
func remade(answer rules.YesNo) func(*Observed) {
	return func(o *Observed) {
		for i := range o.Members {
			o.Members[i].Remade = answer
		}
	}
}

func leaderRemade(o *Observed) {
	for i, m := range o.Members {
		if m.leads() {
			o.Members[i].Remade = rules.Yes
		}
	}
}

func saveSeen(state SaveState, message string) func(*Observed) {
	return func(o *Observed) {
		o.Full, o.Delta = Snapshot{Lease: LeaseOurs, Liveness: leases.Live}, Snapshot{Lease: LeaseOurs, Liveness: leases.Live}
		o.Save = Save{State: state, Name: "c-before-3-7-3-4", Message: message}
	}
}

func TestUpgrade(t *testing.T) {
	up := Desired{Replicas: 3, Version: "3.7.3", Generation: 4}
	backed := Desired{Replicas: 3, Version: "3.7.3", Generation: 4, Backup: true}
	patch := Desired{Replicas: 3, Version: "3.6.17", Generation: 4, Backup: true}
	back := Desired{Replicas: 3, Version: "3.5.35", Generation: 4}
	agree := leases.UpgradeAgree
	goes := []string{"LabelPod leaving c-a serving=false", "DeletePod outdated c-a"}
	idle := func(o *Observed) {
		o.Members[2].EtcdReady, o.Members[2].Idle, o.Members[2].Serving, o.BudgetMin = false, true, false, 2
	}
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    []string
		reason  string
		words   string
	}{
		"without a store the members are compared first": {
			up, nil, []string{"OrderUpgrade compare-members"}, v1alpha1.ReasonUpgrading, "0 of 3 members run etcd 3.7.3: the members are compared",
		},
		"with one a backup comes first": {
			backed, []func(*Observed){saveSeen(SaveAbsent, "")}, []string{"CreateSnapshot backup-first"}, v1alpha1.ReasonUpgrading,
			"0 of 3 members run etcd 3.7.3: EtcdSnapshot c-before-3-7-3-4 is made and verified before the first member changes to 3.7.3",
		},
		"Pods that do not reach the store are made again before it, as what they ran": {
			backed, []func(*Observed){saveSeen(SaveAbsent, ""), unattached(rules.Yes)}, goes, v1alpha1.ReasonUpgrading, "0 of 3",
		},
		"also while it is waited for": {backed, []func(*Observed){saveSeen(SaveComing, ""), unattached(rules.Yes)}, goes, v1alpha1.ReasonUpgrading, "0 of 3"},
		"but none that would come as it is": {
			backed, []func(*Observed){saveSeen(SaveAbsent, ""), unattached(rules.No)}, []string{}, v1alpha1.ReasonUpgrading, "0 of 3",
		},
		"nor after one that failed": {
			backed, []func(*Observed){saveSeen(SaveFailed, "denied"), unattached(rules.Yes)}, []string{}, v1alpha1.ReasonUpgradeBlocked, "0 of 3",
		},
		"of a patch too": {patch, []func(*Observed){saveSeen(SaveAbsent, "")}, []string{"CreateSnapshot backup-first"}, v1alpha1.ReasonUpgrading, ""},
		"that is waited for": {
			backed, []func(*Observed){saveSeen(SaveComing, "")}, []string{}, v1alpha1.ReasonUpgrading, "0 of 3",
		},
		"and one that failed holds everything": {
			backed, []func(*Observed){saveSeen(SaveFailed, "no bucket")}, []string{}, v1alpha1.ReasonUpgradeBlocked,
			"0 of 3 members run etcd 3.7.3: no other Pod is replaced, because EtcdSnapshot c-before-3-7-3-4, the verified backup before the first " +
				"step, failed: no bucket. Resolve that, and delete",
		},
		"after it the members are compared": {
			backed, []func(*Observed){saveSeen(SaveDone, "")}, []string{"OrderUpgrade compare-members"}, v1alpha1.ReasonUpgrading, "",
		},
		"no backup is waited for where no etcd runs, once there is one": {
			patch, []func(*Observed){saveSeen(SaveDone, ""), idle}, []string{"DeletePod outdated-idle c-c"}, v1alpha1.ReasonUpgrading, "",
		},
		"but for another minor the members are compared first": {
			backed, []func(*Observed){saveSeen(SaveDone, ""), idle}, []string{}, v1alpha1.ReasonUpgradeBlocked,
			"0 of 3 members run etcd 3.7.3: no other Pod is replaced, because",
		},
		"but before": {
			backed, []func(*Observed){saveSeen(SaveComing, ""), idle}, []string{}, v1alpha1.ReasonUpgradeBlocked, "0 of 3",
		},
		"members that are equal let the first one go": {up, []func(*Observed){ordered(up, agree, "")}, goes, v1alpha1.ReasonUpgrading,
			"0 of 3 members run etcd 3.7.3: member c-a is being restarted. No backup was made before, because spec.backup is not set"},
		"what is not known yet waits, and says why": {
			up, []func(*Observed){ordered(up, leases.UpgradeUnknown, "a compaction is in progress")}, []string{}, v1alpha1.ReasonUpgrading,
			"0 of 3 members run etcd 3.7.3: the members are compared, and it is not known yet whether they have the same data: a compaction is in progress",
		},
		"logs that are cut too seldom stop it": {
			up, []func(*Observed){remade(rules.No), ordered(up, leases.UpgradeAwaitsEdit, "member c-a has 200000")}, []string{}, v1alpha1.ReasonUpgradeBlocked,
			"0 of 3 members run etcd 3.7.3: no other Pod is replaced, because member c-a has 200000. Pods get that change before the new version",
		},
		"until Pods that cut them more often come as the version that they run": {
			up, []func(*Observed){remade(rules.Yes), ordered(up, leases.UpgradeAwaitsEdit, "member c-a has 200000")}, goes, v1alpha1.ReasonUpgrading, "0 of 3",
		},
		"the leader too, when the followers came with it": {
			up, []func(*Observed){remade(rules.No), leaderRemade, ordered(up, leases.UpgradeAwaitsEdit, "member c-b has 200000")},
			[]string{"LabelPod leaving c-b serving=false", "DeletePod outdated c-b"}, v1alpha1.ReasonUpgrading, "0 of 3",
		},
		"and when the followers came as what reaches the store": {
			backed, []func(*Observed){saveSeen(SaveAbsent, ""), unattached(rules.No), leaderRemade},
			[]string{"LabelPod leaving c-b serving=false", "DeletePod outdated c-b"}, v1alpha1.ReasonUpgrading, "0 of 3",
		},
		"which is no way to the other version": {
			up, []func(*Observed){remade(rules.Yes), runs(2, "3.7.3"), ordered(up, leases.UpgradeAwaitsEdit, "member c-a has 200000")}, []string{},
			v1alpha1.ReasonUpgradeBlocked, "1 of 3",
		},
		"nor where the members differ": {
			up, []func(*Observed){remade(rules.Yes), ordered(up, leases.UpgradeDiffer, "at revision 7")}, []string{}, v1alpha1.ReasonUpgradeBlocked, "0 of 3",
		},
		"nor before they are compared": {
			up, []func(*Observed){remade(rules.Yes), ordered(up, leases.UpgradeUnknown, "")}, []string{}, v1alpha1.ReasonUpgrading, "0 of 3",
		},
		"members that differ stop it": {
			up, []func(*Observed){ordered(up, leases.UpgradeDiffer, "at revision 7")}, []string{}, v1alpha1.ReasonUpgradeBlocked,
			"0 of 3 members run etcd 3.7.3: no other Pod is replaced, because the members do not have the same data: at revision 7. No Pod is " +
				"replaced until you change the spec",
		},
		"after each Pod they are compared again": {
			backed, []func(*Observed){ordered(backed, agree, ""), runs(0, "3.7.3"), saveSeen(0, "")}, []string{"OrderUpgrade compare-members"}, v1alpha1.ReasonUpgrading,
			"1 of 3 members runs etcd 3.7.3: the members are compared",
		},
		"after each edit too": {
			up, []func(*Observed){ordered(Desired{Version: "3.7.3", Generation: 3}, leases.UpgradeDiffer, "")}, []string{"OrderUpgrade compare-members"},
			v1alpha1.ReasonUpgrading, "",
		},
		"and after the last one": {
			up, []func(*Observed){ordered(up, agree, ""), runs(0, "3.7.3"), runs(1, "3.7.3"), runs(2, "3.7.3")},
			[]string{"OrderUpgrade compare-members"}, v1alpha1.ReasonUpgrading, "3 of 3 members run etcd 3.7.3: the members are compared",
		},
		"then it is over": {
			up, []func(*Observed){runs(0, "3.7.3"), runs(1, "3.7.3"), runs(2, "3.7.3"), ordered(up, agree, "")},
			[]string{"EndUpgrade members-equal-last"}, v1alpha1.ReasonUpgrading, "",
		},
		"or not": {
			up, []func(*Observed){runs(0, "3.7.3"), runs(1, "3.7.3"), runs(2, "3.7.3"), ordered(up, leases.UpgradeDiffer, "at revision 9")},
			[]string{}, v1alpha1.ReasonUpgradeBlocked, "3 of 3 members run etcd 3.7.3: no other Pod is replaced, because the members do not have the same",
		},
		"an edit that is taken back is compared too": {
			Desired{Replicas: 3, Version: "3.6.16", Generation: 5},
			[]func(*Observed){ordered(up, agree, ""), runs(0, "3.6.16"), runs(1, "3.6.16"), runs(2, "3.6.16")},
			[]string{"OrderUpgrade compare-members"}, v1alpha1.ReasonUpgrading, "3 of 3",
		},
		"no etcd skips a minor": {
			up, []func(*Observed){func(o *Observed) { o.Members[1].Reports.Version = "3.5.35"; o.BudgetMin = 2 }}, []string{}, v1alpha1.ReasonUpgradeBlocked,
			"0 of 3 members run etcd 3.7.3: no other Pod is replaced, because member c-b runs etcd 3.5.35, and 3.7.3 is requested: etcd supports " +
				"upgrades by one minor at a time",
		},
		"nor leaves a release that is too old for that": {
			Desired{Replicas: 3, Version: "3.6.16"}, []func(*Observed){func(o *Observed) {
				for i := range o.Members {
					o.Members[i].Reports.Version = "3.5.20"
				}
				o.BudgetMin = 2
			}}, []string{}, v1alpha1.ReasonUpgradeBlocked,
			"0 of 3 members run etcd 3.6.16: no other Pod is replaced, because member c-a runs etcd 3.5.20, and 3.6.16 is requested: after an upgrade " +
				"to 3.6 from a release before 3.5.26, removed members reappear",
		},
		"no group with room for learners goes back to 3.5": {
			back, []func(*Observed){func(o *Observed) { o.BudgetMin = 2 }}, []string{}, v1alpha1.ReasonUpgradeBlocked,
			"0 of 3 members run etcd 3.5.35: no other Pod is replaced, because member c-a runs etcd 3.6.16, and 3.5.35 is requested: the raft group " +
				"was formed with max-learners 16, which 3.5 has no flag for",
		},
		"one that was formed on 3.5 does": {
			back, []func(*Observed){func(o *Observed) { o.Record.MaxLearners = leases.MaxLearners35 }}, []string{"OrderUpgrade compare-members 3.5"},
			v1alpha1.ReasonUpgrading, "",
		},
		"what changes no version is not compared": {
			Desired{Replicas: 3, Version: "3.6.16", Backup: true}, []func(*Observed){saveSeen(0, "")}, goes, v1alpha1.ReasonRollingUpdate, "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d, o := upgraded(test.desired, test.change...)
			var got []string
			steps := Steps(Evaluate(d, o))
			for i, s := range short(steps) {
				if order := steps[i].Order; order != nil {
					s = string(steps[i].Kind) + " " + steps[i].Rule + " " + order.Downgrade
				} else if steps[i].Kind == CreateSnapshot {
					s = string(steps[i].Kind) + " " + steps[i].Rule
				}
				if !strings.HasPrefix(s, "ApplyBudget") {
					got = append(got, strings.TrimSpace(s))
				}
			}
			checkSteps(t, test.want, got)
			checkProgress(t, d, o, test.reason, test.words)
		})
	}
}

func TestAReleaseWithAKnownBugIsWarnedOfOnce(t *testing.T) {
	status := func(versions ...string) (s v1alpha1.EtcdClusterStatus) {
		for _, v := range versions {
			s.Members = append(s.Members, v1alpha1.MemberStatus{Name: v, Version: v})
		}
		return s
	}
	before, after := status("3.6.12", "3.6.16"), status("3.6.12", "3.6.13", "3.6.13", "3.6.16", "3.7.1", "")
	want := []Event{{Warning: true, Reason: v1alpha1.EventKnownEtcdBug, Note: "etcd 3.6.13 has a known bug: watches leak memory; fixed in 3.6.14."}}
	if diff := cmp.Diff(want, Events(before, after)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
