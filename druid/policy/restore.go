package policy

import (
	"github.com/etcd-druid/druid/internal/rules"
)

type (
	restoreVerdict uint16 // what druid does about a restore in place
	restoreOrder   uint8  // the recovery order in the record
	restorePlanned uint8  // what is known of the plan for the present request
	clientsCut     uint8  // whether clients are cut off for the present request
)

const (
	restoreNothing restoreVerdict = 1 << iota
	restoreAsk
	restoreForget
	restoreWait
	restoreRefuse
	restorePropose
	restoreCutOff
	restoreSave
	restorePrepare
	restoreExecute
	restoreRelease
)

func (v restoreVerdict) String() string {
	return rules.Word(v, "Nothing", "Ask", "Forget", "Wait", "Refuse", "Propose", "CutOff", "Save", "Prepare", "Execute", "Release")
}

const (
	restoreOrderNone    restoreOrder = 1 << iota
	restoreOrderOther                // one to recover from a lost quorum, or one that no member carries out
	restoreOrderPrepare              // one to restore in place, in the stage Prepare
	restoreOrderExecute
	restoreOrdered = restoreOrderPrepare | restoreOrderExecute
)

func (o restoreOrder) String() string {
	return rules.Word(o, "none", "another", "restore: Prepare", "restore: Execute")
}

const (
	planUnasked restorePlanned = 1 << iota // the record has no request, or another one
	planAwaited                            // the leader's agent did not answer yet
	planFailed                             // it reports that there is no such plan, and tries again
	planMade
)

func (p restorePlanned) String() string {
	return rules.Word(p, "not requested", "awaited", "failed", "made")
}

const (
	clientsServed clientsCut = 1 << iota // no Pod has the mark of the request
	clientsPartly                        // a Pod serves clients or has no mark, and another one has the mark
	clientsNone                          // each Pod has the mark, and none serves clients
)

func (c clientsCut) String() string { return rules.Word(c, "not cut off", "partly cut off", "cut off") }

// ruleInterrupted is the rule by which an approved restore begins again because clients were not cut off for certain.
const ruleInterrupted = "interrupted"

// clientsMarked are the states in which a Pod has the mark of the request: druid does not serve it before the record ends that request.
const clientsMarked = clientsPartly | clientsNone

// restoreRows decide about spec.recovery.restore. Nothing is changed before the user approved the plan that the leader's agent made.
// Until the new raft group is formed, a release brings the cluster back as it was.
var restoreRows = rules.New(restoreNothing, []rules.Row[restoreFacts, restoreVerdict]{
	{Name: "not-applicable", When: restoreFacts{applies: rules.No}, Verdict: restoreNothing,
		Why: "the cluster is deleted or paused, never formed, or its record cannot be used"},
	{Name: "record-behind", When: restoreFacts{corrects: rules.Yes}, Verdict: restoreNothing,
		Why: "the members formed another raft group than the record names, and druid corrects the record"},
	{Name: "recovery-first", When: restoreFacts{order: restoreOrderOther}, Verdict: restoreNothing,
		Why: "the cluster recovers from a lost quorum"},

	{Name: "withdrawn", When: restoreFacts{order: restoreOrdered, wanted: rules.No}, Verdict: restoreRelease,
		Why: "you removed or changed spec.recovery.restore, and the cluster continues with its present data"},
	{Name: "too-late", When: restoreFacts{order: restoreOrdered, overdue: rules.Yes}, Verdict: restoreRelease,
		Why: "the restore took longer than 30 minutes, and the cluster continues with its present data"},
	{Name: "no-restorer", When: restoreFacts{order: restoreOrdered, chosen: rules.No}, Verdict: restoreRelease,
		Why: "no member that acknowledged the order can restore the backup, or the disk of the selected one changed"},
	{Name: "cannot-restore", When: restoreFacts{order: restoreOrderExecute, failed: rules.Yes}, Verdict: restoreRelease,
		Why: "the selected member cannot restore the backup, and another attempt would fail too. The cluster continues with its present data"},
	{Name: "executing", When: restoreFacts{order: restoreOrderExecute}, Verdict: restoreWait,
		Why: "the chosen agent restores the backup"},
	{Name: "await-acknowledgements", When: restoreFacts{order: restoreOrderPrepare, acks: acksFew}, Verdict: restoreWait,
		Why: "the members that did not acknowledge could be a quorum, or hold data that is still served"},
	{Name: "execute", When: restoreFacts{order: restoreOrderPrepare}, Verdict: restoreExecute,
		Why: "all members stopped etcd"},

	{Name: "request-ends", When: restoreFacts{wanted: rules.No, plan: planAwaited | planFailed | planMade}, Verdict: restoreForget,
		Why: "the spec requests no restore any more"},
	{Name: "not-requested", When: restoreFacts{wanted: rules.No}, Verdict: restoreNothing},
	{Name: "cut-off-ended", When: restoreFacts{clients: clientsMarked, approved: rules.No}, Verdict: restoreForget,
		Why: "clients were cut off for a plan that is not approved any more. The restore is planned again, and clients are served"},
	{Name: "restored", When: restoreFacts{done: rules.Yes}, Verdict: restoreNothing,
		Why: "the last recovery was this restore, and a request is carried out once"},
	{Name: ruleInterrupted, When: restoreFacts{clients: clientsServed | clientsPartly, saved: SaveComing | SaveDone}, Verdict: restoreAsk,
		Why: "a client can have been served after the final backup began, so that it is not the last state. The restore is planned again, and says why"},
	{Name: "save-failed", When: restoreFacts{saved: SaveFailed}, Verdict: restoreAsk,
		Why: "without a backup of the present data, the restore could not be undone. It is planned again, and clients are served"},
	{Name: "cut-off-too-long", When: restoreFacts{overdue: rules.Yes}, Verdict: restoreForget,
		Why: "clients were cut off for longer than 30 minutes before etcd was stopped. The restore is planned again"},
	{Name: "no-quorum", When: restoreFacts{quorum: rules.No | rules.Unknown}, Verdict: restoreNothing,
		Why: "the quorum must be recovered first"},
	{Name: "refused-cut-off", When: restoreFacts{obstacle: rules.Yes, clients: clientsMarked}, Verdict: restoreForget,
		Why: "clients were cut off for a restore that is not possible any more. They are served again"},
	{Name: "refused", When: restoreFacts{obstacle: rules.Yes}, Verdict: restoreRefuse,
		Why: "a restore is not possible before you act"},
	{Name: "ask", When: restoreFacts{plan: planUnasked}, Verdict: restoreAsk,
		Why: "only the agents read the backup store"},
	{Name: "await-plan", When: restoreFacts{plan: planAwaited}, Verdict: restoreWait,
		Why: "the leader's agent plans the restore"},
	{Name: "plan-failed", When: restoreFacts{plan: planFailed}, Verdict: restoreRefuse,
		Why: "the backup store does not have what is requested"},
	{Name: "propose", When: restoreFacts{approved: rules.No}, Verdict: restorePropose,
		Why: "the plan needs your approval"},
	{Name: "busy-cut-off", When: restoreFacts{busy: rules.Yes, clients: clientsMarked}, Verdict: restoreForget,
		Why: "clients were cut off, and the members change now. The restore is planned again, and clients are served"},
	{Name: "busy", When: restoreFacts{busy: rules.Yes}, Verdict: restoreWait,
		Why: "a member is being removed or replaced, or runs another version of etcd or of the agent"},
	{Name: "cut-off", When: restoreFacts{clients: clientsServed | clientsPartly}, Verdict: restoreCutOff,
		Why: "clients are cut off before the final backup, so that it holds all that they wrote"},
	{Name: "save", When: restoreFacts{saved: SaveUnasked | SaveAbsent}, Verdict: restoreSave,
		Why: "the final backup of the present data undoes the restore"},
	{Name: "await-save", When: restoreFacts{saved: SaveComing}, Verdict: restoreCutOff,
		Why: "the final backup is made and verified"},
	{Name: "prepare", When: restoreFacts{saved: SaveDone}, Verdict: restorePrepare,
		Why: "the members stop etcd before one of them restores the backup"},
})

// restoreFacts is the complete input of restoreRows.
type restoreFacts struct {
	applies  rules.YesNo  `fact:"concerns druid"`
	corrects rules.YesNo  `fact:"druid corrects the record"`
	order    restoreOrder `fact:"order"`
	// wanted: spec.recovery.restore requests a restore, and it is that of the order, if one stands.
	wanted rules.YesNo `fact:"requested"`
	// overdue is about the order, and before it about the time for which clients are cut off. chosen, failed and acks are about the
	// order.
	overdue rules.YesNo `fact:"longer than 30 minutes"`
	chosen  rules.YesNo `fact:"a member can restore"`
	// failed: the selected member reports that no attempt can succeed.
	failed rules.YesNo `fact:"restore failed"`
	acks   acks        `fact:"acknowledged by"`
	// done: the last recovery carried out this request.
	done     rules.YesNo    `fact:"carried out"`
	quorum   rules.Answer   `fact:"quorum serves"`
	obstacle rules.YesNo    `fact:"restore impossible"`
	plan     restorePlanned `fact:"plan"`
	// approved: the annotation names the hash of the present plan.
	approved rules.YesNo `fact:"plan approved"`
	busy     rules.YesNo `fact:"members change"`
	clients  clientsCut  `fact:"clients"`
	saved    SaveState   `fact:"final backup"`
}
