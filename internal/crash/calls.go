package crash

// Program that has points.
type Program string

// The programs.
const (
	Agent Program = "agent"
	Druid Program = "druid"
)

// calls that have points, by program. A name says what the call is for.
var calls = map[Program][]string{
	Agent: {
		// Bootstrap.
		"claim-bootstrap", "stamp-bootstrap", "record-formed", "stamp-formed",
		// Bootstrap from a backup.
		"restore-data", "stamp-restored", "clear-place", "place-restored", "write-lineage",
		// Join and promotion.
		"add-learner", "stamp-join", "promote",
		// Replacement.
		"take-slot", "remove-self", "free-slot",
		// The volume.
		"make-data-dir", "describe-aside", "rename-aside", "drop-stamp", "drop-leftover", "begin-prune", "prune",
		// What launch is reported.
		"order-start", "order-stop", "order-proceed",
		// The leader's duties.
		"complete-record", "publish-list", "remove-superfluous", "move-leader",
		"claim-departure", "depart", "acknowledge-departure",
		"claim-removal", "hand-back", "remove-retiring", "acknowledge-removal", "defragment", "note-defragmentation",
		"compact-history", "disarm-no-space",
		// A change of etcd's version.
		"answer-upgrade", "announce-downgrade", "cancel-downgrade",
		// The Leases that say who is there.
		"renew-lease", "renew-leader-lease", "renew-backup-lease",
		// Backups.
		"record-lineage", "take-full", "delete-backup", "sweep-uploads", "answer-snapshot-order",
	},
	Druid: {
		"adopt-spec", "create-record", "update-record",
		"create-leader-lease", "create-member-lease", "create-claim", "create-pod", "restore-labels",
		"apply-object", "apply-budget", "delete-budget", "mark-lease", "label-pod", "delete-pod", "adopt-pod", "replace-agent",
		"write-status",
		// The way out of the cluster, and back.
		"retire-lease", "unretire-lease", "delete-claim", "retain-claim", "delete-lease",
		// What becomes of the claims when the cluster is deleted.
		"take-claim", "release-claim",
		// What holds a cluster that is in a group next to others.
		"hold-cluster",
		// A larger volume.
		"grow-claim",
		// What reports backups.
		"create-snapshot-lease", "delete-snapshot-lease",
		// Backups on demand.
		"order-snapshot", "clear-snapshot-order", "write-snapshot-status", "delete-snapshot", "hold-snapshot",
		// Members that do not repair themselves.
		"mark-healing",
		// A change of etcd's version.
		"create-snapshot", "order-upgrade",
	},
}

// Calls of a program that have points.
func Calls(program Program) []string { return calls[program] }

// Points of a program: one before and one after each call.
func Points(program Program) []string {
	points := make([]string, 0, 2*len(calls[program]))
	for _, call := range calls[program] {
		points = append(points, before+call, after+call)
	}
	return points
}
