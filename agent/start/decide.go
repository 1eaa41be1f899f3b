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
	ModeRejoin      Mode = "Rejoin"      // move aside data that no quorum lists; Join follows
	ModeForceNew    Mode = "ForceNew"    // form the raft group again from our data
	ModeWait        Mode = "Wait"        // look again; a fact will change by itself
	ModeRefuse      Mode = "Refuse"      // look again; a person has to change a fact
)

// Decision names the rule too, so that log, metric, Lease and docs/reference/decisions.md agree.
type Decision struct {
	Mode Mode
	Rule string
	// Reason, of Wait and Refuse, in words for a person.
	Reason string
}

// unusable data is moved aside before anything else is written.
const unusable = Empty | Stale | Corrupt

// startRules is the whole policy. First match wins; what no rule covers is refused.
var startRules = rules.New(ModeRefuse, []rules.Row[Facts, Mode]{
	{Name: "superseded", When: Facts{Lease: Superseded}, Verdict: ModeRefuse,
		Why: "another Pod bears this member's name; this one must go"},
	{Name: "volume-unread", When: Facts{Data: DataUnread}, Verdict: ModeRefuse,
		Why: "the volume cannot be inspected; the agent's log says why"},
	{Name: "foreign-data", When: Facts{Data: Foreign}, Verdict: ModeRefuse,
		Why: "the volume holds data that is not this member's; mount the right volume, or move its data directory away by hand"},
	{Name: "newer-schema", When: Facts{Data: Newer}, Verdict: ModeRefuse,
		Why: "the data was written by a newer minor of etcd; set spec.version back to it"},

	{Name: "resume", When: Facts{Data: Intact, Listed: isListed, Own: OwnID, Epoch: EpochUnknown | Current}, Verdict: ModeResume,
		Why: "a quorum lists us under the ID of our data"},
	{Name: "restore-ordered", When: Facts{Listed: NoQuorum, Record: Recovering, Lease: Fresh, Backup: BackupPresent, Order: OrderRestore}, Verdict: ModeRestore,
		Why: "an order of a higher epoch than the formed one names us"},
	{Name: "force-new", When: Facts{Data: Intact, Listed: NoQuorum, Record: Recovering, Lease: Fresh, Order: OrderForce}, Verdict: ModeForceNew,
		Why: "an order names our data as the best survivor"},
	{Name: "rejoin-ordered", When: Facts{Data: Intact, Listed: Unlisted, Record: Recovering, Lease: Fresh, Order: OrderRejoin}, Verdict: ModeRejoin,
		Why: "an order chose another's data"},
	{Name: "recovering", When: Facts{Record: Recovering}, Verdict: ModeWait,
		Why: "the cluster is recovering from the loss of its quorum"},

	{Name: "resume-majority", When: Facts{Data: Intact, Listed: NoQuorum, Epoch: EpochUnknown | Current}, Verdict: ModeResume,
		Why: "no quorum answers: a majority that restarts must find each other again"},

	{Name: "lease-unread", When: Facts{Lease: LeaseUnread}, Verdict: ModeWait,
		Why: "this member's Lease cannot be read, and only Resume is decided without it"},
	{Name: "removal-acknowledged", When: Facts{Lease: RemovalAcknowledged}, Verdict: ModeRefuse,
		Why: "this member is on its way out, and only Resume is left to it"},
	{Name: "asked-to-go", When: Facts{Lease: Leaving}, Verdict: ModeWait,
		Why: "this member is asked to go; it joins again only if that is taken back"},
	{Name: "record-unread", When: Facts{Record: RecordUnread}, Verdict: ModeWait,
		Why: "the cluster record cannot be read"},
	{Name: "record-absent", When: Facts{Record: RecordAbsent}, Verdict: ModeWait,
		Why: "the cluster record does not exist; druid creates it"},
	{Name: "undesired", When: Facts{Place: Undesired}, Verdict: ModeRefuse,
		Why: "the cluster record does not list this member"},

	{Name: "await-seed", When: Facts{Record: isForming, Place: Desired}, Verdict: ModeWait,
		Why: "the seed has not formed the cluster yet"},
	{Name: "peer-answers", When: Facts{Record: isForming, Peers: Answering}, Verdict: ModeWait,
		Why: "the record says that no cluster was formed, but a peer answers"},
	{Name: "quorum-answers", When: Facts{Record: isForming, Listed: anyListed &^ NoQuorum}, Verdict: ModeWait,
		Why: "the record says that no cluster was formed, but a quorum answers"},
	{Name: "formed-before", When: Facts{Record: isForming, Evidence: FormedBefore}, Verdict: ModeRefuse,
		Why: "a cluster was formed before: a second one is never formed; druid repairs the record from the members' Leases"},
	{Name: "evidence-unknown", When: Facts{Record: isForming, Evidence: EvidenceUnknown}, Verdict: ModeWait,
		Why: "an earlier cluster cannot be ruled out: not every trace of one can be read"},
	{Name: "store-unreachable", When: Facts{Record: isForming, Backup: StoreUnreachable}, Verdict: ModeWait,
		Why: "the backup store cannot be asked what it holds"},
	{Name: "backup-unusable", When: Facts{Record: isForming, Backup: BackupUnusable}, Verdict: ModeRefuse,
		Why: "what the backup store holds cannot be used as it is"},
	{Name: "restore-at-first-boot", When: Facts{Record: isForming, Backup: BackupPresent, Order: OrderRestore}, Verdict: ModeRestore,
		Why: "the seed's first boot asks for it"},
	{Name: "backup-present", When: Facts{Record: isForming, Backup: BackupPresent}, Verdict: ModeRefuse,
		Why: "the backup store holds a lineage of this cluster: it was formed before"},
	{Name: "nothing-to-restore", When: Facts{Record: isForming, Order: OrderRestore}, Verdict: ModeWait,
		Why: "a restore is asked for and the store holds nothing to restore"},
	{Name: "first-boot", When: Facts{Record: isForming, Order: NoOrder}, Verdict: ModeNew,
		Why: "no cluster was ever formed, and the record makes us the one that forms it; a claim of a Pod before us loses its compare-and-set"},
	{Name: "order-before-birth", When: Facts{Record: isForming}, Verdict: ModeRefuse,
		Why: "the record orders a recovery of a cluster that was never formed"},

	{Name: "record-incomplete", When: Facts{Record: FormedIncomplete}, Verdict: ModeWait,
		Why: "the record lacks fields of the formed cluster; a running member completes it"},
	{Name: "await-quorum", When: Facts{Listed: NoQuorum}, Verdict: ModeWait,
		Why: "no quorum answers, and this member's data cannot be resumed"},
	{Name: "confirming", When: Facts{Data: Intact, Listed: Unconfirmed}, Verdict: ModeWait,
		Why: "one list does not name this member; a second one is awaited"},
	{Name: "finish-join", When: Facts{Data: Empty, Listed: Unstarted, Joining: JoiningNow}, Verdict: ModeJoin,
		Why: "we added this learner, and no log of it was ever written"},
	{Name: "await-drain", When: Facts{Slot: SlotLeaving}, Verdict: ModeWait,
		Why: "a member is on its way out, and no one joins next to that"},
	{Name: "removed-while-down", When: Facts{Data: Intact, Listed: Unlisted}, Verdict: ModeRejoin,
		Why: "a quorum lists us no more"},
	{Name: "needs-unmet", When: Facts{Needs: Unmet}, Verdict: ModeWait,
		Why: "what a member add will need is not there"},
	{Name: "join", When: Facts{Data: unusable, Listed: anyUnlisted}, Verdict: ModeJoin,
		Why: "etcd itself refuses a second member at our peer URL"},
	{Name: "slot-taken", When: Facts{Slot: SlotTaken}, Verdict: ModeWait,
		Why: "another member is replacing itself"},
	{Name: "data-lost", When: Facts{Data: unusable, Listed: isListed}, Verdict: ModeReplaceSelf,
		Why: "a raft ID is never started without its data"},
	{Name: "other-incarnation", When: Facts{Data: Intact, Listed: isListed, Own: OtherID}, Verdict: ModeReplaceSelf,
		Why: "the data belongs to an ID that we no longer are"},
	{Name: "fenced-data", When: Facts{Data: Intact, Listed: isListed, Epoch: Fenced}, Verdict: ModeReplaceSelf,
		Why: "the data belongs to an attempt that was lost or to an older bootstrap"},
})

// Decide is total: it needs no clock, no network and no luck.
func Decide(f Facts) Decision { return decisionOf(startRules.Decide(f)) }

// DecideWithout decides as if the table lacked the row called rule. It lets the model test show which harm each row averts.
func DecideWithout(f Facts, rule string) Decision {
	return decisionOf(startRules.Without(rule).Decide(f))
}

// Rules are the names of the table's rows, in their order.
func Rules() []string { return startRules.Names() }

// decisionOf a table. The reason is for a person, who is needed where nothing is done.
func decisionOf(d rules.Decision[Mode]) Decision {
	decision := Decision{Mode: d.Verdict, Rule: d.Rule}
	if d.Verdict == ModeWait || d.Verdict == ModeRefuse {
		decision.Reason = d.Why
	}
	return decision
}

// One-bit enums of a restore whose plan may hold what is damaged.
type (
	// Harm is what is known of the objects of the plan that leads to what is asked for.
	Damage uint8
	// Rest is where all other objects lead.
	Rest uint8
)

// Harm.
const (
	Unharmed  Damage = 1 << iota // none of them was found damaged
	DamageNew                    // one was, a moment ago
	DamageOld                    // one was, so long ago that a good copy may stand in its place by now
	anyDamage = 1<<iota - 1
)

// Rest.
const (
	RestEqual Rest = 1 << iota // to the same state
	RestVain                   // to the same state, by a plan that was tried and cannot be carried out
	RestLess                   // to less of it, or to another one
	RestNone                   // there is no plan
	anyRest   = 1<<iota - 1
)

// DetourFacts is all that decideDetour may look at.
type FallbackFacts struct {
	Damage Damage `fact:"an object of the plan is damaged"`
	Rest   Rest   `fact:"the others lead"`
}

func (h Damage) String() string { return rules.Word(h, "no", "found just now", "found minutes ago") }
func (r Rest) String() string {
	return rules.Word(r, "to the same state", "to the same, tried in vain", "to less, or another state", "nowhere")
}

// Course is which plan is carried out.
type Course string

// The courses.
const (
	CourseDirect   Course = "Direct" // the one with all objects, whatever was found damaged before
	CourseFallback Course = "Detour" // the one without those that are damaged
	CourseNone     Course = "None"   // neither: a person has to choose
)

// detours is the whole policy of damage on the way to what is restored. First match wins; what no rule covers is not restored.
var detours = rules.New(CourseNone, []rules.Row[FallbackFacts, Course]{
	{Name: "undamaged", When: FallbackFacts{Damage: Unharmed}, Verdict: CourseDirect,
		Why: "nothing that it needs was found damaged"},
	{Name: "around-damage", When: FallbackFacts{Rest: RestEqual}, Verdict: CourseFallback,
		Why: "all that is asked for is in other objects, too"},
	{Name: "look-again", When: FallbackFacts{Damage: DamageOld}, Verdict: CourseDirect,
		Why: "a good copy may stand in its place by now, or in that of any other; each is read and compared before it counts"},
	{Name: "tried-in-vain", When: FallbackFacts{Rest: RestVain}, Verdict: CourseFallback,
		Why: "what is wrong with it is reported, until all is looked at again"},
	{Name: "damage-in-the-way", Verdict: CourseNone,
		Why: "less than what is asked for is never restored unasked"},
})

// decideDetour is total, as Decide is.
func decideFallback(f FallbackFacts) rules.Decision[Course] { return detours.Decide(f) }

// restOf says where a plan without the damaged objects leads, or that there is none, compared with first, which has them, and with the
// plan that was tried in vain last. What leads further than first, as overlapping deltas may, has all of it; the restore cuts it back to
// what was asked for.
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
