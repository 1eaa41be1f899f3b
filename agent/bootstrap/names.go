package bootstrap

import (
	"log/slog"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// The words of each fact: for logs, Leases and docs/reference/decisions.md.

func (v Data) String() string {
	return rules.Word(v, leases.DataEmpty, "intact", "stale", "corrupt", "foreign", "newer schema", "unread")
}
func (v Listed) String() string {
	return rules.Word(v, "no quorum", "unconfirmed", "unlisted", "unstarted", "learner", "voter")
}
func (v Own) String() string { return rules.Word(v, "own ID", "other ID") }
func (v Record) String() string {
	return rules.Word(v, "unread", "absent", "unclaimed", "forming by us", "forming by another", "formed", "incomplete", "recovering")
}
func (v Epoch) String() string { return rules.Word(v, "unknown", "current", "fenced") }
func (v Place) String() string { return rules.Word(v, "seed", "desired", "undesired") }
func (v Lease) String() string {
	return rules.Word(v, "fresh", "superseded", "leaving", "retired", "unread")
}
func (v Evidence) String() string { return rules.Word(v, "never formed", "formed before", "unknown") }
func (v Peers) String() string    { return rules.Word(v, "silent", "answering") }
func (v Backup) String() string   { return rules.Word(v, "none", "present", "unusable", "unreachable") }
func (v Order) String() string    { return rules.Word(v, "none", "restore", "force", "rejoin") }
func (v Slot) String() string     { return rules.Word(v, "free", "ours", "taken", "leaving") }
func (v Needs) String() string    { return rules.Word(v, "met", "unmet") }
func (v Joining) String() string  { return rules.Word(v, "no", "yes") }

// LogValue lets a log line report the facts in words.
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
