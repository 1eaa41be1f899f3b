package policy

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestRequestedReplacementSafe: requested replacements are safe for all facts.
func TestRequestedReplacementSafe(t *testing.T) {
	checkTable(t, replaceRows, "requested-replacements", "A member that a new one replaces on request: druid/policy.replaceRows",
		func(f replaceFacts, d rules.Decision[replaceVerdict]) string {
			switch v := d.Verdict; {
			case v != replaceNothing && f.named != replaceNamedListed:
				return "acts for a member that the cluster does not have"
			case v == replaceGrow && (f.record != RecordFormed || f.size != replaceSizeRight || f.time != replaceTimeFree):
				return "adds a member to a cluster that does not have as many as requested"
			case v == replaceGrow && (f.slot != slotFree || f.upToDate == rules.No):
				return "begins while another change is in progress"
			case v == replaceGrow && (f.others != removalAllowed || f.admits != rules.Yes):
				return "adds a member although the named one could not leave"
			case v == replaceLeave && f.size != replaceSizeMany:
				return "lets a member leave without another one in its place"
			case v == replaceHeld && f.others&(removalBlocked|removalBackupFailing) == 0 && f.admits == rules.Yes:
				return "names a hindrance that there is not"
			}
			return ""
		})
}

// grown is the cluster of whole, with member c-d as a fourth one.
func grown(change ...func(*Observed)) func(*Observed) {
	return func(o *Observed) {
		m := o.Members[2]
		m.Name, m.PodUID, m.ClaimUID = "c-d", "pod-c-d", "claim-c-d"
		m.Reports.ID, m.Reports.PodUID, m.Reports.VolumeUID = 4, m.PodUID, m.ClaimUID
		o.Members = append(o.Members, m)
		o.Record.Members, o.BudgetMin = append(o.Record.Members, "c-d"), 3
		for _, c := range change {
			c(o)
		}
	}
}

// joining makes the fourth member one that has not joined yet, and learning a learner.
func joining(o *Observed) {
	m := &o.Members[3]
	m.Reports, m.Voter, m.Serving = leases.Member{PodUID: m.PodUID, VolumeUID: m.ClaimUID}, false, false
}

func learning(o *Observed) {
	o.Members[3].Reports.Role, o.Members[3].Voter, o.Members[3].Serving = leases.RoleLearner, false, false
}

func TestStepsOfARequestedReplacement(t *testing.T) {
	down := func(i int) func(*Observed) {
		return func(o *Observed) { o.Members[i].EtcdReady, o.Members[i].Serving = false, false }
	}
	slot := func(o *Observed) { o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-a", Mark: "m"} }
	outdated := func(o *Observed) {
		o.Members[1].Make, o.Members[1].Stable, o.Members[0].Stable, o.Members[2].Stable, o.BudgetMin = MakeOutdated, true, true, true, 3
	}
	grow, leave := []string{"UpdateRecord request-grows c-a"}, []string{"OpenSlot too-many c-a"}
	a := Desired{Replicas: 3, Replace: "c-a"}
	tests := map[string]struct {
		desired Desired
		change  func(*Observed)
		want    []string
	}{
		"a new member comes first":                                    {a, func(*Observed) {}, grow},
		"not for one that is down, without which etcd adds no member": {a, down(0), nil},
		"not while a spec change is in progress": {Desired{Replicas: 3, Replace: "c-a", Target: Target{Deadline: someTime}},
			func(*Observed) {}, nil},
		"also for the leader":                {a, func(o *Observed) { o.Members[0].Reports.Role = leases.RoleLeader }, grow},
		"not while another one is down":      {a, down(1), nil},
		"not while another one is not known": {a, func(o *Observed) { o.Members[1].Liveness = leases.Unknown }, nil},
		"not while a Pod is outdated":        {a, outdated, nil},
		"nor while backups fail and other actions continue": {Desired{Replicas: 3, Replace: "c-a", Backup: true, WhenFailing: WhenFailingContinue},
			func(o *Observed) { unsaved(o) }, nil},
		"not while backups fail": {Desired{Replicas: 3, Replace: "c-a", Backup: true},
			func(o *Observed) { unsaved(o); o.BudgetMin = 3 }, nil},
		"not while a member replaces itself": {a,
			func(o *Observed) { o.Record.Replacing, o.BudgetMin = &leases.Replacing{Member: "c-b"}, 3 }, nil},
		"not after the deadline":                            {Desired{Replicas: 3, Replace: "c-a", Target: Target{Expired: true}}, func(*Observed) {}, nil},
		"not for a member that has left":                    {Desired{Replicas: 3, Replace: "c-x"}, func(*Observed) {}, nil},
		"not in a cluster that is deleted":                  {Desired{Replicas: 3, Replace: "c-a", Deleted: true}, func(*Observed) {}, nil},
		"a scale-up comes first":                            {Desired{Replicas: 5, Replace: "c-a"}, func(*Observed) {}, []string{"UpdateRecord scale-up "}},
		"a scale-down takes it first":                       {Desired{Replicas: 1, Replace: "c-a"}, func(*Observed) {}, leave},
		"and before those that are to be next":              {Desired{Replicas: 1, Replace: "c-a", LeaveFirst: []string{"c-b"}}, func(*Observed) {}, leave},
		"it stays while the new one joins":                  {a, grown(joining), nil},
		"it stays while the new one learns":                 {a, grown(learning), nil},
		"it leaves when the new one votes":                  {a, grown(), leave},
		"it stays if another one goes down":                 {a, grown(down(1)), nil},
		"a scale-down first takes the one that cannot join": {Desired{Replicas: 1, Replace: "c-a"}, grown(joining), []string{"OpenSlot too-many c-d"}},
		"a pause too":                   {Desired{Replace: "c-a"}, grown(joining), []string{"OpenSlot too-many c-d"}},
		"withdrawn, the new one leaves": {Desired{Replicas: 3}, grown(joining), []string{"OpenSlot too-many c-d"}},
		"withdrawn, its removal goes on": {Desired{Replicas: 3}, grown(slot, func(o *Observed) { o.Members[0].Serving, o.BudgetMin = false, 4 }), []string{
			"RequestRemoval request c-a",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkSteps(t, test.want, short(Steps(Evaluate(test.desired, whole(aged, test.change)))))
		})
	}
}

// A request whose member has left changes no order of leaving.
func TestARequestThatIsDoneChangesNoOrder(t *testing.T) {
	for named, want := range map[string]string{"": "c-b", "c-x": "c-b", "c-a": "c-d"} {
		d := Desired{Replicas: 1, Replace: named, LeaveFirst: []string{"c-b"}}
		if got, _ := removalCandidate(d, whole(aged, grown(joining))); got.Name != want {
			t.Errorf("annotation %q: got %s, want %s", named, got.Name, want)
		}
	}
}

// TestServingVotersDecideAdd: voters that serve decide whether etcd adds a member.
// etcd counts the new member as a voter that does not serve.
func TestServingVotersDecideAdd(t *testing.T) {
	list := func(voters, learners int) func(*Observed) {
		return func(o *Observed) {
			o.Record.MemberList = &leases.MemberList{}
			for i := range voters + learners {
				o.Record.MemberList.Members = append(o.Record.MemberList.Members,
					leases.ListedMember{ID: leases.FormatID(uint64(i + 1)), Name: fmt.Sprintf("c-%c", 'a'+i), Learner: i >= voters})
			}
		}
	}
	down := func(o *Observed) { o.Members[0].EtcdReady = false }
	only := func(o *Observed) { o.Record.Members, o.Members = o.Record.Members[:1], o.Members[:1] }
	external := func(o *Observed) { o.Record.Externals = []string{"a", "b", "c"} }
	for name, test := range map[string]struct {
		change []func(*Observed)
		want   rules.YesNo
	}{
		"three of three":                         {nil, rules.Yes},
		"two of three":                           {[]func(*Observed){down}, rules.No},
		"three of three and a learner":           {[]func(*Observed){list(3, 1)}, rules.Yes},
		"three of five":                          {[]func(*Observed){list(5, 0)}, rules.No},
		"the only one":                           {[]func(*Observed){only}, rules.Yes},
		"the only one, and it is down":           {[]func(*Observed){only, down}, rules.No},
		"three next to external ones":            {[]func(*Observed){external}, rules.No},
		"the external ones are still listed":     {[]func(*Observed){external, list(6, 0)}, rules.No},
		"three, and the external ones have left": {[]func(*Observed){external, list(3, 0)}, rules.Yes},
	} {
		if got, words := Evaluate(Desired{Replicas: 3}, whole(test.change...)).admits(); got != test.want || (words == "") != (got == rules.Yes) {
			t.Errorf("%s: got %s %q, want %s", name, got, words, test.want)
		}
	}
}

// TestRecordGrowsOncePerReplacement: a record grows once for a requested replacement.
// The record can have changed since the plan. A second name is never added for one request.
func TestRecordGrowsOncePerReplacement(t *testing.T) {
	plan, ok := replaceStep(Evaluate(Desired{Replicas: 3, Replace: "c-a"}, whole()))
	if !ok || !plan.MustConfirm() {
		t.Fatalf("got %+v, want a step that is confirmed", plan)
	}
	of := func(names ...string) leases.Record {
		return leases.Record{Phase: leases.PhaseFormed, Members: names}
	}
	taken, forming := of("c-a", "c-b", "c-c"), of("c-a", "c-b", "c-c")
	taken.PendingRemoval, forming.Phase = &leases.PendingRemoval{Member: "c-b", Mark: "m"}, leases.PhaseForming
	for name, test := range map[string]struct {
		record leases.Record
		want   int
	}{
		"as planned":                {of("c-a", "c-b", "c-c"), 1},
		"it has the name already":   {of("c-a", "c-b", "c-c", "c-d"), 0},
		"the member has left":       {of("c-b", "c-c", "c-d"), 0},
		"names were taken out":      {of("c-a", "c-b"), 0},
		"another one is to leave":   {taken, 0},
		"the record was made again": {forming, 0},
	} {
		if got := plan.Missing(test.record, 3); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
	if got := (Step{Kind: UpdateRecord}).Missing(of("c-a"), 3); got != 2 {
		t.Errorf("a scale-up adds %d names, want 2", got)
	}
}

func TestMessagesOfARequestedReplacement(t *testing.T) {
	slot := func(o *Observed) { o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-a", Mark: "m"} }
	down := func(o *Observed) { o.Members[1].EtcdReady = false }
	tests := map[string]struct {
		change func(*Observed)
		reason string
		want   string
	}{
		"about to begin":              {func(*Observed) {}, v1alpha1.ReasonReconciled, "3 members as requested."},
		"another one is down":         {down, v1alpha1.ReasonReplaceBlocked, "Member c-a cannot be replaced, because member c-b is not ready."},
		"a new one joins":             {grown(joining), v1alpha1.ReasonReplacingMember, "Replacing member c-a: member c-d joins, and has to vote first."},
		"a new one learns":            {grown(learning), v1alpha1.ReasonReplacingMember, "Replacing member c-a: member c-d joins, and has to vote first."},
		"it is about to leave":        {grown(), v1alpha1.ReasonReplacingMember, "Replacing member c-a: removing member c-a."},
		"clients leave":               {grown(slot), v1alpha1.ReasonReplacingMember, "Replacing member c-a: removing member c-a, draining its clients."},
		"another one goes down later": {grown(down), v1alpha1.ReasonReplaceBlocked, "Member c-a cannot be replaced, because member c-b is not ready."},
		"a node is lost while one joins": {grown(joining, func(o *Observed) { o.Members[1].NodeLost = true }), v1alpha1.ReasonReplaceBlocked,
			"Member c-a cannot be replaced, because 2 of 3 voters serve, and etcd adds no member before 3 do."},
		"another member is in the slot": {grown(func(o *Observed) { o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-b", Mark: "m"} }),
			v1alpha1.ReasonScalingDown,
			"4 members, 3 requested: removing member c-b, draining its clients."},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := Evaluate(Desired{Replicas: 3, Replace: "c-a"}, whole(aged, test.change))
			status := Status(e, v1alpha1.EtcdClusterStatus{}, nil, 1, metav1.Now())
			got := condition(status, v1alpha1.ConditionProgressing)
			if got.Reason != test.reason || got.Message != test.want {
				t.Errorf("got %s %q, want %s %q", got.Reason, got.Message, test.reason, test.want)
			}
			warned, informed := false, false
			for _, event := range Events(v1alpha1.EtcdClusterStatus{}, status) {
				warned = warned || event.Reason == v1alpha1.ReasonReplaceBlocked && event.Warning && event.Note == got.Message
				informed = informed || event.Reason == v1alpha1.ReasonReplacingMember && !event.Warning && event.Note == got.Message
			}
			if warned != (test.reason == v1alpha1.ReasonReplaceBlocked) || informed != (test.reason == v1alpha1.ReasonReplacingMember) {
				t.Errorf("warned: %t, informed: %t", warned, informed)
			}
		})
	}
}
