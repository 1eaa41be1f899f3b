package points

import (
	"slices"
	"strings"

	"github.com/etcd-druid/druid/internal/crash"
)

// scenarios say which calls are interrupted in them, each of them before and after: the first time that it is made, or that
// of the number behind the colon. A call may be interrupted in several.
var scenarios = map[crash.Program]map[string][]string{
	crash.Agent: {
		"bootstrap": {
			"claim-bootstrap", "make-data-dir", "identity-file-bootstrap", "order-start", "record-formed", "identity-file-formed",
			"renew-lease", "renew-leader-lease", "publish-list",
		},
		"bootstrap from a backup": {
			"claim-bootstrap", "restore-data", "identity-file-restored", "clear-place", "place-restored", "order-start",
			"write-lineage", "record-formed",
		},
		"a bootstrap that was lost": {"order-stop", "describe-quarantine", "rename-quarantine", "drop-identity-file"},
		"join":                      {"add-learner", "identity-file-join", "order-start", "promote"},
		"a recovery order": {
			"identity-file-prepared", "claim-recovery", "build-survivor", "identity-file-built", "record-recovered", "rename-quarantine",
			"identity-file-recovered", "place-restored",
		},
		"a recovery order for a backup": {"restore-recovered"},
		"a restore in place": {
			"identity-file-prepared", "claim-recovery", "restore-recovered", "identity-file-built", "record-recovered", "place-restored",
		},
		"a recovery order that is released": {"withdraw-disk-report", "identity-file-released"},
		"a request for a restore":           {"answer-restore"},
		"adoption":                          {"claim-bootstrap", "add-learner", "identity-file-join", "record-formed"},
		"replacement":                       {"take-slot", "rename-quarantine", "remove-self", "report-learner", "add-learner", "promote", "free-slot"},
		"a member whose data differs":       {"mark-difference"},
		"a marked member":                   {"take-slot-differing"},
		"members without a majority":        {"report-undecided"},
		"the alarm CORRUPT":                 {"disarm-corrupt"},
		"rejoin":                            {"rename-quarantine"},
		"leave":                             {"move-leader", "order-proceed"},
		"pruning":                           {"drop-leftover", "begin-prune", "prune"},
		"completion of a record":            {"complete-record"},
		"a disk that is not described":      {"publish-disk"},
		"removal of an unknown member":      {"remove-superfluous"},
		"drain":                             {"claim-removal", "remove-requested", "acknowledge-removal"},
		"drain of the leader":               {"move-leader"},
		"departure of the last":             {"claim-departure", "depart", "acknowledge-departure"},
		"drain that is hindered":            {"hand-back"},
		"backups":                           {"record-lineage", "take-full", "delete-backup", "sweep-uploads", "renew-backup-lease"},
		"a backup on demand":                {"answer-snapshot-order", "answer-snapshot-order:2"},
		"fragmented databases":              {"defragment"},
		"a full database":                   {"compact-history", "note-defragmentation", "disarm-no-space"},
		"a fragmented leader":               {"move-leader"},
		"users and roles":                   {"change-auth", "change-auth:5", "switch-auth", "report-auth"},
		"users and roles, and a password that is edited": {"change-auth:5", "switch-auth", "report-auth"},
		"a downgrade":                   {"announce-downgrade", "answer-upgrade"},
		"a downgrade taken back":        {"cancel-downgrade"},
		"peers that turn TLS on or off": {"update-peer-url", "identity-file-scheme", "order-start"},
	},
	crash.Druid: {
		"creation": {
			"adopt-spec", "create-record", "create-leader-lease", "create-member-lease", "create-claim", "create-pod",
			"apply-object", "mark-lease", "write-status",
		},
		"certificates": {"create-authority", "write-certificates", "write-certificates:2", "write-certificates:3"},
		// The status names the next authority, and the Secrets of both planes and of the client follow. The fourth and fifth write brings
		// certificates of the new authority, and the seventh removes the old one.
		"another certificate authority": {
			"create-authority", "write-certificates", "write-certificates:4", "write-certificates:5", "write-certificates:7", "write-status",
		},
		"certificates of cert-manager":     {"request-certificate", "request-certificate:2"},
		"service":                          {"apply-budget", "label-pod"},
		"growth":                           {"update-record", "create-pod"},
		"a record that learns its cluster": {"update-record"},
		"a record that comes back":         {"create-record"},
		"a lost label":                     {"restore-labels"},
		"a lost volume":                    {"delete-pod"},
		// The slot is taken, and then given up together with the name.
		"scale-down":                       {"update-record", "request-removal", "update-record:2", "delete-pod", "delete-claim", "delete-lease"},
		"scale-down that keeps the claims": {"retain-claim"},
		"scale-down that is taken back":    {"withdraw-removal", "update-record"},
		"claims that go with the cluster":  {"take-claim"},
		"claims that outlive the cluster":  {"release-claim"},
		"a cluster that joins":             {"hold-cluster"},
		"a deletion next to others":        {"update-record", "request-removal", "hold-cluster"},
		"a larger volume":                  {"grow-claim"},
		"backups that begin":               {"create-snapshot-lease"},
		"backups that end":                 {"delete-snapshot-lease"},
		// The third status reports the outcome of the first of two.
		"backups on demand": {
			"order-snapshot", "write-snapshot-status", "write-snapshot-status:3", "clear-snapshot-order", "delete-snapshot",
		},
		"a backup in its own store": {"create-snapshot-pod", "write-snapshot-status:2", "write-snapshot-status:3", "delete-snapshot-pod"},
		// It is held, and then let go.
		"a backup that goes along": {"hold-snapshot", "hold-snapshot:2"},
		"an edited spec":           {"adopt-spec", "delete-pod"},
		"an edited version":        {"adopt-spec", "create-snapshot", "order-upgrade"},
		// The order is written to prepare, and then to execute.
		"a restore in place": {
			"request-restore-plan", "label-pod", "create-snapshot", "order-snapshot", "update-record", "update-record:2", "write-status",
		},
		"a restore in place that is withdrawn": {"update-record", "request-restore-plan", "label-pod"},
		"a Pod that does not report its spec":  {"adopt-pod"},
		"another agent image":                  {"replace-agent"},
		"a stuck member":                       {"mark-healing", "delete-pod"},
		"a pause":                              {"label-pod", "delete-pod", "delete-object"},
	},
}

// Scenarios of a program with the points that end it in each.
func Scenarios(program crash.Program) map[string][]string {
	all := map[string][]string{}
	for name, calls := range scenarios[program] {
		for _, call := range calls {
			all[name] = append(all[name], "before-"+call, "after-"+call)
		}
	}
	return all
}

// interrupts says whether a scenario ends at one of the call's points.
func interrupts(scenario []string, call string) bool {
	return slices.ContainsFunc(scenario, func(listed string) bool { return callOf(listed) == call })
}

// callOf is what stands before the number of the passage.
func callOf(listed string) string {
	call, _, _ := strings.Cut(listed, ":")
	return call
}
