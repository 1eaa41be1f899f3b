package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/rulestest"
)

var (
	sharedWords = []string{"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "peer Service", "PodDisruptionBudget"}
	deedWords   = map[deed]string{
		deedElse: "any other step", deedBind: "apply the RoleBinding", deedClaim: "create a claim", deedPod: "create a Pod", deedCount: "set label voter",
		deedHeal: "take a member away so that it heals", deedChoice: "take a member away by choice", deedVote: "take a vote away", deedAgent: "replace an agent",
	}
)

// kinds are all kinds of steps but those that write the record, which stand alone.
var kinds = []Kind{
	ApplyObject, DeleteObject, ApplyBudget, DeleteBudget, CreateLeaderLease, CreateSnapshotLease, DeleteSnapshotLease, CreateMemberLease, CreateClaim,
	CreatePod, MarkLease, LabelPod, DeletePod, AdoptPod, ReplaceAgent, RequestRemoval, RepeatRemoval, WithdrawRemoval, DeleteClaim, MarkRepairing, RetainClaim,
	DeleteLease, TakeClaim, ReleaseClaim, GrowClaim, CreateSnapshot, OrderUpgrade, EndUpgrade,
}

// eachTrouble yields what may have failed: of the shared objects each is there, missing or outdated.
func eachTrouble(check func(Troubles)) {
	objects := bits(sharedByPods | sharedBudget)
	all := 1
	for range objects {
		all *= 3
	}
	for i := range all {
		var t Troubles
		for j, state := 0, i; j < len(objects); j, state = j+1, state/3 {
			switch state % 3 {
			case 1:
				t.missing |= objects[j]
			case 2:
				t.outdated |= objects[j]
			}
		}
		for _, failed := range [][]Kind{nil, {CreateMemberLease}, {CreateClaim}, {LabelPod}, {TakeClaim, MarkLease, AdoptPod, MarkRepairing}} {
			t.failed = map[string][]Kind{"m": failed, "other": kinds}
			check(t)
		}
	}
}

func TestAStepIsHeldBackOnlyByWhatItNeeds(t *testing.T) {
	count := map[string]int{}
	eachTrouble(func(trouble Troubles) {
		for _, kind := range kinds {
			for _, toll := range bits(TollNone | TollHeal | TollChoice | TollVote) {
				s := Step{Kind: kind, Member: "m", Toll: toll}
				if kind == LabelPod {
					checkLabel(t, s, trouble)
					continue
				}
				if kind == ApplyObject || kind == ApplyBudget {
					s.Member = ""
				}
				_, taken := trouble.Leave(s)
				checkNeeds(t, s, trouble, taken)
				if !taken {
					count[rowOf(deedOf(s))]++
				}
			}
		}
		if binding, taken := trouble.Leave(Step{Kind: ApplyObject, Object: "RoleBinding/c-agent"}); taken == (trouble.missing&sharedRole != 0) {
			t.Errorf("%+v: %+v is taken: %t", trouble, binding, taken)
		} else if !taken {
			count[rowOf(deedBind)]++
		}
		if trouble.block(deedCount, "m") {
			count[rowOf(deedCount)]++
		}
	})
	var rows []string
	for _, r := range needRows {
		if r.deed != deedElse {
			rows = append(rows, r.name)
		}
	}
	fired(t, count, rows...)
	if n := count[rowOf(deedElse)]; n > 0 {
		t.Errorf("steps that need nothing were held back %d times", n)
	}
	renderNeeds(t, count)
}

func rowOf(d deed) string {
	return needRows[slices.IndexFunc(needRows, func(n need) bool { return n.deed == d })].name
}

func checkNeeds(t *testing.T, s Step, trouble Troubles, taken bool) {
	t.Helper()
	own := trouble.failed["m"]
	budget := (trouble.missing|trouble.outdated)&sharedBudget != 0
	needsOwn := slices.Contains(own, CreateMemberLease) || slices.Contains(own, CreateClaim)
	switch {
	case s.Kind == CreatePod && taken == (trouble.missing&(sharedAccount|sharedConfig) != 0 || needsOwn):
		t.Errorf("%+v: a Pod is made: %t", trouble, taken)
	case s.Kind == CreateClaim && taken == slices.Contains(own, CreateMemberLease):
		t.Errorf("%+v: a claim is made: %t", trouble, taken)
	case slices.Contains([]Kind{DeletePod, DeleteClaim, RequestRemoval}, s.Kind) && s.Toll != TollNone && taken && (budget || slices.Contains(own, LabelPod)):
		t.Errorf("%+v: %+v takes a member away unprotected, or with its clients", trouble, s)
	case slices.Contains([]Kind{DeletePod, DeleteClaim}, s.Kind) && s.Toll&(TollHeal|TollChoice) != 0 && taken &&
		trouble.missing&(sharedAccount|sharedConfig) != 0:
		t.Errorf("%+v: %+v takes away what could not come back", trouble, s)
	case s.Kind == ReplaceAgent && taken && (trouble.missing|trouble.outdated)&sharedByPods != 0:
		t.Errorf("%+v: an agent is replaced by one that may lack rights", trouble)
	case s.Toll == TollNone && !taken && !slices.Contains([]Kind{CreatePod, CreateClaim, ReplaceAgent}, s.Kind):
		t.Errorf("%+v: %+v needs nothing of what failed", trouble, s)
	}
}

func checkLabel(t *testing.T, s Step, trouble Troubles) {
	t.Helper()
	budget := (trouble.missing|trouble.outdated)&sharedBudget != 0
	s.Serving, s.Voter = new(true), new(true)
	left, _ := trouble.Leave(s)
	if left.Serving == nil {
		t.Errorf("%+v: a Pod that serves gets no clients", trouble)
	}
	if (left.Voter == nil) != (trouble.outdated&sharedBudget != 0) {
		t.Errorf("%+v: a Pod is counted by a budget that was not raised, or not counted by one that was", trouble)
	}
	s.Serving, s.Voter = new(false), new(false)
	left, taken := trouble.Leave(s)
	if left.Voter == nil || !taken {
		t.Errorf("%+v: a Pod stays counted", trouble)
	}
	goes, _ := trouble.Leave(Step{Kind: DeletePod, Member: "m", Toll: s.Toll})
	switch {
	case s.Toll == TollNone && left.Serving == nil:
		t.Errorf("%+v: clients stay with a Pod that does not serve", trouble)
	case s.Toll != TollNone && budget && left.Serving != nil:
		t.Errorf("%+v: %+v loses its clients although it stays", trouble, goes)
	}
}

func TestWhatFailedIsKnownByTheStepThatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		failed Step
		want   Troubles
	}{
		"an object that is missing": {Step{Kind: ApplyObject, Rule: ruleMissing, Object: "ServiceAccount/c"}, Troubles{missing: sharedAccount}},
		"one that is outdated":      {Step{Kind: ApplyObject, Rule: ruleOutdated, Object: "Role/c-agent"}, Troubles{outdated: sharedRole}},
		"the peers' Service": {Step{Kind: ApplyObject, Rule: ruleOutdated, Object: "Service/c-peer", Stage: StageShared},
			Troubles{outdated: sharedPeers}},
		"the clients' Service":                 {Step{Kind: ApplyObject, Rule: ruleMissing, Object: "Service/c-client", Stage: StageLate}, Troubles{}},
		"a budget that was to be raised":       {Step{Kind: ApplyBudget, Rule: "budget-raised"}, Troubles{outdated: sharedBudget}},
		"a budget that could not be made":      {Step{Kind: ApplyBudget, Rule: ruleMissing}, Troubles{missing: sharedBudget}},
		"a budget that was to be lowered":      {Step{Kind: ApplyBudget, Rule: ruleLowered}, Troubles{}},
		"a budget that was to be explained":    {Step{Kind: ApplyBudget, Rule: ruleExplained}, Troubles{}},
		"the Lease in which the leader stands": {Step{Kind: CreateLeaderLease, Rule: "leader-lease-missing"}, Troubles{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got Troubles
			got.Add(test.failed)
			if got.missing != test.want.missing || got.outdated != test.want.outdated {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// What is planned bears the toll by which it is held back.
func TestWhatTakesAMemberAwayBearsItsToll(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observed)
		want   map[string]Toll
	}{
		"a volume that was deleted under a Pod that serves": {
			func(o *Observed) { o.Members[0].Claim = ClaimTerminating },
			map[string]Toll{"LabelPod": TollHeal, "DeletePod": TollHeal},
		},
		"a Pod that ended":     {func(o *Observed) { o.Members[0].Pod = PodEnded }, map[string]Toll{"DeletePod": 0}},
		"an etcd that is down": {func(o *Observed) { o.Members[0].EtcdReady = false }, map[string]Toll{"LabelPod": TollNone}},
		"a member that leaves": {
			func(o *Observed) {
				o.Record.Members = append(o.Record.Members, "c-d")
				o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-a", Mark: "m"}
			},
			map[string]Toll{"LabelPod": TollVote},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]Toll{}
			for _, s := range Steps(Evaluate(Desired{Replicas: 3}, whole(test.change))) {
				if s.Member == "c-a" && (s.Kind == LabelPod || s.Kind == DeletePod) {
					got[string(s.Kind)] = s.Toll
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("tolls are %v, want %v", got, test.want)
			}
		})
	}
}

func renderNeeds(t *testing.T, count map[string]int) {
	t.Helper()
	var rows [][]string
	for _, r := range needRows {
		var after []string
		for _, kind := range r.after {
			after = append(after, string(kind))
		}
		rows = append(rows, []string{
			rulestest.Anchored("needs", r.name), deedWords[r.deed], objects(r.there), objects(r.current), strings.Join(after, ", "), r.why, fmt.Sprint(count[r.name]),
		})
	}
	golden.Section(t, "../../docs/reference/decisions.md", "needs", "### Which steps a failed step holds back: druid/policy.needRows\n\n"+golden.Table([]string{
		"rule", "step", "there, or just made", "not outdated", "not failed for the same member", "because", "cases",
	}, rows))
}

// objects names those that a cell holds, and is empty where it holds none.
func objects(mask shared) string {
	var held []string
	for i, object := range bits(sharedByPods | sharedBudget) {
		if mask&object != 0 {
			held = append(held, sharedWords[i])
		}
	}
	return strings.Join(held, ", ")
}
