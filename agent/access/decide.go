package access

import (
	"net/http"

	"github.com/etcd-druid/druid/internal/review"
	"github.com/etcd-druid/druid/internal/rules"
)

type (
	channel     uint8 // how the request came
	certificate uint8 // what the caller showed in the handshake
)

const (
	channelTLS   channel = 1 << iota
	channelLocal         // in plain text from the Pod's own loopback address, in a cluster without TLS of clients
	channelOpen          // in plain text otherwise
)

func (c channel) String() string { return rules.Word(c, "TLS", "loopback without TLS", "plain text") }

const (
	certificateNone    certificate = 1 << iota
	certificateAllowed             // signed by the authority of clients, with an allowed common name
	certificateOther               // signed by the authority of clients, with another common name
)

func (c certificate) String() string { return rules.Word(c, "none", "allowed", "of another client") }

// verdict is the status of the response; http.StatusOK lets the caller act.
type verdict int

func (v verdict) String() string { return http.StatusText(int(v)) }

// facts is the complete input of callers.
type facts struct {
	channel     channel
	certificate certificate
	token       review.Token
}

const allow verdict = http.StatusOK

// callers is the policy for requests to act. A certificate needs no Kubernetes API. Without TLS of clients, a token
// would be readable on the network, so only loopback remains: a forwarded port, for which the user needs a permission.
var callers = rules.New(verdict(http.StatusForbidden), []rules.Row[facts, verdict]{
	{
		Name: "plain-text", When: facts{channel: channelOpen}, Verdict: http.StatusForbidden,
		Why: "the connection is not secure: use HTTPS on the agent's port 8443, or without spec.tls.client a forwarded port 8080 (kubectl " +
			"port-forward), or create an EtcdSnapshot",
	},
	{
		Name: "certificate", When: facts{channel: channelTLS, certificate: certificateAllowed}, Verdict: allow,
		Why: "the caller has a certificate of this cluster that may act",
	},
	{Name: "token", When: facts{token: review.TokenAllowed}, Verdict: allow, Why: "Kubernetes says that the owner of the token may do this"},
	{
		Name: "token-denied", When: facts{token: review.TokenDenied}, Verdict: http.StatusForbidden,
		Why: "Kubernetes says that the owner of the token may not do this: grant the permission that this action needs",
	},
	{Name: "token-invalid", When: facts{token: review.TokenInvalid}, Verdict: http.StatusUnauthorized,
		Why: "Kubernetes does not accept the token: use one that has not ended"},
	{Name: "token-unknown", When: facts{token: review.TokenUnknown}, Verdict: http.StatusServiceUnavailable,
		Why: "the Kubernetes API did not check the token: try again, or use a certificate"},
	{Name: "token-not-checked", When: facts{token: review.TokenLimited}, Verdict: http.StatusTooManyRequests,
		Why: "too many tokens were checked: try again in a second"},
	{
		Name: "other-certificate", When: facts{channel: channelTLS, certificate: certificateOther}, Verdict: http.StatusForbidden,
		Why: "the certificate belongs to a client that may not act: set agentAPI for the client in spec.tls.client.clients, or send a token",
	},
	{
		Name: "no-credentials", Verdict: http.StatusUnauthorized,
		Why: "the caller is unknown: send a token of Kubernetes in the header Authorization, or show a client certificate of the cluster",
	},
})
