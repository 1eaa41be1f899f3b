package membership

import "github.com/etcd-druid/druid/internal/rules"

// UncheckedFacts is the complete input of DecideUnchecked, for a member that etcd did not compare with the others at its start.
type UncheckedFacts struct {
	// Authoritative is as in DifferingFacts.
	Authoritative rules.Answer `fact:"record authoritative"`
	Own           OwnData      `fact:"own comparison"`
	// OthersDiffer: a majority of all voters has the same data, and a voter has other data.
	OthersDiffer rules.YesNo `fact:"a voter is differing"`
}

// UncheckedVerdict is the next step of the agent of a member that etcd did not compare with the others at its start.
type UncheckedVerdict string

// The verdicts.
const (
	UncheckedWait UncheckedVerdict = "Wait"
	// UncheckedDone: the data is that of a majority, and the agent compares no more.
	UncheckedDone UncheckedVerdict = "Done"
	// UncheckedMark marks the own Lease, so that the member is replaced.
	UncheckedMark UncheckedVerdict = "Mark"
	// UncheckedLead moves leadership to the own member: an agent that begins to lead compares, and marks the differing voter.
	UncheckedLead UncheckedVerdict = "Lead"
)

// uncheckedStarts is the complete policy of the agent of a member that etcd did not compare with the others at its
// start. The first match wins.
var uncheckedStarts = rules.New(UncheckedWait, []rules.Row[UncheckedFacts, UncheckedVerdict]{
	{Name: "record-not-authoritative", When: UncheckedFacts{Authoritative: notYes}, Verdict: UncheckedWait,
		Why: "the voters might belong to another raft group than the cluster record"},
	{Name: "not-confirmed", When: UncheckedFacts{Own: OwnUndecided}, Verdict: UncheckedWait,
		Why: "the member's own comparison did not find which data a majority of all voters has"},
	{Name: "differing", When: UncheckedFacts{Own: OwnDiffering}, Verdict: UncheckedMark,
		Why: "a majority of all voters serves with other data; the member receives no clients and is replaced"},
	{Name: "another-differs", When: UncheckedFacts{Own: OwnAgrees, OthersDiffer: rules.Yes}, Verdict: UncheckedLead,
		Why: "another voter has other data than the majority; the leader's agent marks it when it begins to lead"},
	{Name: "agrees", When: UncheckedFacts{Own: OwnAgrees}, Verdict: UncheckedDone,
		Why: "all voters have the same data"},
})

// DecideUnchecked returns the next step of the agent of a member that etcd did not compare with the others at its start.
func DecideUnchecked(f UncheckedFacts) rules.Decision[UncheckedVerdict] {
	return uncheckedStarts.Decide(f)
}
