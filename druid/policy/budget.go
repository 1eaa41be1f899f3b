package policy

import (
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
)

// budgetVerdict is the decision about the number of Pods with the voter label that must stay.
type budgetVerdict uint8

const (
	budgetAll   budgetVerdict = 1 << iota // all voters
	budgetReady                           // the ready voters, and at least a quorum
	budgetSpare                           // a quorum
	budgetNone                            // none
)

func (v budgetVerdict) String() string {
	return rules.Word(v, "AllStay", "ReadyStay", "QuorumStays", "NoneStays")
}

// budgetChange is the change of the members or of their Pods that must end before an eviction. The first one counts.
type budgetChange uint8

const (
	budgetStill    budgetChange = 1 << iota // none
	budgetExternal                          // the joined raft group has external members
	budgetRemoval                           // a member is being removed
	budgetReplaces                          // a member replaces itself
	budgetUpdate                            // druid replaces Pods
	budgetJoin                              // a member is not known to vote
)

func (c budgetChange) String() string {
	return rules.Word(c, "none", "external members", "removal", "replacement", "update", "join")
}

// budgetVoters is the number of voters, as far as it matters.
type budgetVoters uint8

const (
	budgetNoVoter budgetVoters = 1 << iota
	budgetOneVoter
	budgetTwoVoters
	budgetMoreVoters
)

func (v budgetVoters) String() string {
	return rules.Word(v, "none", "one", "two", "more")
}

// budgetUp is the number of voters that are ready.
type budgetUp uint8

const (
	budgetAllUp    budgetUp = 1 << iota // all
	budgetQuorumUp                      // not all, but a quorum
	budgetFewUp                         // fewer than a quorum
)

func (u budgetUp) String() string {
	return rules.Word(u, "all", "quorum", "fewer")
}

// budgetFacts is the complete input of budgetRows.
type budgetFacts struct {
	unsaved rules.YesNo  `fact:"failing backups allow none"`
	change  budgetChange // of the members or of their Pods
	strays  rules.YesNo  `fact:"removed Pod counted"` // a Pod with the voter label whose name the record no longer lists
	voters  budgetVoters
	single  rules.YesNo `fact:"the only voter can be evicted"` // spec.disruption.singleMember is Allow
	up      budgetUp    `fact:"ready"`
}

// budgetRows decide the PodDisruptionBudget, which counts Pods with the voter label. The reason of the row that wins is
// part of the sentence in the annotation of the budget.
var budgetRows = rules.New(budgetAll, []rules.Row[budgetFacts, budgetVerdict]{
	{Name: "budget-unsaved", When: budgetFacts{unsaved: rules.Yes}, Verdict: budgetAll,
		Why: "backups fail and the members have the only good copy: see condition BackupReady"},
	{Name: "budget-externals", When: budgetFacts{unsaved: rules.No, change: budgetExternal}, Verdict: budgetAll,
		Why: "external members are in the raft group: see condition Progressing"},
	{Name: "budget-removal", When: budgetFacts{unsaved: rules.No, change: budgetRemoval}, Verdict: budgetAll,
		Why: "a member is being removed: see condition Progressing"},
	{Name: "budget-replacement", When: budgetFacts{unsaved: rules.No, change: budgetReplaces}, Verdict: budgetAll,
		Why: "a member that lost its data joins again: see status.members"},
	{Name: "budget-update", When: budgetFacts{unsaved: rules.No, change: budgetUpdate}, Verdict: budgetAll,
		Why: "druid replaces outdated Pods one at a time: see condition Progressing"},
	{Name: "budget-join", When: budgetFacts{unsaved: rules.No, change: budgetJoin}, Verdict: budgetAll,
		Why: "a member is not known to be a voter: see status.members"},
	{Name: "budget-removed-pod", When: budgetFacts{unsaved: rules.No, change: budgetStill, strays: rules.Yes}, Verdict: budgetAll,
		Why: "the Pod of a removed member still has the voter label"},
	{Name: "budget-one-voter-allowed", When: budgetFacts{unsaved: rules.No, change: budgetStill, strays: rules.No, voters: budgetOneVoter, single: rules.Yes},
		Verdict: budgetNone, Why: "spec.disruption.singleMember is Allow"},
	{Name: "budget-quorum-ready", When: budgetFacts{unsaved: rules.No, change: budgetStill, strays: rules.No, up: budgetQuorumUp},
		Verdict: budgetReady, Why: "a voting member is not ready: see status.members"},
	{Name: "budget-few-ready", When: budgetFacts{unsaved: rules.No, change: budgetStill, strays: rules.No, up: budgetFewUp}, Verdict: budgetReady,
		Why: "fewer voting members than a quorum are ready: see condition Ready"},
	{Name: "budget-no-voter", When: budgetFacts{unsaved: rules.No, change: budgetStill, strays: rules.No, up: budgetAllUp, voters: budgetNoVoter},
		Verdict: budgetAll, Why: "no voting member is known"},
	{Name: "budget-one-voter", When: budgetFacts{unsaved: rules.No, change: budgetStill, strays: rules.No, up: budgetAllUp, voters: budgetOneVoter,
		single: rules.No},
		Verdict: budgetAll, Why: "the cluster has only one voting member: scale it up, or delete its Pod yourself"},
	{Name: "budget-two-voters", When: budgetFacts{unsaved: rules.No, change: budgetStill, strays: rules.No, up: budgetAllUp, voters: budgetTwoVoters},
		Verdict: budgetAll, Why: "both voting members are needed for the quorum"},
	{Name: "budget-complete", When: budgetFacts{unsaved: rules.No, change: budgetStill, strays: rules.No, up: budgetAllUp, voters: budgetMoreVoters},
		Verdict: budgetSpare, Why: "the others are a quorum"},
})

// budgetCounts is the input of a budget. The counts complete its facts.
type budgetCounts struct {
	voters, ready int
	// strays are Pods with the voter label whose names the record no longer lists.
	strays  int
	change  budgetChange
	unsaved bool
	// single says that the only voter can be evicted.
	single bool
}

func budgetCountsOf(e Evaluation) budgetCounts {
	c := budgetCounts{change: budgetChangeOf(e), unsaved: e.backups.block(actionEvict), single: e.EvictsSingle}
	for _, m := range e.listed {
		if !m.votes() {
			continue
		}
		c.voters++
		if m.up() {
			c.ready++
		}
	}
	for _, m := range e.Members {
		if !m.Listed && m.Voter && m.Pod&(PodAbsent|PodForeign) == 0 {
			c.strays++
		}
	}
	return c
}

func budgetChangeOf(e Evaluation) budgetChange {
	// The budget is raised before a Pod is replaced, so that no other Pod can be evicted at the same time.
	outdated := slices.ContainsFunc(e.listed, func(m Member) bool { return m.Make == MakeOutdated })
	switch {
	case e.externals != externalsNone:
		return budgetExternal
	case e.Record.PendingRemoval != nil:
		return budgetRemoval
	case e.Record.Replacing != nil:
		return budgetReplaces
	case outdated && e.rollout.sum&(rollingGoes|rollingUpgrades) != 0:
		return budgetUpdate
	case slices.ContainsFunc(e.listed, func(m Member) bool { return !m.votes() }):
		return budgetJoin
	default:
		return budgetStill
	}
}

func (c budgetCounts) facts() budgetFacts {
	f := budgetFacts{
		unsaved: rules.YesNoOf(c.unsaved), change: c.change, strays: rules.YesNoOf(c.strays > 0), single: rules.YesNoOf(c.single),
		voters: budgetMoreVoters, up: budgetAllUp,
	}
	if c.voters <= 2 {
		f.voters = budgetNoVoter << c.voters
	}
	switch {
	case c.ready == c.voters:
	case c.ready < quorum(c.voters):
		f.up = budgetFewUp
	default:
		f.up = budgetQuorumUp
	}
	return f
}

// budget is what a PodDisruptionBudget requests, and the sentence that says why.
type budget struct {
	minAvailable int
	explanation  string
}

// budget decides the PodDisruptionBudget. While all voters are ready, a quorum must stay. While one is not, the ready
// ones must stay, and at least a quorum, so that no ready Pod can be evicted. While the membership changes, or backups
// fail and the members have the only good copy, all voters must stay. The only voter must not stay if the user allows
// that. A counted Pod that is no longer a member can be ready too, so it adds to all of them. The value is an integer:
// Kubernetes would compute a percentage or maxUnavailable from the replicas that the user wrote a moment ago.
//
// The sentence changes only with the decision. It has no time and no name of a member.
func (c budgetCounts) budget() budget {
	f := c.facts()
	d := budgetRows.Decide(f)
	stay := quorum(c.voters)
	switch {
	case d.Verdict == budgetNone:
		return budget{0, "The only voting member can be evicted, because " + d.Why + "."}
	case d.Verdict == budgetSpare:
		return budget{stay, fmt.Sprintf("%d of %d voting members can be evicted at a time, because %s.", c.voters-stay, c.voters, d.Why)}
	case d.Verdict == budgetReady && f.up == budgetQuorumUp:
		return budget{max(c.ready, stay), "Only Pods that are not ready can be evicted, because " + d.Why + "."}
	case d.Verdict == budgetReady:
		return budget{max(c.ready, stay), noEviction + d.Why + "."}
	default:
		return budget{c.strays + max(c.voters, stay), noEviction + d.Why + "."}
	}
}

const noEviction = "No Pod can be evicted, because "

// budgetStep writes the budget. One that changes only its sentence waits for all other steps, as one that allows more
// evictions does.
func budgetStep(e Evaluation, add func(Step)) {
	want := budgetCountsOf(e).budget()
	step := Step{Kind: ApplyBudget, Rule: "budget-raised", Stage: StageRaise, MinAvailable: want.minAvailable, Explanation: want.explanation}
	noOne := e.noOne()
	switch {
	case e.Budget == ObjectForeign, e.Budget == ObjectAbsent && noOne:
		return
	case noOne:
		step = Step{Kind: DeleteBudget, Rule: "budget-without-members", Stage: StageLate}
	case e.Budget == ObjectAbsent, e.Budget == ObjectOutdated && e.BudgetMin == step.MinAvailable:
		step.Rule = objectRule(e.Budget)
	case e.BudgetMin > step.MinAvailable:
		step.Rule, step.Stage = ruleLowered, StageLate
	case e.BudgetMin == step.MinAvailable && e.BudgetExplanation == step.Explanation:
		return
	case e.BudgetMin == step.MinAvailable:
		step.Rule, step.Stage = ruleExplained, StageLate
	}
	add(step)
}
