package policy

import (
	"cmp"
	"fmt"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/leases"
)

// Save is the EtcdSnapshot before a change of version.
type Save struct {
	// State is 0 where druid did not look.
	State SaveState
	// Name of the EtcdSnapshot, and the message in its status.
	Name, Message string
}

// upgradeSteps return the next step of a change of version, and none if its deadline has passed.
func upgradeSteps(e Evaluation, add func(Step)) {
	u := e.upgrade
	if e.Expired && u.facts.course&(courseOn|courseBack) != 0 {
		return
	}
	switch u.step {
	case upgradeSave:
		if len(e.Unattached) > 0 {
			return // it cannot be made yet: see gateFor
		}
		add(Step{Kind: CreateSnapshot, Rule: u.rule, Stage: StageMarks, Object: e.Save.Name})
	case upgradeAsk:
		order, _ := orderFor(e.Desired, e.Observed, e.listed, u.facts.course)
		add(Step{Kind: OrderUpgrade, Rule: u.rule, Stage: StageMarks, Object: order.Nonce, Order: &order})
	case upgradeEnd:
		add(Step{Kind: EndUpgrade, Rule: u.rule, Stage: StageMarks, Object: e.Record.Upgrade.Order.Nonce, Order: &leases.UpgradeOrder{}})
	case upgradeNothing:
	}
}

// upgradeHindrance says what a change of version waits for.
func upgradeHindrance(e Evaluation) string {
	switch e.upgrade.rule {
	case "version-refused":
		return e.upgrade.refusal
	case "members-differ":
		return "the members do not have the same data: " + e.Record.Upgrade.Answer.Why +
			". No Pod is replaced until you change the spec. docs/how-to/run/upgrade-etcd.md shows how to find the wrong member"
	case "backup-failed":
		return fmt.Sprintf("EtcdSnapshot %s, the verified backup before the first step, failed: %s. Resolve that, and delete the EtcdSnapshot to try again",
			e.Save.Name, e.Save.Message)
	case ruleBackupFirst, ruleBackupComes:
		return fmt.Sprintf("EtcdSnapshot %s is made and verified before the first member changes to %s", e.Save.Name, e.Version)
	case ruleAwaitsEdit:
		return e.Record.Upgrade.Answer.Why + ". Pods get that change before the new version"
	case "members-compared", "compare-members":
		words := "the members are compared"
		if why := e.Record.Upgrade.Answer.Why; why != "" && e.upgrade.rule == "members-compared" {
			words += ", and it is not known yet whether they have the same data: " + why
		}
		return words
	case "members-not-ready":
		return "the members are compared when all of them serve"
	default:
		return ""
	}
}

// running counts the members that run the requested version.
func (p messageContext) running() int {
	n := 0
	for _, m := range p.listed {
		if m.Reports.Version == p.Version && m.up() && m.Make != MakeOutdated {
			n++
		}
	}
	return n
}

// upgradingMessage reports how many members run the new version, and what the change waits for.
func upgradingMessage(p messageContext) string {
	r := p.rollout
	verb := "run"
	if p.running() == 1 {
		verb = "runs"
	}
	words := fmt.Sprintf("%d of %s %s etcd %s: ", p.running(), count(len(p.listed)), verb, p.Version)
	switch {
	case r.next != "" && !p.Backup:
		return words + "member " + r.next + " is being restarted. No backup was made before, because spec.backup is not set"
	case r.next != "":
		return words + "member " + r.next + " is being restarted"
	case r.sum == rollingUpgradeBlocked:
		return words + "no other Pod is replaced, because " + p.inFull(r.hindrance)
	default:
		return words + r.hindrance
	}
}

// KnownBug returns a known bug of the release, or "".
func KnownBug(version string) string {
	v, ok := versions.Parse(version)
	if !ok {
		return ""
	}
	if j := versions.JudgeRelease(v); j.Verdict == versions.Warned {
		return fmt.Sprintf("etcd %s has a known bug: %s", v, j.Why)
	}
	return ""
}

// versionStep is the step from the version that a member ran to the requested one.
type versionStep uint8

const (
	versionStepNone    versionStep = 1 << iota // nothing, or it is not known what it ran
	versionStepPatch                           // patches: formats of log and storage are the same
	versionStepMinor                           // to the next minor
	versionStepBack                            // to the minor before
	versionStepRefused                         // the rules of versions refuse it, to it or to another member
)

func (l versionStep) String() string {
	return rules.Word(l, "nothing", "patches", "the next minor", "the minor before", "refused")
}

// startVerdict is the version with which a Pod starts.
type startVerdict string

const (
	startsAsItWas startVerdict = "as it was"
	startsAsAsked startVerdict = "as asked for"
)

// startRows decide whether a new Pod gets the version of the spec or the one that its member ran. They apply to Pods
// that a rolling update does not replace: after an eviction, a pause or the loss of a node, or if no etcd runs in the
// Pod.
var startRows = rules.New(startsAsItWas, []rules.Row[startFacts, startVerdict]{
	{Name: "start-same", When: startFacts{versionStep: versionStepNone}, Verdict: startsAsAsked,
		Why: "the version does not change"},
	{Name: "start-refused", When: startFacts{versionStep: versionStepRefused}, Verdict: startsAsItWas,
		Why: "etcd does not support the step from the version that a member runs"},
	{Name: "start-patch", When: startFacts{versionStep: versionStepPatch, saved: rules.Yes}, Verdict: startsAsAsked,
		Why: "patch versions share the formats of storage and log, and another patch version might repair a member that is down"},
	{Name: "start-patch-unsaved", When: startFacts{versionStep: versionStepPatch, saved: rules.No}, Verdict: startsAsItWas,
		Why: "without a backup you cannot go back"},
	{Name: "start-agreed", When: startFacts{versionStep: versionStepMinor | versionStepBack, agreed: rules.Yes}, Verdict: startsAsAsked,
		Why: "all members have the same data, their logs can be read, and etcd allows the change: the first member can change"},
	{Name: "start-reached", When: startFacts{versionStep: versionStepMinor, agreed: rules.No, reached: rules.Yes}, Verdict: startsAsAsked,
		Why: "another member changed before, so the members were compared and their old logs are no longer needed"},
	{Name: "start-uncompared", When: startFacts{versionStep: versionStepMinor | versionStepBack, agreed: rules.No}, Verdict: startsAsItWas,
		Why: "the first member changes to another minor version after all members are compared; before that, it could not read a log or would not be accepted"},
})

// startFacts is the complete input of startRows.
type startFacts struct {
	versionStep versionStep `fact:"from what the member ran"`
	agreed      rules.YesNo `fact:"members agreed on that minor"`       // the order that stands was answered by Agree, and leads to that minor
	reached     rules.YesNo `fact:"another runs it"`                    // another member runs that minor
	saved       rules.YesNo `fact:"verified backup, or none asked for"` // there is a verified backup, or none is asked for
}

// StartsAs returns the version of etcd for a new Pod of the member. It is that of the spec, unless the member ran
// another version and may not change yet. Then the Pod keeps the old version and is replaced in its turn. So a Pod
// that was evicted, or deleted for a pause, does not bypass what a change of version waits for.
func StartsAs(name string, d Desired, o Observed) string {
	return upgradeOf(d, o).startsAs(name, d, o)
}

func (u upgrade) startsAs(name string, d Desired, o Observed) string {
	target, known := versions.Parse(d.Version)
	runs, reported := ranBy(name, target, d, o)
	if !reported || !known || o.RecordState != RecordFormed {
		return d.Version
	}
	if startRows.Decide(u.startFacts(name, runs, target, o)).Verdict == startsAsAsked {
		return d.Version
	}
	return runs.String()
}

// ranBy returns the version that the member ran. A member that never ran joins with the version of another member that
// has not changed yet, because it receives their log.
func ranBy(name string, target versions.Version, d Desired, o Observed) (versions.Version, bool) {
	m, _ := o.member(name)
	if runs, reported := versions.Parse(cmp.Or(m.Reports.Version, d.Ran[name])); reported {
		return runs, true
	}
	for _, other := range o.listed() {
		if runs, reported := versions.Parse(other.Reports.Version); reported && runs != target {
			return runs, true
		}
	}
	return versions.Version{}, false
}

func (u upgrade) startFacts(name string, runs, target versions.Version, o Observed) startFacts {
	stands := o.Record.Upgrade
	f := startFacts{
		versionStep: versionStepOf(runs, target),
		agreed:      rules.YesNoOf(stands.Answer.Verdict == leases.UpgradeAgree && leadsTo(stands.Order, runs, target)),
		reached:     rules.YesNoOf(minorReached(name, target, o)),
		saved:       rules.YesNoOf(stands.Order.Nonce != "" || u.facts.saved&(SaveUnasked|SaveDone) != 0),
	}
	if u.gate == gateRefused || refusalOf(o, runs, target) != "" {
		f.versionStep = versionStepRefused
	}
	return f
}

// leadsTo reports whether an order was for the minor of target, from what the member runs. Its patch is ignored,
// because it can have been corrected since.
func leadsTo(order leases.UpgradeOrder, runs, target versions.Version) bool {
	back := ""
	if target.Minor < runs.Minor {
		back = target.Line()
	}
	to, known := versions.Parse(order.Version)
	return known && to.Minor == target.Minor && order.Downgrade == back
}

func versionStepOf(runs, target versions.Version) versionStep {
	switch {
	case runs == target:
		return versionStepNone
	case runs.Minor == target.Minor:
		return versionStepPatch
	case runs.Minor < target.Minor:
		return versionStepMinor
	default:
		return versionStepBack
	}
}

func minorReached(name string, target versions.Version, o Observed) bool {
	for _, other := range o.listed() {
		if v, reported := versions.Parse(other.Reports.Version); reported && other.Name != name && v.Minor == target.Minor {
			return true
		}
	}
	return false
}
