package plan

import (
	"fmt"

	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/leases"
)

// Save is the EtcdSnapshot that is made before a change of version.
type Save struct {
	// State is 0 where no one looked.
	State SaveState
	// Name of the EtcdSnapshot, and what its status says.
	Name, Message string
}

// upgradeSteps do the next thing for a change of version: none towards one whose deadline has passed.
func upgradeSteps(d Desired, o Observed, add func(Step)) {
	u := upgradeOf(d, o)
	if d.Expired && u.facts.course&(courseOn|courseBack) != 0 {
		return
	}
	switch u.step {
	case upgradeSave:
		if len(o.Unattached) > 0 {
			return // no one could make it yet: see gateFor
		}
		add(Step{Kind: CreateSnapshot, Rule: u.rule, Stage: StageMarks, Object: o.Save.Name})
	case upgradeAsk:
		order, _ := orderFor(d, o, o.listed(), u.facts.course)
		add(Step{Kind: OrderUpgrade, Rule: u.rule, Stage: StageMarks, Object: order.Nonce, Order: &order})
	case upgradeEnd:
		add(Step{Kind: EndUpgrade, Rule: u.rule, Stage: StageMarks, Object: o.Record.Upgrade.Order.Nonce, Order: &leases.UpgradeOrder{}})
	case upgradeNothing:
	}
}

// upgradeHindrance says in words what a change of version waits for.
func upgradeHindrance(u upgrade, d Desired, o Observed) string {
	switch u.rule {
	case "version-refused":
		return u.refusal
	case "members-differ":
		return "the members do not hold the same data: " + o.Record.Upgrade.Answer.Why + "; no Pod is replaced before you change the spec. docs/how-to/run/upgrade-etcd.md shows how to find the wrong member"
	case "backup-failed":
		return fmt.Sprintf("EtcdSnapshot %s, the verified backup before the first step, failed: %s. Resolve that, and delete the EtcdSnapshot to try again", o.Save.Name, o.Save.Message)
	case ruleBackupFirst, ruleBackupComes:
		return fmt.Sprintf("EtcdSnapshot %s is made and verified before the first member changes to %s", o.Save.Name, d.Version)
	case ruleAwaitsEdit:
		return o.Record.Upgrade.Answer.Why + "; Pods get that change before the version"
	case "members-compared", "compare-members":
		words := "the members are compared"
		if why := o.Record.Upgrade.Answer.Why; why != "" && u.rule == "members-compared" {
			words += ", and it is not known yet whether they hold the same data: " + why
		}
		return words
	case "members-not-ready":
		return "the members are compared when all of them serve"
	default:
		return ""
	}
}

// running counts the members that run the version that is asked for.
func (p picture) running() int {
	n := 0
	for _, m := range p.listed() {
		if m.Says.Version == p.Version && m.up() && m.Make != MakeOutdated {
			n++
		}
	}
	return n
}

// upgradingWords report how far a change of version is, and what it waits for.
func upgradingWords(p picture) string {
	r := rolloutOf(p.Desired, p.Observed)
	verb := "run"
	if p.running() == 1 {
		verb = "runs"
	}
	words := fmt.Sprintf("%d of %s %s etcd %s: ", p.running(), count(len(p.listed())), verb, p.Version)
	switch {
	case r.next != "" && !p.Backup:
		return words + "member " + r.next + " is started again; no backup was made before, because spec.backup is not set"
	case r.next != "":
		return words + "member " + r.next + " is started again"
	case r.sum == rollingUpgradeBlocked:
		return words + "no other Pod is replaced, because " + p.inFull(r.hindrance)
	default:
		return words + r.hindrance
	}
}

// KnownBug says what is known of a release that members run, and is empty where that is nothing.
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
