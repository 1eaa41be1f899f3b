package start

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestTheSchemeOfPeersIsSafeForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, schemeRows, func(f schemeFacts, d rules.Decision[schemeVerdict]) string {
		switch v := d.Verdict; {
		case v == schemeUpdate && f.listing != peerVoter:
			return "the URL of a learner is changed, or without a quorum"
		case v&(schemeUpdate|schemeSwitch) != 0 && f.lease != rules.Yes:
			return "a Pod that the Lease does not name changes how peers connect"
		case v == schemeSwitch && (f.listing != peerNoQuorum || f.few != rules.Yes):
			return "it listens otherwise than the others connect, although they can change the list first"
		case v != schemeRefuse && f.able == rules.No:
			return "it listens with TLS without certificates"
		case v&(schemeUpdate|schemeSwitch) != 0 && f.differs == rules.No:
			return "it changes what is as it should be"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "schemes", "How a member listens to its peers: agent/start.schemeRows",
		"The agent uses this table before a member resumes its data, so that TLS of peers can be turned on and off.", schemeRows, cases)
}
