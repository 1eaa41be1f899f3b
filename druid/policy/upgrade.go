package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/leases"
)

// What a change of etcd's version rests on, as one bit per value.
type (
	// course is where the members are to go from what they run.
	course uint8
	// SaveState is the state of the full backup before the first step.
	SaveState uint8
	// check is the result of the comparison of the members by the leader's agent.
	check uint8
	// gate is what a change of version allows the rolling update to do.
	gate uint8
)

const (
	courseNone    course = 1 << iota // no other version is asked for, and no order stands
	courseDone                       // all Pods are of the version asked for, and the order to compare stands
	courseOn                         // to another patch, or to the next minor
	courseBack                       // to the minor before
	courseRefused                    // the rules of versions refuse it, or the raft group does
)

func (c course) String() string {
	return rules.Word(c, "none", "done", "on", "back", "refused")
}

// The states of the backup.
const (
	SaveUnasked SaveState = 1 << iota // the cluster is not backed up
	SaveAbsent                        // not requested yet
	SaveComing                        // it is made, or verified
	SaveDone
	SaveFailed
)

func (s SaveState) String() string {
	return rules.Word(s, "not asked for", "absent", "comes", "done", "failed")
}

const (
	checkNone   check = 1 << iota // not asked about these Pods
	checkAsked                    // it is not found out yet
	checkAgree                    // they hold the same
	checkDiffer                   // they do not
	checkEdit                     // it can be found out after an edit of the spec alone

	anyCheck = checkNone | checkAsked | checkAgree | checkDiffer | checkEdit
)

func (c check) String() string {
	return rules.Word(c, "none", "asked for", "agree", "differ", "await an edit")
}

const (
	gateOpen    gate = 1 << iota
	gateWaits        // for something that comes by itself
	gateClosed       // until an operator acts
	gateRefused      // for good: no member may go to that version
)

func (g gate) String() string {
	return rules.Word(g, "open", "waits", "closed", "refused")
}

// upgradeStep is the next step of a change of version.
type upgradeStep uint8

const (
	upgradeNothing upgradeStep = iota
	upgradeSave
	upgradeAsk
	upgradeEnd
)

func (u upgradeStep) String() string {
	return [...]string{"Nothing", "Save", "Compare", "End"}[u]
}

// The rules by which a change of version waits for the backup before its first step, and for an edit of the spec.
const (
	ruleBackupFirst = "backup-first"
	ruleBackupComes = "backup-comes"
	ruleAwaitsEdit  = "awaits-edit"
)

// upgradeVerdict is what a change of version allows for the Pods, and its next step.
type upgradeVerdict struct {
	gate gate        `fact:"gate"`
	step upgradeStep `fact:"step"`
}

// upgradeRows decide what a change of version waits for. begun: the record has the order for this version, so the
// backup was made and verified. ready: all members are up, so they can be compared.
var upgradeRows = rules.New(upgradeVerdict{gate: gateWaits}, []rules.Row[upgradeFacts, upgradeVerdict]{
	{Name: "version-stays", When: upgradeFacts{course: courseNone}, Verdict: upgradeVerdict{gateOpen, upgradeNothing},
		Why: "the change needs only a rolling update"},
	{Name: "version-refused", When: upgradeFacts{course: courseRefused}, Verdict: upgradeVerdict{gateRefused, upgradeNothing},
		Why: "etcd does not support the step from the version that a member runs"},
	{Name: "members-differ", When: upgradeFacts{course: courseDone | courseOn | courseBack, check: checkDiffer},
		Verdict: upgradeVerdict{gateClosed, upgradeNothing},
		Why:     "another step could lose data that only one of them has"},
	{Name: "backup-failed", When: upgradeFacts{course: courseOn | courseBack, begun: rules.No, saved: SaveFailed, check: anyCheck &^ checkDiffer},
		Verdict: upgradeVerdict{gateClosed, upgradeNothing},
		Why:     "without a verified backup you cannot go back"},
	{Name: ruleBackupFirst, When: upgradeFacts{course: courseOn | courseBack, begun: rules.No, saved: SaveAbsent, check: anyCheck &^ checkDiffer},
		Verdict: upgradeVerdict{gateWaits, upgradeSave},
		Why:     "druid takes and verifies a full backup before it changes the first member"},
	{Name: ruleBackupComes, When: upgradeFacts{course: courseOn | courseBack, begun: rules.No, saved: SaveComing, check: anyCheck &^ checkDiffer},
		Verdict: upgradeVerdict{gateWaits, upgradeNothing},
		Why:     "the backup is being created and verified"},
	{Name: "members-equal-last", When: upgradeFacts{course: courseDone, begun: rules.Yes, check: checkAgree}, Verdict: upgradeVerdict{gateOpen, upgradeEnd},
		Why: "all members run the version and have the same data"},
	{Name: "members-equal", When: upgradeFacts{course: courseOn | courseBack, check: checkAgree}, Verdict: upgradeVerdict{gateOpen, upgradeNothing},
		Why: "the next member can change"},
	{Name: ruleAwaitsEdit, When: upgradeFacts{course: courseOn, check: checkEdit}, Verdict: upgradeVerdict{gateClosed, upgradeNothing},
		Why: "the Pods are replaced for the edit first, with the version that they run"},
	{Name: "members-compared", When: upgradeFacts{check: checkAsked | checkEdit}, Verdict: upgradeVerdict{gateWaits, upgradeNothing},
		Why: "the leader's agent compares them"},
	{Name: "members-not-ready", When: upgradeFacts{ready: rules.No, check: checkNone | checkAgree}, Verdict: upgradeVerdict{gateWaits, upgradeNothing},
		Why: "only members that serve can be compared"},
	{Name: "compare-members", When: upgradeFacts{ready: rules.Yes, check: checkNone | checkAgree}, Verdict: upgradeVerdict{gateWaits, upgradeAsk},
		Why: "between two steps all members must have the same data"},
})

// upgradeFacts is the complete input of upgradeRows.
type upgradeFacts struct {
	course course
	begun  rules.YesNo `fact:"order stands"`
	saved  SaveState   `fact:"verified backup"`
	ready  rules.YesNo `fact:"all members serve"`
	check  check       `fact:"members"`
}

// upgrade is the decision of the policy.
type upgrade struct {
	upgradeVerdict

	facts upgradeFacts
	rule  string
	// refusal says why the course is refused.
	refusal string
}

func upgradeOf(d Desired, o Observed) upgrade {
	listed := o.listed()
	stands := o.Record.Upgrade.Order
	c, refusal := courseOf(d, o, listed)
	f := upgradeFacts{
		course: c, begun: rules.YesNoOf(stands.Nonce != "" && stands.Version == d.Version), saved: SaveUnasked,
		ready: rules.YesNoOf(allComparable(o, listed)), check: checkNone,
	}
	if d.Backup {
		f.saved = SaveAbsent
		if o.Save.State != 0 {
			f.saved = o.Save.State
		}
	}
	if order, ok := orderFor(d, o, listed, c); ok && stands == order {
		f.check = map[leases.UpgradeVerdict]check{
			leases.UpgradeAgree: checkAgree, leases.UpgradeDiffer: checkDiffer, leases.UpgradeAwaitsEdit: checkEdit,
		}[o.Record.Upgrade.Answer.Verdict]
		if f.check == 0 {
			f.check = checkAsked
		}
	}
	decision := upgradeRows.Decide(f)
	return upgrade{facts: f, upgradeVerdict: decision.Verdict, rule: decision.Rule, refusal: refusal}
}

// courseOf uses the versions that the members with outdated Pods run. A member that never reported its version is
// ignored.
func courseOf(d Desired, o Observed, listed []Member) (course, string) {
	found := courseNone
	if o.Record.Upgrade.Order.Nonce != "" {
		found = courseDone
	}
	target, known := versions.Parse(d.Version)
	if !known || o.RecordState != RecordFormed {
		return found, ""
	}
	for _, m := range listed {
		runs, reported := versions.Parse(cmp.Or(m.Reports.Version, d.Ran[m.Name]))
		if m.Make != MakeOutdated || !reported || runs == target {
			continue
		}
		if why := refusalOf(o, runs, target); why != "" {
			return courseRefused, fmt.Sprintf("member %s runs etcd %s, and %s is requested: %s", m.Name, runs, target, why)
		}
		if target.Minor < runs.Minor {
			found = courseBack
		} else if found != courseBack {
			found = courseOn
		}
	}
	return found, ""
}

// refusalOf returns why a member of the raft group cannot change from one release to another, or "".
func refusalOf(o Observed, runs, target versions.Version) string {
	if j := versions.JudgeStep(runs, target); j.Verdict == versions.Refused {
		return j.Why
	}
	// The log is judged by the leader's agent, which knows what its members keep of it.
	if j := versions.JudgeGroup(runs, target, o.Record.MaxLearners, 0); j.Verdict == versions.Refused {
		return j.Why
	}
	return ""
}

// allComparable reports whether each member is a voter that serves, and none joins or leaves.
func allComparable(o Observed, listed []Member) bool {
	for _, m := range listed {
		if ready, _ := m.steady(rules.No); ready != removalAllowed {
			return false
		}
	}
	return len(listed) > 0 && o.RecordState == RecordFormed && o.Record.PendingRemoval == nil && o.Record.Replacing == nil
}

// orderFor is the order to compare the members in their present state. It changes with each edit and with each
// replaced Pod.
func orderFor(d Desired, o Observed, listed []Member, c course) (leases.UpgradeOrder, bool) {
	target, known := versions.Parse(d.Version)
	if c&(courseDone|courseOn|courseBack) == 0 || !known {
		return leases.UpgradeOrder{}, false
	}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %d", d.Version, d.Generation) // a hash takes everything
	for _, m := range listed {
		_, _ = fmt.Fprintf(sum, " %s %s", m.Name, m.PodUID)
	}
	order := leases.UpgradeOrder{Nonce: hex.EncodeToString(sum.Sum(nil)[:8]), Version: d.Version}
	if c == courseBack {
		order.Downgrade = target.Line()
	}
	return order, o.RecordState == RecordFormed
}

// gateFor returns what the change of version allows for one member's Pod. If no etcd runs in it, or one that is down,
// there is nothing to compare. The Pod may then be replaced by one from the corrected spec, with the version that its
// member may start. Otherwise nothing would ever repair it.
//
// The Pod may also be replaced if the change waits for the backup, and only the new Pod has access to the store. The
// same applies if the members cannot be compared without the edit.
func (u upgrade) gateFor(m Member, d Desired, o Observed) gate {
	if u.rule == ruleAwaitsEdit && m.Remade == rules.Yes && u.startsAs(m.Name, d, o) != d.Version {
		return gateOpen
	}
	if u.awaitsBackup() && m.Remade == rules.Yes && slices.Contains(o.Unattached, m.Name) {
		return gateOpen
	}
	if podHealthOf(m, o)&(podHealthIdle|podHealthDown) != 0 && u.gate&(gateWaits|gateClosed) != 0 &&
		(m.Remade == rules.Yes || u.startsAs(m.Name, d, o) == d.Version) {
		return gateOpen
	}
	return u.gate
}

// awaitsBackup reports whether the change of version waits only for the backup before the first step.
func (u upgrade) awaitsBackup() bool {
	return u.rule == ruleBackupFirst || u.rule == ruleBackupComes
}

// NeedsSave reports whether druid must check for the backup before a change of version.
func NeedsSave(d Desired, o Observed) bool {
	u := upgradeOf(d, o)
	return d.Backup && u.facts.begun == rules.No && (u.facts.course&(courseOn|courseBack) != 0 || anyComesBack(d, o))
}

// anyComesBack reports whether a member that ran another version than the requested one has no Pod. courseOf ignores
// such a member, but the version of its next Pod depends on the backup. If druid read the backup only while the Pod
// exists, the Pod would return with the old version and be deleted again, permanently.
func anyComesBack(d Desired, o Observed) bool {
	target, known := versions.Parse(d.Version)
	for _, m := range o.listed() {
		runs, reported := versions.Parse(cmp.Or(m.Reports.Version, d.Ran[m.Name]))
		if known && reported && runs != target && m.Pod&(PodAbsent|PodEnded|PodTerminating) != 0 {
			return true
		}
	}
	return false
}
