package duties

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

// TestAuthSwitchSafeForAllFacts: authentication is switched safely for all facts.
func TestAuthSwitchSafeForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, authRules, func(f authFacts, d authDecision) string {
		acts := d.Verdict == authProvision || d.Verdict == authEnable || d.Verdict == authDisable
		switch {
		case acts && (f.Authoritative != rules.Yes || f.Admitted != rules.Yes || f.Current != rules.Yes):
			return "acts on a record, on an answer or on a configuration that is not certain"
		case acts && f.Mode == AuthUnmanaged:
			return "changes what is not configured"
		case d.Verdict == authEnable && (f.Mode != AuthOn || f.Certified != rules.Yes):
			return "locks an agent out"
		case d.Verdict == authEnable && (f.Equal != rules.Yes || f.Complete != rules.Yes):
			return "locks a client out whose user does not exist yet"
		case d.Verdict == authEnable && f.Enabled != rules.No, d.Verdict == authDisable && f.Enabled != rules.Yes:
			return "switches what is so, or is unknown"
		case d.Verdict == authDisable && f.Mode != AuthOff:
			return "turns authentication off although it is wanted"
		case d.Verdict == authProvision && f.Equal != rules.No:
			return "writes what is equal"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "auth", "Authentication in etcd: "+authTable,
		"Asked by the leader's agent when the configuration changed, and each 30 s.", authRules, cases)
}
