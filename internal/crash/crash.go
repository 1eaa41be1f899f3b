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
	// Variable is the environment variable that names a point, and optionally after a colon which of its passages ends
	// the process: before-add-learner, after-create-pod:3.
	Variable = "DRUID_CRASH_AT"
	// ExitCode of a process that ended at a point. Neither druid, the agent nor the Go runtime uses it otherwise.
	ExitCode = 86
)

// order is the point at which this process ends, and the number of passages until then.
type order struct {
	point string
	left  atomic.Int64
}

var armed atomic.Pointer[order]

// Arm reads the environment variable for a program. An unknown point is an error, because a test that waits for it
// would test nothing. Without the variable, Arm does nothing.
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
		return nil, fmt.Errorf("%s does not have this point", program)
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

// Before must be directly before the statement with the call.
func Before(call string) { pass(before, call) }

// After must be directly after it. If the statement returns on an error, only a successful call reaches this point.
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

// Program is a program with points.
type Program string

// The programs.
const (
	Agent Program = "agent"
	Druid Program = "druid"
)

// calls are the calls with points, by program. A name says what the call is for.
var calls = map[Program][]string{
	Agent: {
		// Bootstrap.
		"claim-bootstrap", "identity-file-bootstrap", "record-formed", "identity-file-formed",
		// Bootstrap from a backup.
		"restore-data", "identity-file-restored", "clear-place", "place-restored", "write-lineage",
		// Recovery orders.
		"identity-file-prepared", "withdraw-disk-report", "identity-file-released", "claim-recovery", "build-survivor", "restore-recovered",
		"identity-file-built", "record-recovered",
		"identity-file-recovered",
		// Join and promotion.
		"report-learner", "add-learner", "identity-file-join", "promote",
		// Replacement.
		"take-slot", "remove-self", "free-slot", "take-slot-differing",
		"update-peer-url", "identity-file-scheme",
		// The volume.
		"make-data-dir", "describe-quarantine", "rename-quarantine", "drop-identity-file", "drop-leftover", "begin-prune", "prune",
		// Requests to launch.
		"order-start", "order-stop", "order-proceed",
		// The duties of the leader.
		"complete-record", "publish-list", "remove-superfluous", "move-leader",
		"claim-departure", "depart", "acknowledge-departure",
		"claim-removal", "hand-back", "remove-requested", "acknowledge-removal", "defragment", "note-defragmentation",
		"compact-history", "disarm-no-space",
		"change-auth", "switch-auth", "report-auth",
		// A change of the etcd version.
		"answer-upgrade", "announce-downgrade", "cancel-downgrade",
		// The plan of a restore in place.
		"answer-restore",
		// A comparison of the data.
		"mark-difference", "report-undecided", "disarm-corrupt",
		// Renewals of the Leases.
		"renew-lease", "renew-leader-lease", "renew-backup-lease", "publish-disk",
		// Backups.
		"record-lineage", "take-full", "delete-backup", "sweep-uploads", "answer-snapshot-order",
	},
	Druid: {
		"adopt-spec", "create-record", "update-record",
		"create-leader-lease", "create-member-lease", "create-claim", "create-pod", "restore-labels",
		"apply-object", "apply-budget", "delete-object", "mark-lease", "label-pod", "delete-pod", "adopt-pod", "replace-agent",
		"write-status",
		// Removal from the cluster and its cancellation.
		"request-removal", "withdraw-removal", "delete-claim", "retain-claim", "delete-lease",
		// The PersistentVolumeClaims after the deletion of the cluster.
		"take-claim", "release-claim",
		// The finalizer of a cluster that shares its raft group with external members.
		"hold-cluster",
		// A larger volume.
		"grow-claim",
		// The Leases that report backups.
		"create-snapshot-lease", "delete-snapshot-lease",
		// Certificates.
		"create-authority", "write-certificates", "request-certificate",
		// Backups on demand.
		"order-snapshot", "clear-snapshot-order", "write-snapshot-status", "delete-snapshot", "hold-snapshot",
		"create-snapshot-pod", "delete-snapshot-pod",
		// Repair of members.
		"mark-healing",
		// A change of the etcd version.
		"create-snapshot", "order-upgrade",
		// A restore in place.
		"request-restore-plan",
	},
}

// Calls returns the calls of a program with points.
func Calls(program Program) []string { return calls[program] }

// Points returns the points of a program: one before and one after each call.
func Points(program Program) []string {
	points := make([]string, 0, 2*len(calls[program]))
	for _, call := range calls[program] {
		points = append(points, before+call, after+call)
	}
	return points
}
