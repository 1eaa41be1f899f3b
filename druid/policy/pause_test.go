package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestPauseStopsOnlyWhatComesBackWhole(t *testing.T) {
	checkTable(t, pauseRows, "pause", "The last member of a cluster without replicas: druid/policy.pauseRows", func(f pauseFacts, d rules.Decision[pause]) string {
		if f.names != lastMembersOne && (f.alone != aloneUnknown || f.pod != PodAbsent || f.volume != rules.No || f.lastMember != lastMemberStays ||
			f.saved != savedAll || f.late != rules.No) {
			return rulestest.Impossible // without one name there is no member to look at
		}
		verdict := d.Verdict
		started := f.pod&(PodUnscheduled|PodUnstarted) == 0
		switch {
		case f.asked == rules.No && verdict != pauseNone:
			return "pauses a cluster of which the spec requests members"
		case verdict == pauseStop && (f.record != RecordFormed || f.names != lastMembersOne || f.alone == aloneNo || f.slot != slotFree):
			return "stops a member that is not the last one"
		case verdict == pauseStop && started && (f.pod != PodLive || f.volume == rules.No || f.alone != aloneYes):
			return "stops a member whose data would go with it"
		case verdict == pauseStop && f.pod == PodUnstarted && f.volume == rules.No:
			return "deletes the Pod that keeps the only copy"
		case verdict == pauseStop && started && (f.saved != savedAll || f.lastMember&(lastMemberReady|lastMemberIdle) == 0):
			return "stops a member that is not whole, or not saved"
		case started && f.late == rules.Yes && verdict&(pauseStop|pauseDrain) != 0:
			return "begins what is to be left alone"
		case verdict == pauseRest && (f.pod != PodAbsent || f.names == lastMembersOther):
			return "calls a cluster paused that runs, or of which too little is known"
		case verdict == pauseRest && f.names == lastMembersNone && f.record != RecordAbsent:
			return "pauses although the record lists no member"
		case verdict == pauseDrain && f.lastMember != lastMemberReady:
			return "cuts clients off without a backup"
		}
		return ""
	})
}

// last is a cluster of which one member is left, whose leader's agent said so.
func last(o *Observed) {
	o.Members, o.Record.Members, o.BudgetMin = o.Members[:1], o.Record.Members[:1], 1
	o.Members[0].Reports.Role, o.Members[0].Reports.Revision = leases.RoleLeader, 9
	published(o, 0)
}

// stopped is one that is paused.
func stopped(o *Observed) {
	last(o)
	m := &o.Members[0]
	m.Pod, m.PodUID, m.EtcdReady, m.Serving, m.Voter, m.Liveness = PodAbsent, "", false, false, false, leases.Unknown
	o.Budget = ObjectAbsent
}

func TestPauseSteps(t *testing.T) {
	off, on := Desired{ClusterID: 9}, Desired{ClusterID: 9, Backup: true}
	none := []string{}
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    []string
	}{
		"the last member leaves the Service, then its Pod goes": {off, []func(*Observed){last}, []string{
			"LabelPod leaving c-a serving=false", "DeletePod pause c-a",
		}},
		"with backups it goes when all that it reports is saved": {on, []func(*Observed){last, saved}, []string{
			"LabelPod leaving c-a serving=false", "DeletePod pause c-a",
		}},
		"not before: clients leave it meanwhile": {on, []func(*Observed){last, saved, func(o *Observed) { o.Members[0].Reports.Revision = 10 }}, []string{
			"LabelPod leaving c-a serving=false",
		}},
		"a backup that fails holds it, and takes nothing from clients": {on, []func(*Observed){last, unsaved}, none},
		"also if other actions continue": {Desired{ClusterID: 9, Backup: true, WhenFailing: WhenFailingContinue},
			[]func(*Observed){last, unsaved}, none},
		"its deadline has passed": {Desired{ClusterID: 9, Target: Target{Expired: true}}, []func(*Observed){last}, none},
		"its claim is deleted, and its Pod was never started": {off, []func(*Observed){last, func(o *Observed) {
			o.Members[0].Claim, o.Members[0].Pod, o.Members[0].EtcdReady, o.Members[0].Serving = ClaimTerminating, PodUnstarted, false, false
		}}, none},
		"its claim is deleted":          {off, []func(*Observed){last, func(o *Observed) { o.Members[0].Claim = ClaimTerminating }}, none},
		"the list is not published yet": {off, []func(*Observed){last, func(o *Observed) { o.Record.MemberList = nil }}, none},
		"the list has another one": {off, []func(*Observed){last, func(o *Observed) {
			o.Record.MemberList.Members = append(o.Record.MemberList.Members, leases.ListedMember{ID: "2", Name: "c-b"})
		}}, none},
		"its node is unreachable": {off, []func(*Observed){last, func(o *Observed) { o.Members[0].NodeLost = true }}, none},
		"a member replaces itself": {off, []func(*Observed){last, func(o *Observed) {
			o.Record.Replacing = &leases.Replacing{Member: "c-a", PodUID: "pod-c-a"}
		}}, none},
		"its Pod is outdated: the next one will not be": {off, []func(*Observed){last, func(o *Observed) { o.Members[0].Make = MakeOutdated }}, []string{
			"LabelPod leaving c-a serving=false", "DeletePod pause c-a",
		}},
		"outdated and not ready, it is left alone": {off, []func(*Observed){last, func(o *Observed) {
			o.Members[0].Make, o.Members[0].EtcdReady, o.Members[0].Serving = MakeOutdated, false, false
		}}, none},
		"a Pod in which nothing ever ran goes at once": {on, []func(*Observed){last, unsaved, func(o *Observed) {
			o.Members[0].Pod, o.Members[0].EtcdReady, o.Members[0].Serving = PodUnscheduled, false, false
		}}, []string{"DeletePod never-started c-a"}},
		"a paused cluster has no steps": {off, []func(*Observed){stopped}, none},
		"the budget goes with the last Pod": {off, []func(*Observed){stopped, func(o *Observed) { o.Budget = ObjectCurrent }},
			[]string{"DeleteBudget budget-without-members "}},
		"not while that Pod ends": {off,
			[]func(*Observed){last, func(o *Observed) { o.Members[0].Pod, o.Members[0].Serving = PodTerminating, false }}, none},
		"a claim that is deleted is not made again": {off,
			[]func(*Observed){stopped, func(o *Observed) { o.Members[0].Claim, o.Members[0].ClaimUID = ClaimAbsent, "" }}, none},
		"its Lease comes back": {off, []func(*Observed){stopped, forgotten}, []string{"CreateMemberLease lease-missing c-a"}},
		"resumed: the same name on the same claim": {Desired{Replicas: 1, ClusterID: 9}, []func(*Observed){stopped},
			[]string{"CreatePod pod-missing c-a", "ApplyBudget object-missing  1"}},
		"resumed with more: the record grows as usual": {Desired{Replicas: 3, ClusterID: 9}, []func(*Observed){stopped}, []string{"UpdateRecord scale-up "}},
		"another one is in the group: the Pod comes back": {off,
			[]func(*Observed){stopped, func(o *Observed) { o.Record.MemberList.Members = nil; o.Budget = ObjectCurrent }}, []string{"CreatePod pod-missing c-a"}},
		"a record that vanished comes back as Formed": {Desired{ClusterID: 9, Known: []string{"c-a"}}, []func(*Observed){stopped, func(o *Observed) {
			o.RecordState, o.Record = RecordAbsent, leases.Record{}
		}}, []string{"CreateRecord record-lost "}},
		"nothing was ever made": {Desired{}, []func(*Observed){func(o *Observed) { *o = Observed{RecordState: RecordAbsent} }}, none},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkSteps(t, test.want, short(Steps(Evaluate(test.desired, whole(test.change...)))))
		})
	}
}

// forgotten is the Lease of the first member, deleted.
func forgotten(o *Observed) {
	m := &o.Members[0]
	m.Lease, m.Readable, m.Reports = LeaseAbsent, false, leases.Member{}
	o.Record.MemberList = nil
}

func TestMessagesOfAPause(t *testing.T) {
	const held = "paused: PersistentVolumeClaim c-a holds the data. Member c-a returns with it when replicas is 1 or more"
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		want    map[string]string // reason, and words
	}{
		"paused": {Desired{ClusterID: 9, Backup: true}, []func(*Observed){stopped, unsaved}, map[string]string{
			v1alpha1.ConditionReady: "False Paused " + held, v1alpha1.ConditionAllMembersReady: "False Paused " + held,
			v1alpha1.ConditionProgressing: "False Paused " + held, v1alpha1.ConditionDegraded: "False AsExpected no problem is known",
			v1alpha1.ConditionSpread: "Unknown Paused no member runs", v1alpha1.ConditionBackupReady: "Unknown Paused the cluster is paused",
			v1alpha1.ConditionBackupVerified: "Unknown Paused the cluster is paused",
		}},
		"its Leases were deleted": {Desired{ClusterID: 9}, []func(*Observed){stopped, forgotten}, map[string]string{
			v1alpha1.ConditionReady: "False Paused " + held, v1alpha1.ConditionDegraded: "False AsExpected ",
		}},
		"its claim was deleted": {Desired{ClusterID: 9}, []func(*Observed){stopped, func(o *Observed) { o.Members[0].Claim = ClaimAbsent }}, map[string]string{
			v1alpha1.ConditionDegraded: "True VolumeDeleted member c-a: its PersistentVolumeClaim c-a was deleted while the cluster was paused",
		}},
		"the backup fails": {Desired{ClusterID: 9, Backup: true}, []func(*Observed){last, unsaved}, map[string]string{
			v1alpha1.ConditionReady:       "True Quorate ",
			v1alpha1.ConditionProgressing: "False PauseBlocked replicas is 0, and the last member c-a cannot be stopped: backups fail",
		}},
		"it is not ready": {Desired{ClusterID: 9},
			[]func(*Observed){last, func(o *Observed) { o.Members[0].EtcdReady, o.Members[0].Stuck = false, true }}, map[string]string{
				v1alpha1.ConditionProgressing: "False PauseBlocked replicas is 0, and the last member c-a cannot be stopped: it is not ready. Set replicas to 1",
			}},
		"it goes": {Desired{ClusterID: 9}, []func(*Observed){last}, map[string]string{
			v1alpha1.ConditionReady: "True Quorate ", v1alpha1.ConditionProgressing: "True Pausing replicas is 0: the Pod of the last member c-a is being deleted",
		}},
		"others leave first": {Desired{ClusterID: 9}, nil, map[string]string{v1alpha1.ConditionProgressing: "True ScalingDown 3 members, 0 requested"}},
		"it resumes": {Desired{ClusterID: 9, Replicas: 1, PauseReported: true}, []func(*Observed){stopped}, map[string]string{
			v1alpha1.ConditionReady: "False Resuming the cluster was paused, and member c-a is restarted", v1alpha1.ConditionProgressing: "True Resuming ",
		}},
		"it is back": {Desired{ClusterID: 9, Replicas: 1, PauseReported: true}, []func(*Observed){last}, map[string]string{
			v1alpha1.ConditionReady: "True Quorate ", v1alpha1.ConditionProgressing: "False Reconciled ",
		}},
		"nothing was ever made": {Desired{}, []func(*Observed){func(o *Observed) { *o = Observed{RecordState: RecordAbsent} }}, map[string]string{
			v1alpha1.ConditionReady: "False Paused replicas is 0, and no member was ever created", v1alpha1.ConditionProgressing: "False Paused ",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := Status(Evaluate(test.desired, whole(test.change...)), v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
			for kind, want := range test.want {
				c := meta.FindStatusCondition(status.Conditions, kind)
				if c == nil || !strings.HasPrefix(strings.ToLower(string(c.Status)+" "+c.Reason+" "+c.Message), strings.ToLower(want)) {
					t.Errorf("%s is %+v, want %q", kind, c, want)
				}
			}
		})
	}
}

// TestPauseIsNoFaultTime: a pause is no time in which something was wrong.
func TestPauseIsNoFaultTime(t *testing.T) {
	at := func(hour int) metav1.Time { return metav1.Date(2026, 11, 22, hour, 0, 0, 0, metav1.Now().Location()) }
	wrongs := func(s v1alpha1.EtcdClusterStatus) (words []string) {
		for _, m := range s.Members {
			words = append(words, string(m.Status)+" "+m.Reason+" "+m.Role)
		}
		return words
	}
	off := Desired{ClusterID: 9}
	running := Status(Evaluate(off, whole(last)), v1alpha1.EtcdClusterStatus{}, nil, 1, at(1))
	paused := Status(Evaluate(off, whole(stopped)), running, nil, 1, at(2))
	if diff := cmp.Diff([]string{"Paused Paused "}, wrongs(paused)); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if again := Status(Evaluate(off, whole(stopped)), paused, nil, 1, at(3)); !cmp.Equal(paused, again) {
		t.Errorf("a paused cluster is written again: %s", cmp.Diff(paused, again))
	}
	resumed := Status(Evaluate(Desired{ClusterID: 9, Replicas: 1, PauseReported: PauseReportedBy(paused.Conditions)}, whole(stopped)), paused, nil, 2, at(4))
	if c := condition(resumed, v1alpha1.ConditionReady); c.Reason != v1alpha1.ReasonResuming || c.LastTransitionTime != at(4) {
		t.Errorf("Ready is %+v, want it to resume from now on", c)
	}
	back := Status(Evaluate(Desired{ClusterID: 9, Replicas: 1, PauseReported: PauseReportedBy(resumed.Conditions)}, whole(last)), resumed, nil, 2, at(5))
	var reasons []string
	for _, e := range [][]Event{Events(running, paused), Events(paused, resumed), Events(resumed, back)} {
		for _, e := range e {
			if e.Warning {
				t.Errorf("a pause is warned of: %+v", e)
			}
			reasons = append(reasons, e.Reason)
		}
	}
	if diff := cmp.Diff([]string{"Paused", "Resuming", "MemberReady", "Resumed"}, reasons); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}
