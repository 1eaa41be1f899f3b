package policy

import (
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

type (
	recovering   uint8 // what the recovery of a lost quorum does
	quorumNotice uint8 // what condition Degraded says about a lost quorum for which no plan is shown
)

const (
	recoveringNot   recovering = 1 << iota // its rules do not apply
	recoveringWaits                        // it waits whether the quorum returns
	recoveringActs                         // it is under way
)

func (r recovering) String() string { return rules.Word(r, "none", "waits", "under way") }

const (
	noticeNone quorumNotice = 1 << iota
	noticeReturns
	noticeRecovers
	noticeNoPlan
)

func (n quorumNotice) String() string {
	return rules.Word(n, "Nothing", "MayReturn", "Recovers", "NoPlan")
}

// quorumRows decide what condition Degraded says about a lost quorum. A plan that needs you, and data that is lost with its Pods, are
// problems of their own, so that no row is about them.
var quorumRows = rules.New(noticeNone, []rules.Row[quorumFacts, quorumNotice]{
	{Name: "quorum-not-lost", When: quorumFacts{missed: rules.No}, Verdict: noticeNone,
		Why: "a quorum serves, its loss is not certain, or it was lost for no longer than a restart takes"},
	{Name: "quorum-resumes", When: quorumFacts{missed: rules.Yes, resumes: rules.Yes}, Verdict: noticeNone,
		Why: "the members of a paused cluster start"},
	{Name: "quorum-recovers", When: quorumFacts{missed: rules.Yes, resumes: rules.No, recovering: recoveringActs}, Verdict: noticeRecovers,
		Why: "druid and the agents carry out a plan"},
	{Name: "quorum-may-return", When: quorumFacts{missed: rules.Yes, resumes: rules.No, recovering: recoveringWaits}, Verdict: noticeReturns,
		Why: "members that are only away return with their data"},
	{Name: "quorum-without-plan", When: quorumFacts{missed: rules.Yes, resumes: rules.No, recovering: recoveringNot}, Verdict: noticeNoPlan,
		Why: "the rules of a recovery do not apply, for example because a Lease says something else than the Pods"},
})

// quorumFacts is the complete input of quorumRows.
type quorumFacts struct {
	missed     rules.YesNo `fact:"quorum lost for long enough"`
	resumes    rules.YesNo `fact:"ends a pause"`
	recovering recovering  `fact:"recovery"`
}

func quorumFactsOf(e Evaluation) quorumFacts {
	f := quorumFacts{missed: rules.YesNoOf(e.QuorumMissed), resumes: rules.YesNoOf(e.resting() == restingResumes), recovering: recoveringNot}
	switch {
	case e.recovery.is(recoverPrepare | recoverExecute | recoverRelease), e.recovery.is(recoverWait) && e.Record.Order() != nil:
		f.recovering = recoveringActs
	case e.recovery.is(recoverWait):
		f.recovering = recoveringWaits
	}
	return f
}

// quorumProblem is a lost quorum for which no plan is shown.
func quorumProblem(e Evaluation) (Problem, bool) {
	p := Problem{Reason: v1alpha1.ReasonQuorumLost}
	switch quorumRows.Decide(quorumFactsOf(e)).Verdict {
	case noticeReturns:
		p.Message = "the quorum is lost. It returns when enough members are ready again. If it stays lost, druid shows a plan in status.recovery"
	case noticeRecovers:
		p.Message = "the quorum is lost, and a recovery is under way: see status.recovery"
	case noticeNoPlan:
		p.Message = "the quorum is lost, and druid has no plan for a recovery. Repair the members that status.members shows, as in docs/how-to/rescue/quorum-lost.md"
	default:
		return Problem{}, false
	}
	return p, true
}

// noQuorumProblem is the one problem of a lost quorum.
func noQuorumProblem(e Evaluation) (Problem, bool) {
	if p, found := recoveryProblem(e.recovery); found {
		return p, true
	}
	if p, found := lossProblem(e.Observed, e.listed); found {
		return p, true
	}
	return quorumProblem(e)
}

// ruleAwaitQuorum is the rule of an agent that waits until a quorum responds (agent/start).
const ruleAwaitQuorum = "await-quorum"

// followsFromNoQuorum reports whether a member does not start because no quorum responds. The lost quorum is the problem, and not what
// each member reports about its attempts to reach the others.
func followsFromNoQuorum(p Problem, e Evaluation) bool {
	m, known := e.member(p.Member)
	return known && p.Reason == v1alpha1.ReasonMemberCannotStart && m.Reports.Rule == ruleAwaitQuorum
}

// QuorumMissing reports whether too few voters serve, although no user stopped them. Condition Ready says so at once; as a problem it
// counts only if it lasts.
func QuorumMissing(d Desired, o Observed) bool {
	if d.Deleted || d.Replicas == 0 || o.formed() == rules.No || o.Record.Order().Restores() {
		return false
	}
	return quorumStateOf(o, o.listed()) == quorumStateLost
}
