package view

import (
	_ "embed"
	"strings"
)

// startRules has the rules by which an agent starts etcd, each in a line with its section of docs/reference/decisions.md and its reason. A
// test of agent/start writes it, because that package links etcd.
//
//go:embed startrules.txt
var startRules string

// decisions is the page with the tables, and startTable its heading for the start of etcd.
const (
	decisions  = docs + "reference/decisions.md#"
	startTable = decisions + "how-a-member-starts-agentstartstartrules"
)

// rule is a row of a table of decisions.
type rule struct{ section, why string }

// known are the rules of a start of etcd and of the state of a cluster, by their names.
var known = func() map[string]rule {
	all := map[string]rule{}
	for line := range strings.Lines(startRules) {
		section, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, why, _ := strings.Cut(rest, " ")
		all[name] = rule{section, why}
	}
	for _, r := range headlines.Rows() {
		all[r.Name] = rule{"headlines", r.Why}
	}
	return all
}()

// RuleDocs is the row of the rule that decided the state of a cluster, or the start of etcd in a member. A rule without a row is one that an
// agent of another version has, or one that holds before the agent uses its table: the link is the table of the starts.
func RuleDocs(name string) string {
	if r, ok := known[name]; ok {
		return decisions + r.section + "-" + name
	}
	return startTable
}

// RuleWhy is the reason of the last decision of the agent about the start of etcd. It is empty for a rule that is not known.
func (m Member) RuleWhy() string { return known[m.Rule].why }
