package access

import (
	"net/http"
	"testing"

	"github.com/etcd-druid/druid/internal/review"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

// TestAccessNeedsKnownSecureCaller: only known callers act over secure connections.
// Only a known caller acts, and only over a connection on which nothing else reads what it shows.
func TestAccessNeedsKnownSecureCaller(t *testing.T) {
	cases := rulestest.Check(t, callers, func(f facts, d rules.Decision[verdict]) string {
		switch {
		case d.Verdict != allow && d.Verdict < http.StatusBadRequest:
			return "a refusal has the status of a success"
		case d.Verdict != allow:
			return ""
		case f.channel == channelOpen:
			return "a caller acts over a connection that others can read"
		case f.token != review.TokenAllowed && (f.certificate != certificateAllowed || f.channel != channelTLS):
			return "a caller acts that is not known"
		default:
			return ""
		}
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "callers", "Who may have an agent act: agent/access.callers",
		"The agent checks a token only if the certificate does not already decide. An answer about a token is valid for 10 seconds.", callers, cases)
}
