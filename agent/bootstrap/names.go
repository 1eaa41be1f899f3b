package bootstrap

import (
	"log/slog"
	"math/bits"

	"github.com/etcd-druid/druid/leases"
)

// The words of each fact, in the order of its bits: for logs, Leases and docs/decisions.md.
var (
	dataWords     = []string{leases.DataEmpty, "intact", "stale", "corrupt", "foreign", "newer schema", "unread"}
	listedWords   = []string{"no quorum", "unconfirmed", "unlisted", "unstarted", "learner", "voter"}
	ownWords      = []string{"own ID", "other ID"}
	recordWords   = []string{"unread", "absent", "unclaimed", "forming by us", "forming by another", "formed", "incomplete", "recovering"}
	epochWords    = []string{"unknown", "current", "fenced"}
	placeWords    = []string{"seed", "desired", "undesired"}
	leaseWords    = []string{"fresh", "superseded", "leaving", "retired", "unread"}
	evidenceWords = []string{"never formed", "formed before", "unknown"}
	peersWords    = []string{"silent", "answering"}
	backupWords   = []string{"none", "present", "unusable", "unreachable"}
	orderWords    = []string{"none", "restore", "force", "rejoin"}
	slotWords     = []string{"free", "ours", "taken", "leaving"}
	needsWords    = []string{"met", "unmet"}
	joiningWords  = []string{"no", "yes"}
)

func word(words []string, bit uint8) string {
	if bits.OnesCount8(bit) != 1 || bits.TrailingZeros8(bit) >= len(words) {
		return "?"
	}
	return words[bits.TrailingZeros8(bit)]
}

func (v Data) String() string     { return word(dataWords, uint8(v)) }
func (v Listed) String() string   { return word(listedWords, uint8(v)) }
func (v Own) String() string      { return word(ownWords, uint8(v)) }
func (v Record) String() string   { return word(recordWords, uint8(v)) }
func (v Epoch) String() string    { return word(epochWords, uint8(v)) }
func (v Place) String() string    { return word(placeWords, uint8(v)) }
func (v Lease) String() string    { return word(leaseWords, uint8(v)) }
func (v Evidence) String() string { return word(evidenceWords, uint8(v)) }
func (v Peers) String() string    { return word(peersWords, uint8(v)) }
func (v Backup) String() string   { return word(backupWords, uint8(v)) }
func (v Order) String() string    { return word(orderWords, uint8(v)) }
func (v Slot) String() string     { return word(slotWords, uint8(v)) }
func (v Needs) String() string    { return word(needsWords, uint8(v)) }
func (v Joining) String() string  { return word(joiningWords, uint8(v)) }

// LogValue lets a log line tell the facts in words.
func (f Facts) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("data", f.Data.String()), slog.String("listed", f.Listed.String()), slog.String("own", f.Own.String()),
		slog.String("record", f.Record.String()), slog.String("epoch", f.Epoch.String()), slog.String("place", f.Place.String()),
		slog.String("lease", f.Lease.String()), slog.String("evidence", f.Evidence.String()),
		slog.String("peers", f.Peers.String()), slog.String("backup", f.Backup.String()), slog.String("order", f.Order.String()),
		slog.String("slot", f.Slot.String()), slog.String("needs", f.Needs.String()),
		slog.String("joining", f.Joining.String()),
	)
}
