package start

import (
	"slices"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/rules"
)

// Mode is what follows from a decision.
type Mode string

// The modes.
const (
	ModeResume      Mode = "Resume"      // start etcd on the data that is there
	ModeNew         Mode = "New"         // form the raft group
	ModeRestore     Mode = "Restore"     // form the raft group from a backup
	ModeAdopt       Mode = "Adopt"       // join a raft group that was there before the cluster, as a learner
	ModeJoin        Mode = "Join"        // become a learner of the raft group
	ModeReplaceSelf Mode = "ReplaceSelf" // remove our old ID; Join follows
	ModeRejoin      Mode = "Rejoin"      // quarantine data that no quorum lists; Join follows
	ModePrepare     Mode = "Prepare"     // acknowledge a recovery order
	ModeRecover     Mode = "Recover"     // form the raft group again by a recovery order
	ModePlace       Mode = "Place"       // put the data of the raft group that we formed again in place
	ModeWait        Mode = "Wait"        // look again; a fact will change by itself
	ModeRefuse      Mode = "Refuse"      // check again; the user must change a fact
)

// Decision is the result of a table. It names the rule, so that the log, the metric, the Lease and
// docs/reference/decisions.md agree.
type Decision struct {
	Mode Mode
	Rule string
	// Reason is the explanation of a Wait or a Refuse for the user.
	Reason string
	// Detail names what was observed that completes the reason, if anything does.
	Detail string
}

// unusable data is quarantined before the agent writes anything else.
const unusable = Empty | Stale | Corrupt | Differing

// startRules is the complete policy. The first match wins. The default is Refuse.
var startRules = rules.New(ModeRefuse, []rules.Row[Facts, Mode]{
	{Name: "superseded", When: Facts{Lease: Superseded}, Verdict: ModeRefuse,
		Why: "another Pod has replaced this one as the member; this Pod does not start etcd", Detail: "lease"},
	{Name: "volume-unread", When: Facts{Data: DataUnread}, Verdict: ModeRefuse,
		Why: "the volume cannot be inspected (see the log of the agent)", Detail: "data"},
	{Name: "mismatched-data", When: Facts{Data: Foreign}, Verdict: ModeRefuse,
		Why: "the data on the volume does not belong to this member; mount the correct volume, or move the data directory away manually", Detail: "data"},
	{Name: "newer-schema", When: Facts{Data: Newer}, Verdict: ModeRefuse,
		Why: "the data was written by a newer minor version of etcd; set spec.version back to that version", Detail: "data"},

	{Name: "prepare-restore", When: Facts{Record: Recovering, Lease: isOurs, Order: OrderPrepare, Restores: rules.Yes}, Verdict: ModePrepare,
		Why: "the order restores the cluster also while a quorum lists this member, and the volume acknowledges that before etcd can start on it again"},
	{Name: "restore-acknowledged", When: Facts{Listed: anyListed &^ NoQuorum, Record: Recovering, Order: OrderWait | OrderForm, Restores: rules.Yes},
		Verdict: ModeWait,
		Why:     "this member acknowledged the order to restore the cluster, and waits until the other members have stopped"},
	{Name: "resume", When: Facts{Data: Intact, Listed: isListed, Own: OwnID, Epoch: EpochUnknown | Current | Prepared}, Verdict: ModeResume,
		Why: "a quorum lists this member with the ID of its data"},
	{Name: "place-recovered", When: Facts{Listed: NoQuorum, Record: Formed | FormedIncomplete, Lease: isOurs, Order: OrderPlace}, Verdict: ModePlace,
		Why: "the cluster record names the raft group that this member formed, and its old data is kept"},
	{Name: "prepare-ordered", When: Facts{Listed: NoQuorum, Record: Recovering, Lease: isOurs, Order: OrderPrepare}, Verdict: ModePrepare,
		Why: "the volume acknowledges the recovery order before etcd can start on it again"},
	{Name: "form-ordered", When: Facts{Listed: NoQuorum, Record: Recovering, Lease: isOurs, Order: OrderForm}, Verdict: ModeRecover,
		Why: "the recovery order selects this member and what its volume acknowledged"},
	{Name: "order-acknowledged", When: Facts{Record: Recovering, Order: OrderWait | OrderForm}, Verdict: ModeWait,
		Why: "this member acknowledged the recovery order; druid selects the member that forms the cluster again, and that member forms it"},
	{Name: "recovering", When: Facts{Record: Recovering}, Verdict: ModeWait,
		Why: "the cluster is being formed again, after the loss of its quorum or for a restore"},
	{Name: "prepared", When: Facts{Listed: NoQuorum, Epoch: Prepared}, Verdict: ModeWait,
		Why: "the volume acknowledges a recovery order, and no release of it is known", Detail: "record"},

	{Name: "resume-majority", When: Facts{Data: Intact | Differing, Listed: NoQuorum, Epoch: EpochUnknown | Current}, Verdict: ModeResume,
		Why: "no quorum responds; the member starts with its existing data so that a majority can form a quorum again"},

	{Name: "lease-unread", When: Facts{Lease: LeaseUnread}, Verdict: ModeWait,
		Why: "the member Lease cannot be read, and without it the member can only resume intact data", Detail: "lease"},
	{Name: "removal-acknowledged", When: Facts{Lease: RemovalAcknowledged}, Verdict: ModeRefuse,
		Why: "this member is being removed or was removed, so it can only resume intact data", Detail: "lease"},
	{Name: "removal-requested", When: Facts{Lease: Leaving}, Verdict: ModeWait,
		Why: "removal of this member is requested; it joins again only if the request is canceled"},
	{Name: "record-unread", When: Facts{Record: RecordUnread}, Verdict: ModeWait,
		Why: "the cluster record cannot be read", Detail: "record"},
	{Name: "record-absent", When: Facts{Record: RecordAbsent}, Verdict: ModeWait,
		Why: "the cluster record does not exist; druid creates it", Detail: "record"},
	{Name: "undesired", When: Facts{Place: Undesired}, Verdict: ModeRefuse,
		Why: "the cluster record does not list this member"},

	{Name: "await-seed", When: Facts{Record: isForming, Place: Desired}, Verdict: ModeWait,
		Why: "the seed has not formed the cluster yet"},
	{Name: "peer-answers", When: Facts{Record: isForming, Peers: Answering}, Verdict: ModeWait,
		Why: "the cluster record says that no cluster was formed, but a peer responds", Detail: "peers"},
	{Name: "quorum-answers", When: Facts{Record: isForming, Listed: anyListed &^ NoQuorum}, Verdict: ModeWait,
		Why: "the cluster record says that no cluster was formed, but a quorum responds"},
	{Name: "formed-before", When: Facts{Record: isForming, Evidence: FormedBefore}, Verdict: ModeRefuse,
		Why: "a cluster was formed before, and a second one is never formed; druid repairs the cluster record from the member Leases", Detail: "evidence"},
	{Name: "evidence-unknown", When: Facts{Record: isForming, Evidence: EvidenceUnknown}, Verdict: ModeWait,
		Why: "an earlier cluster cannot be ruled out because not all evidence can be read", Detail: "evidence"},
	{Name: "store-unreachable", When: Facts{Record: isForming, Backup: StoreUnreachable}, Verdict: ModeWait,
		Why: "the backup store cannot be searched for backups", Detail: "backup"},
	{Name: "backup-unusable", When: Facts{Record: isForming, Backup: BackupUnusable}, Verdict: ModeRefuse,
		Why: "the content of the backup store cannot be used", Detail: "backup"},
	{Name: "restore-at-first-boot", When: Facts{Record: isForming, Backup: BackupPresent, Order: OrderRestore}, Verdict: ModeRestore,
		Why: "the first start of the seed requests a restore"},
	{Name: "backup-present", When: Facts{Record: isForming, Backup: BackupPresent}, Verdict: ModeRefuse,
		Why: "the backup store has a lineage of this cluster, so the cluster was formed before", Detail: "backup"},
	{Name: "nothing-to-restore", When: Facts{Record: isForming, Order: OrderRestore}, Verdict: ModeWait,
		Why: "a restore is requested, but the backup store has nothing to restore", Detail: "backup"},
	{Name: "first-boot", When: Facts{Record: isForming, Order: NoOrder}, Verdict: ModeNew,
		Why: "no cluster was ever formed, and the cluster record names this member as the seed; the compare-and-set of an earlier Pod's claim fails"},
	{Name: "order-before-formation", When: Facts{Record: isForming}, Verdict: ModeRefuse,
		Why: "the cluster record requests a recovery of a cluster that was never formed"},

	{Name: "record-incomplete", When: Facts{Record: FormedIncomplete}, Verdict: ModeWait,
		Why: "the cluster record lacks fields of the formed cluster; a running member adds them"},
	{Name: "await-quorum", When: Facts{Listed: NoQuorum}, Verdict: ModeWait,
		Why: "no quorum responds, and this member has no data that it can resume", Detail: "listed"},
	{Name: "confirming", When: Facts{Data: Intact, Listed: Unconfirmed}, Verdict: ModeWait,
		Why: "one member list does not contain this member; waiting for a second list", Detail: "listed"},
	{Name: "finish-join", When: Facts{Data: Empty, Listed: Unstarted, Joining: JoiningNow}, Verdict: ModeJoin,
		Why: "this start added the learner, and its etcd has never written a log"},
	{Name: "await-removal", When: Facts{Slot: SlotLeaving}, Verdict: ModeWait,
		Why: "a member is being removed, and no member joins until the removal is complete", Detail: "slot"},
	{Name: "removed-while-down", When: Facts{Data: Intact, Listed: Unlisted}, Verdict: ModeRejoin,
		Why: "a quorum no longer lists this member"},
	{Name: "needs-unmet", When: Facts{Needs: Unmet}, Verdict: ModeWait,
		Why: "a requirement for adding this member is not met", Detail: "needs"},
	{Name: "join", When: Facts{Data: unusable, Listed: anyUnlisted}, Verdict: ModeJoin,
		Why: "etcd rejects a second member with the same peer URL"},
	{Name: "slot-taken", When: Facts{Slot: SlotTaken}, Verdict: ModeWait,
		Why: "another member is replacing itself", Detail: "slot"},
	{Name: "data-differs", When: Facts{Data: Differing, Listed: isListed}, Verdict: ModeReplaceSelf,
		Why: "a majority of all voters has other data, and the member found that itself; the agent moves its data to quarantine", Detail: "data"},
	{Name: "data-lost", When: Facts{Data: unusable, Listed: isListed}, Verdict: ModeReplaceSelf,
		Why: "the agent never starts a raft ID without its data"},
	{Name: "other-member-id", When: Facts{Data: Intact, Listed: isListed, Own: OtherID}, Verdict: ModeReplaceSelf,
		Why: "the data belongs to an ID that this member no longer has"},
	{Name: "superseded-data", When: Facts{Data: Intact, Listed: isListed, Epoch: Fenced}, Verdict: ModeReplaceSelf,
		Why: "the data belongs to a superseded bootstrap attempt or to an earlier bootstrap"},
})

// Decide returns a decision for every combination of facts. It uses no clock, no network and no random numbers.
func Decide(f Facts) Decision { return decisionOf(startRules.Decide(f)) }

// DecideWithout decides as if the table did not have the row called rule. The model test uses it to show which harm
// each row prevents.
func DecideWithout(f Facts, rule string) Decision {
	return decisionOf(startRules.Without(rule).Decide(f))
}

// Rules returns the names of the rows, in their order.
func Rules() []string { return startRules.Names() }

// decisionOf converts the result of a table. Only Wait and Refuse have a reason, because they can need user action.
func decisionOf(d rules.Decision[Mode]) Decision {
	decision := Decision{Mode: d.Verdict, Rule: d.Rule, Detail: d.Detail}
	if d.Verdict == ModeWait || d.Verdict == ModeRefuse {
		decision.Reason = d.Why
	}
	return decision
}

// One-bit enums of a restore whose plan may hold what is damaged.
type (
	// Damage is what is known about damage to the objects of the plan that leads to the target.
	Damage uint8
	// Rest is where a plan without the damaged objects leads.
	Rest uint8
)

// Harm.
const (
	Unharmed  Damage = 1 << iota // none of them was found damaged
	DamageNew                    // one was, a moment ago
	DamageOld                    // one was, so long ago that a good copy may stand in its place by now
)

// Rest.
const (
	RestEqual Rest = 1 << iota // to the same state
	RestVain                   // to the same state, by a plan that was tried and cannot be carried out
	RestLess                   // to less of it, or to another one
	RestNone                   // there is no plan
)

// FallbackFacts is the complete input of decideFallback.
type FallbackFacts struct {
	Damage Damage `fact:"an object of the plan is damaged"`
	Rest   Rest   `fact:"the others lead"`
}

func (h Damage) String() string { return rules.Word(h, "no", "found just now", "found minutes ago") }
func (r Rest) String() string {
	return rules.Word(r, "to the same state", "to the same state, but that plan failed", "to less, or another state", "to no state")
}

// Course is the plan that the agent carries out.
type Course string

// The courses.
const (
	CourseDirect   Course = "Direct"   // the one with all objects, whatever was found damaged before
	CourseFallback Course = "Fallback" // the one without those that are damaged
	CourseNone     Course = "None"     // neither: the user must choose
)

// fallbacks is the complete policy for damaged objects in the plan of a restore. The first match wins. What no rule
// covers is not restored.
var fallbacks = rules.New(CourseNone, []rules.Row[FallbackFacts, Course]{
	{Name: "undamaged", When: FallbackFacts{Damage: Unharmed}, Verdict: CourseDirect,
		Why: "no object of the plan is known to be damaged"},
	{Name: "without-damaged-objects", When: FallbackFacts{Rest: RestEqual}, Verdict: CourseFallback,
		Why: "other objects contain everything that is requested"},
	{Name: "recheck-damaged", When: FallbackFacts{Damage: DamageOld}, Verdict: CourseDirect,
		Why: "the damaged objects might have been replaced with valid copies; each object is read and compared before it is used"},
	{Name: "fallback-failed", When: FallbackFacts{Rest: RestVain}, Verdict: CourseFallback,
		Why: "the plan without the damaged objects failed; its error is reported until all objects are checked again"},
	{Name: "damage-blocks-restore", Verdict: CourseNone,
		Why: "the agent never restores less than what is requested"},
})

// decideFallback returns a decision for every combination of facts, like Decide.
func decideFallback(f FallbackFacts) rules.Decision[Course] { return fallbacks.Decide(f) }

// restOf compares a plan without the damaged objects (rest) with the plan that has them (first), and with the plan
// that failed last (vain). err says that there is no plan without them. Overlapping deltas can lead rest further than
// first. Such a plan contains all of first, and the restore cuts it back to the target.
func restOf(first, rest, vain catalog.Plan, err error) Rest {
	switch {
	case err != nil:
		return RestNone
	case rest.Full.Lineage != first.Full.Lineage, rest.Revision != first.Revision, !rest.Until.Equal(first.Until), rest.Reach < first.Reach:
		return RestLess
	case slices.Equal(objectsOf(rest), objectsOf(vain)):
		return RestVain
	default:
		return RestEqual
	}
}
