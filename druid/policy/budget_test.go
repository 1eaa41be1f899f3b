package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/golden"
)

func TestBudgetTableIsSafeForAllFacts(t *testing.T) {
	checkTable(t, budgetRows, "budget", "How many Pods can be evicted: druid/policy.budgetRows", func(f budgetFacts, d rules.Decision[budgetVerdict]) string {
		still := f.unsaved == rules.No && f.change == budgetStill && f.strays == rules.No
		alone := still && f.voters == budgetOneVoter && f.single == rules.Yes
		switch {
		case (d.Verdict == budgetNone) != alone:
			return "lets the only voter go, or keeps it, against the spec"
		case alone:
			return ""
		case d.Verdict == budgetSpare && (!still || f.up != budgetAllUp):
			return "allows an eviction although the cluster is not whole"
		case d.Verdict == budgetReady && !still:
			return "allows the eviction of a Pod that is not ready while others change"
		case d.Verdict != budgetSpare && still && f.up == budgetAllUp && f.voters == budgetMoreVoters:
			return "allows no eviction although the cluster is whole"
		}
		return ""
	})
}

// TestBudgetWithinWhatClusterSpares: the budget allows no more than the cluster can spare.
func TestBudgetWithinWhatClusterSpares(t *testing.T) {
	eachBudget(func(c budgetCounts) {
		b := c.budget()
		changing := c.change != budgetStill || c.unsaved || c.strays > 0
		// The strays may be ready, and stay so while members are evicted.
		spare := c.strays + c.ready - b.minAvailable
		if c.voters == 1 && c.single && !changing {
			if b.minAvailable != 0 {
				t.Errorf("%+v: the only voter cannot be evicted", c)
			}
			return
		}
		switch {
		case c.ready-spare < quorum(c.voters):
			t.Errorf("%+v: evictions leave %d, fewer than a quorum", c, c.ready-spare)
		case (changing || c.ready < c.voters) && spare > 0:
			t.Errorf("%+v: %d evictions are allowed although the cluster is not whole", c, spare)
		case !changing && c.ready == c.voters && c.voters > 0 && spare != c.voters-quorum(c.voters):
			t.Errorf("%+v: %d evictions are allowed, want all that a whole cluster can spare", c, spare)
		}
	})
}

// TestBudgetExplanationMatchesNumber: the explanation of a budget agrees with its number.
func TestBudgetExplanationMatchesNumber(t *testing.T) {
	said := map[string]bool{}
	eachBudget(func(c budgetCounts) {
		b := c.budget()
		said[b.explanation] = true
		spare := c.strays + c.ready - b.minAvailable
		// Kubernetes evicts a Pod that is not ready only while as many as minAvailable are ready.
		unready := spare == 0 && c.ready < c.voters && c.strays == 0
		want := noEviction
		switch {
		case b.minAvailable == 0:
			want = "The only voting member can be evicted, because "
		case spare > 0:
			want = fmt.Sprintf("%d of %d voting members can be evicted at a time, because ", spare, c.voters)
		case unready:
			want = "Only Pods that are not ready can be evicted, because "
		}
		if why, ok := strings.CutPrefix(b.explanation, want); !ok || len(why) < len("a.") || !strings.HasSuffix(why, ".") {
			t.Errorf("%+v: the sentence is %q, want %q and a reason", c, b.explanation, want)
		}
		if words := len(strings.Fields(b.explanation)); words > 25 {
			t.Errorf("%q has %d words", b.explanation, words)
		}
	})
	if len(said) < len(budgetRows.Names()) {
		t.Errorf("%d sentences for %d rows", len(said), len(budgetRows.Names()))
	}
}

func eachBudget(check func(budgetCounts)) {
	for voters := range 10 {
		for ready := range voters + 1 {
			for strays := range 3 {
				for change := range golden.Bits(budgetStill | budgetExternal | budgetRemoval | budgetReplaces | budgetUpdate | budgetJoin) {
					for _, unsaved := range []bool{false, true} {
						check(budgetCounts{voters: voters, ready: ready, strays: strays, change: change, unsaved: unsaved})
						check(budgetCounts{voters: voters, ready: ready, strays: strays, change: change, unsaved: unsaved, single: true})
					}
				}
			}
		}
	}
}

func TestBudgetIsExplained(t *testing.T) {
	const whole3 = "1 of 3 voting members can be evicted at a time, because the others are a quorum."
	three := Desired{Replicas: 3}
	said := func(number int, sentence string) func(*Observed) {
		return func(o *Observed) { o.BudgetMin, o.BudgetExplanation = number, sentence }
	}
	down := func(o *Observed) { o.Members[2].EtcdReady = false }
	alone := func(o *Observed) { o.Record.Members, o.Members = o.Record.Members[:1], o.Members[:1] }
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		rule    string // empty: no step
		min     int
		want    string
	}{
		"a whole cluster":                {three, []func(*Observed){said(2, whole3)}, "", 0, ""},
		"the budget of an earlier druid": {three, nil, ruleExplained, 2, whole3},
		"an edited budget":               {three, []func(*Observed){said(2, "x"), func(o *Observed) { o.Budget = ObjectOutdated }}, ruleOutdated, 2, whole3},
		"no budget":                      {three, []func(*Observed){said(0, ""), func(o *Observed) { o.Budget = ObjectAbsent }}, ruleMissing, 2, whole3},
		"a member that is not ready": {three, []func(*Observed){said(2, whole3), down}, ruleExplained, 2,
			"Only Pods that are not ready can be evicted, because a voting member is not ready: see status.members."},
		"no quorum": {three, []func(*Observed){said(2, whole3), down, func(o *Observed) { o.Members[1].EtcdReady = false }}, ruleExplained, 2,
			"No Pod can be evicted, because fewer voting members than a quorum are ready: see condition Ready."},
		"a removal": {three, []func(*Observed){said(2, whole3), func(o *Observed) { o.Record.PendingRemoval = &leases.PendingRemoval{Member: "c-c", Mark: "m"} }},
			"budget-raised", 3,
			"No Pod can be evicted, because a member is being removed: see condition Progressing."},
		"failing backups": {Desired{Replicas: 3, Backup: true}, []func(*Observed){said(2, whole3), unsaved}, "budget-raised", 3,
			"No Pod can be evicted, because backups fail and the members have the only good copy: see condition BackupReady."},
		"the end of a removal": {three, []func(*Observed){said(3, "No Pod can be evicted, because a member is being removed: see condition Progressing.")},
			ruleLowered, 2, whole3},
		"a single member": {Desired{Replicas: 1}, []func(*Observed){said(1, "x"), alone}, ruleExplained, 1,
			"No Pod can be evicted, because the cluster has only one voting member: scale it up, or delete its Pod yourself."},
		"a single member that can be evicted": {Desired{Replicas: 1, EvictsSingle: true}, []func(*Observed){said(1, "x"), alone}, ruleLowered, 0,
			"The only voting member can be evicted, because spec.disruption.singleMember is Allow."},
		"also while it is not ready": {Desired{Replicas: 1, EvictsSingle: true},
			[]func(*Observed){said(1, "x"), alone, func(o *Observed) { o.Members[0].EtcdReady = false }}, ruleLowered, 0,
			"The only voting member can be evicted, because spec.disruption.singleMember is Allow."},
		"not while its backups fail": {Desired{Replicas: 1, Backup: true, EvictsSingle: true}, []func(*Observed){said(0, "x"), alone, unsaved}, "budget-raised", 1,
			"No Pod can be evicted, because backups fail and the members have the only good copy: see condition BackupReady."},
		"one that can be evicted, among three": {Desired{Replicas: 3, EvictsSingle: true}, []func(*Observed){said(2, whole3)}, "", 0, ""},
		"not while another one joins": {Desired{Replicas: 3, EvictsSingle: true}, []func(*Observed){said(0, "x"), func(o *Observed) {
			o.Record.Members, o.Members = o.Record.Members[:2], o.Members[:2]
			o.Members[1].Reports.Role, o.Members[1].Voter = leases.RoleLearner, false
		}}, "budget-raised", 1, "No Pod can be evicted, because a member is not known to be a voter: see status.members."},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			type written struct {
				Rule string
				Min  int
				Want string
			}
			var got, want []written
			if test.rule != "" {
				want = []written{{test.rule, test.min, test.want}}
			}
			budgetStep(Evaluate(test.desired, whole(test.change...)), func(s Step) {
				got = append(got, written{s.Rule, s.MinAvailable, s.Explanation})
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}
