package access

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/internal/review"
)

const (
	// actionsPerSecond and actionBurst limit what callers have the agent do. Each action takes seconds.
	actionsPerSecond, actionBurst = 1, 5
	// maxBody is more than any request to act has.
	maxBody = 1 << 10
)

// Options of an Access.
type Options struct {
	// Kubernetes is where tokens are checked. Credentials in it are not used.
	Kubernetes *rest.Config
	// Secure says whether clients of the cluster connect with TLS.
	Secure bool
	// Names returns the common names of the certificates that may act now.
	Names func() []string
	Log   *slog.Logger
	// Refuse writes a refusal.
	Refuse func(w http.ResponseWriter, r *http.Request, code int, why string)
}

// Access decides who may act.
type Access struct {
	Options
	reviewer *review.Reviewer
	limit    *rate.Limiter
}

// New returns an Access. It connects to nothing.
func New(o Options) (*Access, error) {
	reviewer, err := review.New(o.Kubernetes)
	if err != nil {
		return nil, err
	}
	return &Access{Options: o, reviewer: reviewer, limit: rate.NewLimiter(actionsPerSecond, actionBurst)}, nil
}

// Guard lets only callers that may act reach next, with a small body.
func (a *Access) Guard(needs review.Needs, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		decision, caller := a.decide(r.Context(), r, needs)
		if decision.Verdict != allow {
			w.Header().Set("Connection", "close") // a refused caller keeps no connection
			if decision.Verdict == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			a.Refuse(w, r, int(decision.Verdict), decision.Why)
			return
		}
		if !a.limit.Allow() {
			a.Refuse(w, r, http.StatusTooManyRequests, "too many requests: try again in a second")
			return
		}
		r.Header.Del("Authorization") // next needs no token, and so cannot pass it on
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		a.Log.InfoContext(r.Context(), "request to act accepted", "path", r.URL.Path, "rule", decision.Rule, "caller", caller, "from", r.RemoteAddr)
		next(w, r)
	}
}

// decide observes the request. caller is the common name of the certificate, or the kind of credential.
func (a *Access) decide(ctx context.Context, r *http.Request, needs review.Needs) (decision, string) {
	f := facts{channel: a.channel(r), certificate: certificateNone, token: review.TokenNone}
	caller := "token"
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		name := r.TLS.VerifiedChains[0][0].Subject.CommonName
		f.certificate, caller = certificateOther, name
		if name != "" && slices.Contains(a.Names(), name) {
			f.certificate = certificateAllowed
		}
	}
	bearer := review.BearerOf(r)
	if bearer != "" && f.channel != channelOpen && f.certificate != certificateAllowed {
		var err error
		if f.token, err = a.reviewer.Review(ctx, bearer, needs); err != nil {
			a.Log.WarnContext(ctx, "token of a caller not checked", "err", err)
		}
		if f.token == review.TokenAllowed {
			caller = "token"
		}
	}
	d := callers.Decide(f)
	why := d.Why
	if d.Rule == "token-denied" {
		why = fmt.Sprintf("%s: %s", why, needs)
	}
	return decision{d.Verdict, d.Rule, why}, caller
}

type decision struct {
	Verdict   verdict
	Rule, Why string
}

func (a *Access) channel(r *http.Request) channel {
	switch {
	case r.TLS != nil:
		return channelTLS
	case !a.Secure && local(r.RemoteAddr):
		return channelLocal
	default:
		return channelOpen
	}
}

// local reports whether a connection comes from the Pod's own network namespace. An address that cannot be parsed does
// not.
func local(remote string) bool {
	from, err := netip.ParseAddrPort(remote)
	return err == nil && from.Addr().Unmap().IsLoopback()
}
