package start

import (
	"log/slog"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// One-bit enums: a fact holds exactly one bit, a rule's cell may hold several. Unknown is a value of its own, and an error
// is never turned into another one.
type (
	// Data is what is on the volume.
	Data uint8
	// Listed is what the member list of a quorum says about this member.
	Listed uint8
	// Own says whether that list has this member with the ID of its data.
	Own uint8
	// Record is what the cluster record says.
	Record uint8
	// Epoch compares the raft group of the data with that of the record.
	Epoch uint8
	// Place is the role that the record gives to this member.
	Place uint8
	// Lease is what the member Lease says about this Pod.
	Lease uint8
	// Evidence says whether the cluster was ever formed before.
	Evidence uint8
	// Peers says whether any peer responds.
	Peers uint8
	// Backup is what the store has of this cluster.
	Backup uint8
	// Order is the request in the spec at the first start, or in the record, and the part of this member in it.
	Order uint8
	// Slot is the state of the record's slots for a replacement and for a removal. Only one of them is taken at a
	// time.
	Slot uint8
	// Needs says whether the requirements of a member add are met.
	Needs uint8
	// Joining says whether this start added the learner that is listed and not started.
	Joining uint8
)

// Data. Foreign and Stale stand above what the inspection found: they say that the data is not ours to continue.
const (
	Empty      Data = 1 << iota // no member/wal: no raft ID was ever started on it
	Intact                      // etcd can continue it
	Stale                       // ours, but it went back in time or belongs to another volume
	Corrupt                     // damaged
	Foreign                     // of another cluster or member, or of an unknown one
	Newer                       // written by a newer minor of etcd
	DataUnread                  // the volume could not be inspected
	Differing                   // etcd can continue it, but a majority of all voters serves with other data
)

// Listed.
const (
	NoQuorum    Listed = 1 << iota // no member answered a linearizable list with our cluster ID
	Unconfirmed                    // one list does not name us
	Unlisted                       // two lists, an election timeout apart, do not (R5)
	Unstarted                      // listed, and never published by an etcd
	Learner                        // listed as a started learner
	Voter                          // listed as a started voter
	anyListed   = 1<<iota - 1
	isListed    = Unstarted | Learner | Voter
	anyUnlisted = Unconfirmed | Unlisted
)

// Own. Without data or without an entry it is OtherID.
const (
	OwnID Own = 1 << iota
	OtherID
)

// Record.
const (
	RecordUnread     Record = 1 << iota // out of reach, forbidden, or not to be understood
	RecordAbsent                        // no such Lease; no evidence that there never was one
	Unclaimed                           // Forming, and no Pod has claimed the attempt
	FormingByUs                         // Forming, claimed by this Pod
	FormingByAnother                    // Forming, claimed by another Pod
	Formed                              // the raft group exists, and the record reports all of it
	FormedIncomplete                    // the raft group exists; epoch, nonce, lineage or limit are missing
	Recovering                          // an order to form the raft group again is under way
	isForming        = Unclaimed | FormingByUs | FormingByAnother
)

// Epoch.
const (
	EpochUnknown Epoch = 1 << iota // no data, or no record to compare it with
	Current                        // the data is of the record's raft group, or of its present attempt
	Fenced                         // the data is of an attempt that was lost, or of a group that was formed again since
	Prepared                       // not Fenced, and the volume acknowledges a recovery order that is not known to be released
)

// Place.
const (
	Seed Place = 1 << iota // desired, and the one that may form the group
	Desired
	Undesired
)

// Lease.
const (
	Fresh               Lease = 1 << iota // read just now; its Pod UID is ours and it is not retired
	Superseded                            // another Pod bears the name now
	Leaving                               // the removal of the member is requested, and can be withdrawn
	RemovalAcknowledged                   // the member's removal is claimed or done, or its mark cannot be understood
	LeaseUnread                           // absent, forbidden, out of reach, or not to be understood

	isOurs = Fresh | Leaving | RemovalAcknowledged // a removal from the old raft group does not matter to a recovery order
)

// Evidence.
const (
	NeverFormed     Evidence = 1 << iota // the Leases of all desired members were read, and none ever had an ID
	FormedBefore                         // a Lease, the record or this volume says so
	EvidenceUnknown                      // a Lease could not be read
)

// Peers.
const (
	Silent Peers = 1 << iota
	Answering
)

// Backup.
const (
	NoBackup Backup = 1 << iota
	BackupPresent
	BackupUnusable   // the store responded, and its content needs action by the user
	StoreUnreachable // or the requested backup is unknown
)

// Order.
const (
	NoOrder      Order = 1 << iota
	OrderRestore       // the first start requests a restore
	OrderPrepare       // a recovery order stands that this process did not acknowledge
	OrderWait          // one stands that it acknowledged
	OrderForm          // one stands, and it has this member form the raft group from what it acknowledged
	OrderPlace         // this member formed the record's raft group, and its data is not in place yet
)

// Slot.
const (
	SlotFree Slot = 1 << iota
	SlotOurs
	SlotTaken   // another member is replacing itself
	SlotLeaving // a member is on its way out, we or another
)

// Needs. What could not be found out is Unmet.
const (
	Met Needs = 1 << iota
	Unmet
)

// Joining.
const (
	NotJoining Joining = 1 << iota
	JoiningNow
)

// Facts is the complete input of Decide. Nothing in it can block, fail or change.
type Facts struct {
	Data     Data
	Listed   Listed
	Own      Own
	Record   Record
	Epoch    Epoch
	Place    Place
	Lease    Lease
	Evidence Evidence
	Peers    Peers
	Backup   Backup
	Order    Order
	// Restores says whether the order in the record restores the cluster also if its quorum serves.
	Restores rules.YesNo
	Slot     Slot
	Needs    Needs
	Joining  Joining
}

// unknownFacts is the initial state of an observation: nothing is known, so only a wait can follow.
func unknownFacts() Facts {
	return Facts{
		Data: DataUnread, Listed: NoQuorum, Own: OtherID, Record: RecordUnread, Epoch: EpochUnknown, Place: Undesired,
		Lease: LeaseUnread, Evidence: EvidenceUnknown, Peers: Silent, Backup: NoBackup, Order: NoOrder, Restores: rules.No,
		Slot: SlotTaken, Needs: Unmet, Joining: NotJoining,
	}
}

// The words of each fact: for logs, Leases and docs/reference/decisions.md.

func (v Data) String() string {
	return rules.Word(v, leases.DataEmpty, "intact", "stale", "corrupt", "foreign", "newer schema", "unread", "differing")
}
func (v Listed) String() string {
	return rules.Word(v, "no quorum", "unconfirmed", "unlisted", "unstarted", "learner", "voter")
}
func (v Own) String() string { return rules.Word(v, "own ID", "other ID") }
func (v Record) String() string {
	return rules.Word(v, "unread", "absent", "unclaimed", "forming by this Pod", "forming by another Pod", "formed", "incomplete", "recovering")
}
func (v Epoch) String() string { return rules.Word(v, "unknown", "current", "fenced", "prepared") }
func (v Place) String() string { return rules.Word(v, "seed", "desired", "undesired") }
func (v Lease) String() string {
	return rules.Word(v, "fresh", "superseded", "leaving", "removal-acknowledged", "unread")
}
func (v Evidence) String() string { return rules.Word(v, "never formed", "formed before", "unknown") }
func (v Peers) String() string    { return rules.Word(v, "silent", "answering") }
func (v Backup) String() string   { return rules.Word(v, "none", "present", "unusable", "unreachable") }
func (v Order) String() string {
	return rules.Word(v, "none", "restore", "prepare", "acknowledged", "form", "place")
}
func (v Slot) String() string    { return rules.Word(v, "free", "ours", "taken", "leaving") }
func (v Needs) String() string   { return rules.Word(v, "met", "unmet") }
func (v Joining) String() string { return rules.Word(v, "no", "yes") }

// LogValue lets a log line report the facts in words.
func (f Facts) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("data", f.Data.String()), slog.String("listed", f.Listed.String()), slog.String("own", f.Own.String()),
		slog.String("record", f.Record.String()), slog.String("epoch", f.Epoch.String()), slog.String("place", f.Place.String()),
		slog.String("lease", f.Lease.String()), slog.String("evidence", f.Evidence.String()),
		slog.String("peers", f.Peers.String()), slog.String("backup", f.Backup.String()), slog.String("order", f.Order.String()),
		slog.String("restores", f.Restores.String()), slog.String("slot", f.Slot.String()), slog.String("needs", f.Needs.String()),
		slog.String("joining", f.Joining.String()),
	)
}
