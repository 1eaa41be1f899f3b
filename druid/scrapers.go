package druid

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/etcd-druid/druid/internal/review"
	"github.com/etcd-druid/druid/internal/rules"
)

// status is that of the response; http.StatusOK lets the caller read the metrics.
type status int

func (s status) String() string { return http.StatusText(int(s)) }

// scraper is what druid knows of a caller that asks for the metrics over HTTPS.
type scraper struct {
	token review.Token
}

// scrapers is the policy for --metrics-secure.
var scrapers = rules.New(status(http.StatusUnauthorized), []rules.Row[scraper, status]{
	{Name: "token", When: scraper{review.TokenAllowed}, Verdict: http.StatusOK, Why: "Kubernetes says that the owner of the token may get /metrics"},
	{
		Name: "token-denied", When: scraper{review.TokenDenied}, Verdict: http.StatusForbidden,
		Why: "Kubernetes says that the owner of the token may not get /metrics: bind a ClusterRole with the verb get on the nonResourceURL /metrics",
	},
	{Name: "token-unknown", When: scraper{review.TokenUnknown}, Verdict: http.StatusServiceUnavailable,
		Why: "the Kubernetes API did not check the token: try again"},
	{Name: "token-not-checked", When: scraper{review.TokenLimited}, Verdict: http.StatusTooManyRequests,
		Why: "too many tokens were checked: try again in a second"},
	{Name: "token-invalid", When: scraper{review.TokenInvalid}, Verdict: http.StatusUnauthorized,
		Why: "Kubernetes does not accept the token: use one that has not ended"},
	{Name: "no-token", Verdict: http.StatusUnauthorized, Why: "the caller is unknown: send a token of Kubernetes in the header Authorization"},
})

// scrapersOnly lets only callers read the metrics that Kubernetes permits it. The filter of controller-runtime does the same with a
// permission for druid to check all tokens, and links the expression language of the API server.
func scrapersOnly(log *slog.Logger) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(config *rest.Config, _ *http.Client) (metricsserver.Filter, error) {
		reviewer, err := review.New(config)
		if err != nil {
			return nil, fmt.Errorf("check callers of the metrics: %w", err)
		}
		return func(_ logr.Logger, next http.Handler) (http.Handler, error) {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				decision := scrapers.Decide(scraper{tokenOf(reviewer, r, log)})
				if decision.Verdict == http.StatusOK {
					next.ServeHTTP(w, r)
					return
				}
				if decision.Verdict == http.StatusUnauthorized {
					w.Header().Set("WWW-Authenticate", "Bearer")
				}
				http.Error(w, decision.Why, int(decision.Verdict))
			}), nil
		}, nil
	}
}

func tokenOf(reviewer *review.Reviewer, r *http.Request, log *slog.Logger) review.Token {
	bearer := review.BearerOf(r)
	if bearer == "" {
		return review.TokenNone
	}
	token, err := reviewer.Review(r.Context(), bearer, review.Needs{Verb: "get", Path: r.URL.Path})
	if err != nil {
		log.WarnContext(r.Context(), "token of a caller not checked", "err", err)
	}
	return token
}
