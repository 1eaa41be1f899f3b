package policy

import (
	"github.com/etcd-druid/druid/internal/rules"
)

type (
	recoveryVerdict uint8 // what druid does about a lost quorum
	returns         uint8 // whether members that hold their data are a quorum
	standing        uint8 // the recovery order in the record
	acks            uint8 // whether the order is acknowledged by enough members
)

const (
	recoverNothing recoveryVerdict = 1 << iota
	recoverWait
	recoverRefuse
	recoverPropose
	recoverPrepare
	recoverExecute
	recoverRelease
)

func (v recoveryVerdict) String() string {
	return rules.Word(v, "Nothing", "Wait", "Refuse", "Propose", "Prepare", "Execute", "Release")
}

const (
	returnsNot    returns = 1 << iota // too many members lost their data
	returnsMay                        // the members that are not known to have lost their data are a quorum
	returnsFenced                     // a quorum is intact, and waits only because it acknowledged an order
)

func (r returns) String() string { return rules.Word(r, "cannot", "may", "after a release") }

const (
	standingNone standing = 1 << iota
	standingPrepare
	standingExecute
	standingRestore  // an order to restore in place, about which restoreRows decide
	standingOutdated // the volume of a member acknowledges a later one: the record was rolled back
)

func (s standing) String() string {
	return rules.Word(s, "none", "Prepare", "Execute", "restore in place", "outdated")
}

// standingVoid are the orders that no member carries out. druid plans as if the record had no order.
const standingVoid = standingNone | standingOutdated

const (
	acksFew    acks = 1 << iota // a quorum of some list of voters could still serve
	acksEnough                  // fewer than a quorum of each list of voters are not fenced
)

func (a acks) String() string { return rules.Word(a, "too few", "enough") }

// recoveryRows decide about a lost quorum. druid orders only what no other member can contradict: a member that is merely
// away is not lost, and a raft group is formed only if fewer voters than a quorum of each known list could serve without
// it, also if each learner that can serve got a vote since.
var recoveryRows = rules.New(recoverNothing, []rules.Row[recoveryFacts, recoveryVerdict]{
	{Name: "not-applicable", When: recoveryFacts{applies: rules.No}, Verdict: recoverNothing,
		Why: "the cluster is deleted or paused, never formed, or its record cannot be used"},
	{Name: "record-behind", When: recoveryFacts{corrects: rules.Yes}, Verdict: recoverNothing,
		Why: "the members formed another raft group than the record names, and druid corrects the record"},
	{Name: "restore-ordered", When: recoveryFacts{standing: standingRestore}, Verdict: recoverNothing,
		Why: "the members stopped for a restore in place that you approved, and its own rules end it"},
	{Name: "quorum-serves", When: recoveryFacts{quorum: rules.Yes, standing: standingNone}, Verdict: recoverNothing,
		Why: "there is nothing to recover"},
	{Name: "quorum-returned", When: recoveryFacts{quorum: rules.Yes}, Verdict: recoverRelease,
		Why: "the members are a quorum again, and their raft group continues"},
	{Name: "majority-returned", When: recoveryFacts{returns: returnsFenced}, Verdict: recoverRelease,
		Why: "the members that hold their data are a quorum, and no write is lost: no etcd of a new raft group started"},
	{Name: "chosen-lost", When: recoveryFacts{standing: standingExecute, chosen: rules.No, obstacle: rules.No}, Verdict: recoverPrepare,
		Why: "no etcd of the new raft group started, so that a later order replaces it without a loss"},
	{Name: "chosen-lost-refused", When: recoveryFacts{standing: standingExecute, chosen: rules.No}, Verdict: recoverRefuse,
		Why: "the selected member lost its disk, and no other source is known"},
	{Name: "better-disk-report", When: recoveryFacts{standing: standingExecute, better: rules.Yes, worse: rules.No, obstacle: rules.No}, Verdict: recoverPrepare,
		Why: "a member came back whose disk has more than the source of the order, and no etcd of the new raft group started"},
	{Name: "cannot-execute-otherwise", When: recoveryFacts{standing: standingExecute, failed: rules.Yes, otherwise: rules.Yes, obstacle: rules.No},
		Verdict: recoverPrepare,
		Why:     "the selected member cannot carry out the order, and another source or another member can"},
	{Name: "cannot-execute", When: recoveryFacts{standing: standingExecute, failed: rules.Yes}, Verdict: recoverRefuse,
		Why: "the selected member cannot carry out the order before you act. Its agent tries again. druid replaces its Pod or its agent if that is outdated"},
	{Name: "executing", When: recoveryFacts{standing: standingExecute}, Verdict: recoverWait,
		Why: "the chosen agent forms the new raft group"},
	{Name: "await-acknowledgements", When: recoveryFacts{standing: standingPrepare, acks: acksFew, further: rules.No}, Verdict: recoverWait,
		Why: "the members that did not acknowledge could be a quorum"},
	{Name: "not-yet", When: recoveryFacts{standing: standingVoid, overdue: rules.No}, Verdict: recoverWait,
		Why: "the quorum was not lost for long enough, or its state is unknown"},
	{Name: "refused", When: recoveryFacts{obstacle: rules.Yes}, Verdict: recoverRefuse,
		Why: "a recovery is not possible before you act"},
	{Name: "give-up", When: recoveryFacts{standing: standingVoid, returns: returnsMay, approved: rules.No}, Verdict: recoverPropose,
		Why: "a member that is away is not lost: only your approval gives it up"},
	{Name: "give-up-further", When: recoveryFacts{standing: standingPrepare, acks: acksFew, approved: rules.No}, Verdict: recoverPropose,
		Why: "members went away before they acknowledged the order, and could be a quorum. They can return, or your approval gives them up"},
	{Name: "propose", When: recoveryFacts{standing: standingVoid, approved: rules.No, automatic: rules.No}, Verdict: recoverPropose,
		Why: "the plan needs your approval"},
	{Name: "prepare", When: recoveryFacts{standing: standingVoid}, Verdict: recoverPrepare,
		Why: "the members stop etcd and report what they hold before one of them is chosen"},
	{Name: "changed", When: recoveryFacts{worse: rules.Yes, approved: rules.No}, Verdict: recoverPropose,
		Why: "the acknowledged members hold less than the plan said"},
	{Name: "execute", When: recoveryFacts{standing: standingPrepare}, Verdict: recoverExecute,
		Why: "fewer voters than a quorum are not fenced or given up, and the best source is known"},
})

// recoveryFacts is the complete input of recoveryRows.
type recoveryFacts struct {
	applies  rules.YesNo  `fact:"concerns druid"`
	corrects rules.YesNo  `fact:"druid corrects the record"`
	quorum   rules.Answer `fact:"quorum serves"`
	// standing is the order in the record. acks, chosen, failed, otherwise and better are about that order.
	standing standing `fact:"order"`
	acks     acks     `fact:"acknowledged by"`
	// further: the acknowledgements are too few only because members are away, and the present plan gives those up too.
	further rules.YesNo `fact:"enough if more members are given up"`
	chosen  rules.YesNo `fact:"chosen member usable"`
	// failed: the selected member reports that another attempt would fail too. otherwise: the present plan has another source than the
	// order, or another member restores the backup or has the same data.
	failed    rules.YesNo `fact:"order cannot be carried out"`
	otherwise rules.YesNo `fact:"another source than ordered"`
	// better: a disk that acknowledges the order has more than the source from which the chosen member forms the raft group.
	better   rules.YesNo `fact:"better disk than ordered"`
	returns  returns     `fact:"old raft group returns"`
	overdue  rules.YesNo `fact:"lost for long enough"`
	obstacle rules.YesNo `fact:"recovery impossible"`
	// approved: the annotation names the hash of the present plan. automatic: the policy is Automatic, and the plan is within
	// its bounds, with nothing that needs approval.
	approved  rules.YesNo `fact:"plan approved"`
	automatic rules.YesNo `fact:"automatic within bounds"`
	// worse: the loss of the present plan exceeds that of the order, or the plan needs an approval that the order does not
	// have.
	worse rules.YesNo `fact:"worse than ordered"`
}
