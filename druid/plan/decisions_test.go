package plan

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/golden"
)

// Words of the facts, in the order of their bits, as docs/decisions.md prints them.
var (
	answerWords    = []string{"no", "yes"}
	recordWords    = []string{"absent", "foreign", "unreadable", "forming", "formed", "recovering"}
	leaseWords     = []string{"absent", "foreign", "ours"}
	claimWords     = []string{"absent", "foreign", "terminating", "present", "not wanted"}
	podWords       = []string{"absent", "foreign", "unscheduled", "unstarted", "live", "ended", "terminating"}
	evidenceWords  = []string{"none", "traces", "lease", "status"}
	namesWords     = []string{"none", "few", "right", "many"}
	saysWords      = []string{"voter", "other", "nothing"}
	healthWords    = []string{"up", "down", "unclear"}
	outlookWords   = []string{"quorum", "lost", "unclear"}
	progressWords  = []string{"none", "healing", "joining", "others remain", "others leave", "all leave the others"}
	hostsWords     = []string{"nobody", "others", "not known", "joining has begun", "never in it", "all left", "record foreign"}
	deletionWords  = []string{"no", "background", "foreground", "orphan"}
	guardWords     = map[Guard]string{GuardNothing: "Nothing", GuardHold: "Hold", GuardRelease: "Release", GuardWait: "Wait", GuardLeave: "Leave"}
	readinessWords = []string{"all", "not", "unknown"}
	shrinkingWords = []string{"none", "one leaves", "one is hindered"}
	restingWords   = []string{"none", "begins", "is hindered", "paused", "resumes"}
	makeWords      = []string{"not known", "current", "outdated", "unmarked"}
	shapeWords     = []string{"serves", "serves, agent silent", "learns", "is down", "runs no etcd", "is away", "not known yet"}
	othersWords    = []string{"ready", "coming", "not ready"}
	placeWords     = []string{"first", "later", "leader not known"}
	outdatedWords  = []string{"none", "are replaced", "are hindered", "change version", "are hindered to change version", "agents are replaced", "agents are hindered"}
	leapWords      = []string{"nothing", "patches", "the next minor", "the minor before", "refused"}
	courseWords    = []string{"none", "done", "on", "back", "refused"}
	saveWords      = []string{"not asked for", "absent", "comes", "done", "failed"}
	checkWords     = []string{"none", "asked for", "agree", "differ", "await an edit"}
	gateWords      = []string{"open", "waits", "closed", "refused"}
	upgradeWords   = map[upgradeStep]string{upgradeNothing: "Nothing", upgradeSave: "Save", upgradeAsk: "Compare", upgradeEnd: "End"}
	slotWords      = []string{"free", "replacing", "taken", "left behind"}
	markWords      = []string{"none", "unborn", "requested", "removing", "removing by another order", "done", "unknown"}
	wayWords       = []string{"free", "blocked", "unknown", "nobody to go", "backup fails"}
	toldWords      = []string{"good", "full failed", "deltas failed", "else"}
	strayWords     = []string{"none", "unborn", "removing", "other"}
	farewellWords  = []string{"nothing", "done", "unborn"}
	drainWords     = map[drain]string{
		drainNothing: "Nothing", drainWait: "Wait", drainBlocked: "Blocked", drainOpen: "TakeSlot", drainAsk: "Mark",
		drainTakeBack: "Unmark", drainClose: "FreeSlot", drainStrike: "Strike", drainUnborn: "MarkUnborn", drainDrop: "Strike",
	}
	strayVerdicts = map[verdict]string{keep: "Keep", wait: "Wait", create: "TakeSlot", remove: "Unmark"}
	livenessWords = map[leases.Liveness]string{leases.Live: "live", leases.Stale: "stale", leases.Never: "never", leases.Unknown: "unknown"}
	orderWords    = map[order]string{
		orderNothing: "Nothing", orderBirth: "Birth", orderRecreate: "Recreate", orderRestore: "Restore", orderGrow: "Grow",
		orderMoveSeed: "MoveSeed", orderRelist: "Relist",
	}
	verdictWords = map[verdict]string{
		keep: "Keep", wait: "Wait", conflict: "Conflict", held: "Held", create: "Create", remove: "Delete", mark: "Mark",
		change: "Replace",
	}
	labelWords = map[labelVerdict]string{labelKeep: "Keep", labelSet: "Set", labelClear: "Clear"}
)

// cell names the values that a row's cell holds, and is empty where it holds all.
func cell[T ~uint8](mask, all T, words []string) string {
	if mask == all {
		return ""
	}
	var held []string
	for i, value := range bits(all) {
		if mask&value != 0 {
			held = append(held, words[i])
		}
	}
	return strings.Join(held, ", ")
}

func answer(mask rules.YesNo) string { return cell(mask, anyAnswer, answerWords) }

func liveness(mask leases.Liveness) string {
	var words []string
	for _, l := range bits(anyLiveness) {
		words = append(words, livenessWords[l])
	}
	return cell(mask, anyLiveness, words)
}

// section writes a table into docs/decisions.md. The last of the facts' columns is followed by verdict and count.
func section(t *testing.T, name, title string, header []string, rows [][]string, count map[string]int) {
	t.Helper()
	for i, row := range rows {
		rows[i] = append(row, fmt.Sprint(count[row[0]]))
	}
	header = append(append([]string{"rule"}, header...), "cases")
	// Each in a test of its own: the lock on the document is held until a test ends.
	t.Run(name, func(t *testing.T) {
		golden.Section(t, "../../docs/decisions.md", name, "## "+title+"\n\n"+golden.Table(header, rows))
	})
}

func bold(word string) string { return "**" + word + "**" }

func renderRecords(t *testing.T, count map[string]int) {
	t.Helper()
	var rows [][]string
	for _, r := range records {
		rows = append(rows, []string{
			r.name, cell(r.record, anyRecord, recordWords), answer(r.known), cell(r.evidence, anyEvidence, evidenceWords),
			cell(r.names, anyNames, namesWords), answer(r.stuck), answer(r.lost), bold(orderWords[r.order]),
		})
	}
	section(t, "record", "The cluster record: druid/plan.records",
		[]string{"record", "names an ID", "evidence of an earlier life", "names against replicas", "seed stuck", "names taken out", "order"}, rows, count)
}

func renderMembers(t *testing.T, count map[string]int) {
	t.Helper()
	var leaseTable, claimTable, podTable [][]string
	for _, r := range leaseRows {
		leaseTable = append(leaseTable, []string{r.name, cell(r.lease, anyLease, leaseWords), bold(verdictWords[r.verdict])})
	}
	for _, r := range claimRows {
		claimTable = append(claimTable, []string{
			r.name, cell(r.claim, anyClaim, claimWords), cell(r.lease, anyLease, leaseWords), cell(r.pod, anyPod, podWords),
			answer(r.paused), bold(verdictWords[r.verdict]),
		})
	}
	for _, r := range podRows {
		podTable = append(podTable, []string{
			r.name, cell(r.pod, anyPod, podWords), cell(r.claim, anyClaim, claimWords), cell(r.lease, anyLease, leaseWords),
			answer(r.spare), answer(r.marked), answer(r.paused), bold(verdictWords[r.verdict]),
		})
	}
	section(t, "lease", "A member's Lease: druid/plan.leaseRows", []string{"Lease", "verdict"}, leaseTable, count)
	section(t, "claim", "A member's PersistentVolumeClaim: druid/plan.claimRows", []string{"claim", "Lease", "Pod", "paused", "verdict"}, claimTable, count)
	section(t, "pod", "A member's Pod: druid/plan.podRows",
		[]string{"Pod", "claim", "Lease", "the others are a quorum, and it is its turn", "the Lease names Pod and claim", "paused", "verdict"}, podTable, count)
}

func renderLabels(t *testing.T, serving, voter map[string]int) {
	t.Helper()
	var servingTable, voterTable [][]string
	for _, r := range servingRows {
		servingTable = append(servingTable, []string{
			r.name, answer(r.leaving), cell(r.says, anySays, saysWords), liveness(r.liveness), answer(r.formed), answer(r.etcdReady),
			answer(r.nodeLost), answer(r.obscure), bold(labelWords[r.verdict]),
		})
	}
	for _, r := range voterRows {
		voterTable = append(voterTable, []string{r.name, answer(r.out), cell(r.says, anySays, saysWords), liveness(r.liveness), bold(labelWords[r.verdict])})
	}
	section(t, "serving", "Which Pods clients are sent to: druid/plan.servingRows", []string{
		"leaving", "Lease says", "Lease is", "record says Formed", "etcd ready", "node lost", "half or more unknown", "label",
	}, servingTable, serving)
	section(t, "voter", "Which Pods the PodDisruptionBudget counts: druid/plan.voterRows",
		[]string{"acknowledged to be out", "Lease says", "Lease is", "label"}, voterTable, voter)
}

func renderRetirements(t *testing.T, count map[string]int) {
	t.Helper()
	var rows [][]string
	for _, r := range retirements {
		rows = append(rows, []string{
			r.name, cell(r.record, anyRecord, recordWords), answer(r.excess), cell(r.slot, anySlot, slotWords),
			cell(r.mark, anyMark, markWords), cell(r.way, anyWay, wayWords), answer(r.served), bold(drainWords[r.order]),
		})
	}
	section(t, "retirements", "A member that is to go: druid/plan.retirements",
		[]string{"record", "names too many", "slots", "mark", "the others", "clients sent to it", "order"}, rows, count)
}

func renderLeftovers(t *testing.T, strays, leftovers map[string]int) {
	t.Helper()
	var strayTable, leftoverTable [][]string
	for _, r := range strayRows {
		strayTable = append(strayTable, []string{
			r.name, cell(r.record, anyRecord, recordWords), cell(r.stray, anyStray, strayWords), cell(r.slot, anySlot, slotWords),
			answer(r.excess), bold(strayVerdicts[r.verdict]),
		})
	}
	for _, r := range leftoverRows {
		object := "Nothing"
		if r.object != "" {
			object = string(r.object)
		}
		leftoverTable = append(leftoverTable, []string{
			r.name, cell(r.farewell, anyFarewell, farewellWords), cell(r.pod, anyPod, podWords), cell(r.claim, anyClaim, claimWords),
			answer(r.retain), bold(object),
		})
	}
	section(t, "strays", "A mark on a listed member that no slot orders: druid/plan.strayRows",
		[]string{"record", "mark", "slots", "names too many", "verdict"}, strayTable, strays)
	section(t, "leftovers", "What a name leaves that the record does not list: druid/plan.leftoverRows",
		[]string{"Lease says", "Pod", "claim", "claims retained", "step"}, leftoverTable, leftovers)
}

func renderMemberStatus(t *testing.T, count map[string]int) {
	t.Helper()
	var rows [][]string
	for _, r := range memberRows {
		rows = append(rows, []string{
			r.name, answer(r.paused), cell(r.health, anyHealth, healthWords), answer(r.learner), liveness(r.liveness), answer(r.expired),
			answer(r.before), bold(string(r.state)), r.reason,
		})
	}
	section(t, "member-status", "The status of a member: druid/plan.memberRows",
		[]string{"paused", "etcd", "learner", "Lease is", "grace over", "ready before", "status", "reason"}, rows, count)
}

func renderConditions(t *testing.T, count map[string]int) {
	t.Helper()
	var rows [][]string
	for _, r := range conditionRows {
		reason := r.reason
		if r.kind == v1alpha1.ConditionDegraded && r.status == metav1.ConditionTrue {
			reason = "that of the gravest problem"
		}
		rows = append(rows, []string{
			r.name, r.kind, cell(r.record, anyRecord, recordWords), answer(r.formed), cell(r.outlook, anyOutlook, outlookWords),
			cell(r.progress, anyProgress, progressWords), cell(r.readiness, anyReadiness, readinessWords),
			cell(r.shrinking, anyShrinking, shrinkingWords), cell(r.rolling, anyRolling, outdatedWords), cell(r.resting, anyResting, restingWords), answer(r.problem), bold(string(r.status)), reason,
		})
	}
	section(t, "conditions", "The conditions: druid/plan.conditionRows", []string{
		"condition", "record", "ever formed", "voters", "under way", "members ready", "names too many", "outdated Pods", "pause", "problem", "status", "reason",
	}, rows, count)
}

func renderBackups(t *testing.T, count map[string]int) {
	t.Helper()
	var rows [][]string
	for _, r := range backupRows {
		rows = append(rows, []string{
			r.name, answer(r.paused), liveness(r.full), liveness(r.delta), answer(r.fullFailed), answer(r.deltaFailed), answer(r.attached),
			answer(r.valid), answer(r.superseded), cell(r.told, anyTold, toldWords), bold(string(r.status)), r.reason,
		})
	}
	section(t, "backup", "The condition BackupReady: druid/plan.backupRows", []string{
		"paused", "full Lease is", "delta Lease is", "error of full", "error of delta", "all Pods have the store", "spec is valid", "superseded", "told before",
		"status", "reason",
	}, rows, count)
}
