package bootstrap

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
	ModeForceNew    Mode = "ForceNew"    // form the raft group anew from our data
	ModeWait        Mode = "Wait"        // look again; a fact will change by itself
	ModeRefuse      Mode = "Refuse"      // look again; a person has to change a fact
)

// Decision names the rule too, so that log, metric, Lease and docs/decisions.md agree.
type Decision struct {
	Mode Mode
	Rule string
	// Reason, of Wait and Refuse, in words for a person.
	Reason string
}

// rule is one row. A zero cell holds every value of its fact.
type rule struct {
	name string
	when Facts
	mode Mode
	// why is the reason of a Wait or Refuse, else what makes the act safe.
	why string
}

// unusable data is moved aside before anything else is written.
const unusable = Empty | Stale | Corrupt

// startRules is the whole policy. First match wins; what no rule covers is refused.
var startRules = []rule{
	{"superseded", Facts{Lease: Superseded}, ModeRefuse,
		"another Pod bears this member's name; this one must go"},
	{"volume-unread", Facts{Data: DataUnread}, ModeRefuse,
		"the volume cannot be inspected; the agent's log says why"},
	{"foreign-data", Facts{Data: Foreign}, ModeRefuse,
		"the volume holds data that is not this member's; mount the right volume, or move its data directory away by hand"},
	{"newer-schema", Facts{Data: Newer}, ModeRefuse,
		"the data was written by a newer minor of etcd; set spec.version back to it"},

	{"resume", Facts{Data: Intact, Listed: isListed, Own: OwnID, Epoch: EpochUnknown | Current}, ModeResume,
		"a quorum lists us under the ID of our data"},
	{"restore-ordered", Facts{Listed: NoQuorum, Record: Recovering, Lease: Fresh, Backup: BackupPresent, Order: OrderRestore}, ModeRestore,
		"an order of a higher epoch than the formed one names us"},
	{"force-new", Facts{Data: Intact, Listed: NoQuorum, Record: Recovering, Lease: Fresh, Order: OrderForce}, ModeForceNew,
		"an order names our data as the best survivor"},
	{"rejoin-ordered", Facts{Data: Intact, Listed: Unlisted, Record: Recovering, Lease: Fresh, Order: OrderRejoin}, ModeRejoin,
		"an order chose another's data"},
	{"recovering", Facts{Record: Recovering}, ModeWait,
		"the cluster is recovering from the loss of its quorum"},

	{"resume-majority", Facts{Data: Intact, Listed: NoQuorum, Epoch: EpochUnknown | Current}, ModeResume,
		"no quorum answers: a majority that restarts must find each other again"},

	{"lease-unread", Facts{Lease: LeaseUnread}, ModeWait,
		"this member's Lease cannot be read, and only Resume is decided without it"},
	{"retired", Facts{Lease: Retired}, ModeRefuse,
		"this member is on its way out, and only Resume is left to it"},
	{"asked-to-go", Facts{Lease: Leaving}, ModeWait,
		"this member is asked to go; it joins again only if that is taken back"},
	{"record-unread", Facts{Record: RecordUnread}, ModeWait,
		"the cluster record cannot be read"},
	{"record-absent", Facts{Record: RecordAbsent}, ModeWait,
		"the cluster record does not exist; druid creates it"},
	{"undesired", Facts{Place: Undesired}, ModeRefuse,
		"the cluster record does not list this member"},

	{"await-seed", Facts{Record: isForming, Place: Desired}, ModeWait,
		"the seed has not formed the cluster yet"},
	{"peer-answers", Facts{Record: isForming, Peers: Answering}, ModeWait,
		"the record says that no cluster was formed, but a peer answers"},
	{"quorum-answers", Facts{Record: isForming, Listed: anyListed &^ NoQuorum}, ModeWait,
		"the record says that no cluster was formed, but a quorum answers"},
	{"formed-before", Facts{Record: isForming, Evidence: FormedBefore}, ModeRefuse,
		"a cluster was formed before: a second one is never formed; druid repairs the record from the members' Leases"},
	{"evidence-unknown", Facts{Record: isForming, Evidence: EvidenceUnknown}, ModeWait,
		"an earlier cluster cannot be ruled out: not every trace of one can be read"},
	{"store-unreachable", Facts{Record: isForming, Backup: StoreUnreachable}, ModeWait,
		"the backup store cannot be asked what it holds"},
	{"backup-unusable", Facts{Record: isForming, Backup: BackupUnusable}, ModeRefuse,
		"what the backup store holds cannot be used as it is"},
	{"restore-at-first-boot", Facts{Record: isForming, Backup: BackupPresent, Order: OrderRestore}, ModeRestore,
		"the seed's first boot asks for it"},
	{"backup-present", Facts{Record: isForming, Backup: BackupPresent}, ModeRefuse,
		"the backup store holds a lineage of this cluster: it was formed before"},
	{"nothing-to-restore", Facts{Record: isForming, Order: OrderRestore}, ModeWait,
		"a restore is asked for and the store holds nothing to restore"},
	{"first-boot", Facts{Record: isForming, Order: NoOrder}, ModeNew,
		"no cluster was ever formed, and the record makes us the one that forms it; a claim of a Pod before us loses its compare-and-set"},
	{"order-before-birth", Facts{Record: isForming}, ModeRefuse,
		"the record orders a recovery of a cluster that was never formed"},

	{"record-incomplete", Facts{Record: FormedIncomplete}, ModeWait,
		"the record lacks fields of the formed cluster; a running member completes it"},
	{"await-quorum", Facts{Listed: NoQuorum}, ModeWait,
		"no quorum answers, and this member's data cannot be resumed"},
	{"confirming", Facts{Data: Intact, Listed: Unconfirmed}, ModeWait,
		"one list does not name this member; a second one is awaited"},
	{"finish-join", Facts{Data: Empty, Listed: Unstarted, Joining: JoiningNow}, ModeJoin,
		"we added this learner, and no log of it was ever written"},
	{"await-drain", Facts{Slot: SlotLeaving}, ModeWait,
		"a member is on its way out, and nobody joins beside that"},
	{"removed-while-down", Facts{Data: Intact, Listed: Unlisted}, ModeRejoin,
		"a quorum lists us no more"},
	{"needs-unmet", Facts{Needs: Unmet}, ModeWait,
		"what a member add will need is not there"},
	{"join", Facts{Data: unusable, Listed: anyUnlisted}, ModeJoin,
		"etcd itself refuses a second member at our peer URL"},
	{"slot-taken", Facts{Slot: SlotTaken}, ModeWait,
		"another member is replacing itself"},
	{"data-lost", Facts{Data: unusable, Listed: isListed}, ModeReplaceSelf,
		"a raft ID is never started without its data"},
	{"other-incarnation", Facts{Data: Intact, Listed: isListed, Own: OtherID}, ModeReplaceSelf,
		"the data belongs to an ID that we no longer are"},
	{"fenced-data", Facts{Data: Intact, Listed: isListed, Epoch: Fenced}, ModeReplaceSelf,
		"the data belongs to an attempt that was lost or to an older birth"},
}

// Decide is total: it needs no clock, no network and no luck.
func Decide(f Facts) Decision {
	for i := range startRules {
		if r := &startRules[i]; r.when.hold(f) {
			d := Decision{Mode: r.mode, Rule: r.name}
			if r.mode == ModeWait || r.mode == ModeRefuse {
				d.Reason = r.why
			}
			return d
		}
	}
	return Decision{Mode: ModeRefuse, Rule: "uncovered", Reason: "no rule covers what was observed"}
}

// hold says whether every cell holds the fact. A zero cell holds all.
func (f *Facts) hold(facts Facts) bool {
	return in(f.Data, facts.Data) && in(f.Listed, facts.Listed) && in(f.Own, facts.Own) && in(f.Record, facts.Record) &&
		in(f.Epoch, facts.Epoch) && in(f.Place, facts.Place) && in(f.Lease, facts.Lease) && in(f.Evidence, facts.Evidence) &&
		in(f.Peers, facts.Peers) && in(f.Backup, facts.Backup) && in(f.Order, facts.Order) && in(f.Slot, facts.Slot) &&
		in(f.Needs, facts.Needs) && in(f.Joining, facts.Joining)
}

func in[T ~uint8](cell, fact T) bool { return cell == 0 || cell&fact != 0 }
