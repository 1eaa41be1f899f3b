package crash

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	// Variable of the environment that names a point, and after a colon which of its passages ends the process:
	// before-add-learner, after-create-pod:3.
	Variable = "DRUID_CRASH_AT"
	// ExitCode of a process that was ended at a point. No program of ours and no Go runtime ends with it.
	ExitCode = 86
)

// order is the point at which this process is to end, and how many passages are left until then.
type order struct {
	point string
	left  atomic.Int64
}

var armed atomic.Pointer[order]

// Arm reads the environment for a program. A point that the program does not have is an error: a test that waits for it
// would prove nothing. Without the variable it does nothing.
func Arm(program Program) error {
	value := os.Getenv(Variable)
	if value == "" {
		return nil
	}
	o, err := parse(program, value)
	if err != nil {
		return fmt.Errorf("%s=%s: %w", Variable, value, err)
	}
	armed.Store(o)
	return nil
}

func parse(program Program, value string) (*order, error) {
	point, count, counted := strings.Cut(value, ":")
	if !slices.Contains(Points(program), point) {
		return nil, fmt.Errorf("%s has no such point", program)
	}
	passages := int64(1)
	if counted {
		var err error
		if passages, err = strconv.ParseInt(count, 10, 32); err != nil || passages < 1 {
			return nil, fmt.Errorf("passage %q is not a number from 1", count)
		}
	}
	o := &order{point: point}
	o.left.Store(passages)
	return o, nil
}

// Before stands right before the statement with the call.
func Before(call string) { pass(before, call) }

// After stands right after it. Where the statement returns on an error, only a call that succeeded comes here.
func After(call string) { pass(after, call) }

// Around is both, for a statement that returns what the call answers:
//
//	defer crash.Around("create-pod")()
//	return client.Create(ctx, pod)
func Around(call string) func() {
	Before(call)
	return func() { After(call) }
}

const before, after = "before-", "after-"

func pass(side, call string) {
	o := armed.Load()
	if o == nil || o.point != side+call {
		return
	}
	if o.left.Add(-1) == 0 {
		os.Exit(ExitCode) //nolint:revive // ending the process on the spot is what a point is for
	}
}

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
		"claim-bootstrap", "identity-file-bootstrap", "record-formed", "identity-file-formed",
		// Bootstrap from a backup.
		"restore-data", "identity-file-restored", "clear-place", "place-restored", "write-lineage",
		// Join and promotion.
		"add-learner", "identity-file-join", "promote",
		// Replacement.
		"take-slot", "remove-self", "free-slot",
		// The volume.
		"make-data-dir", "describe-quarantine", "rename-quarantine", "drop-identity-file", "drop-leftover", "begin-prune", "prune",
		// What launch is reported.
		"order-start", "order-stop", "order-proceed",
		// The leader's duties.
		"complete-record", "publish-list", "remove-superfluous", "move-leader",
		"claim-departure", "depart", "acknowledge-departure",
		"claim-removal", "hand-back", "remove-requested", "acknowledge-removal", "defragment", "note-defragmentation",
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
		"request-removal", "withdraw-removal", "delete-claim", "retain-claim", "delete-lease",
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
