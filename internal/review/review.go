package review

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

const (
	// reviewTimeout bounds one question. A healthy API server answers in a millisecond.
	reviewTimeout = 5 * time.Second
	// Remember is how long an answer is valid: a caller that polls costs the API server one question in it, and a
	// permission that was taken away ends within it.
	Remember = 10 * time.Second
	// reviewsPerSecond and reviewBurst limit the questions, so that a flood of invented tokens does not reach the API
	// server.
	reviewsPerSecond, reviewBurst = 5, 20
	// maxRemembered bounds the memory of answers. The limit above fills a tenth of it while an answer is valid.
	maxRemembered = 1024
)

// Reviewer asks the Kubernetes API what the owner of a token may do.
type Reviewer struct {
	kubernetes rest.Interface
	limit      *rate.Limiter
	now        func() time.Time

	mu      sync.Mutex
	answers map[[sha256.Size]byte]answer
}

type answer struct {
	token Token
	until time.Time
}

// New returns a Reviewer that has no credentials of its own: each question carries the caller's.
func New(config *rest.Config) (*Reviewer, error) {
	scheme := runtime.NewScheme()
	if err := authorizationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register access reviews: %w", err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c := rest.AnonymousClientConfig(config)
	c.GroupVersion, c.APIPath = &authorizationv1.SchemeGroupVersion, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentConfig.ContentType, c.ContentConfig.AcceptContentTypes = "", ""
	c.QPS = -1
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	own := *client // without TLS and credentials, it is the default client of the process
	client = &own
	// A redirect would carry the token to where the answer says.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	kubernetes, err := rest.RESTClientForConfigAndClient(c, client)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	return &Reviewer{
		kubernetes: kubernetes, limit: rate.NewLimiter(reviewsPerSecond, reviewBurst), now: time.Now,
		answers: map[[sha256.Size]byte]answer{},
	}, nil
}

// Review says what Kubernetes answers about the owner of the token. It keeps only a hash of the token.
func (r *Reviewer) Review(ctx context.Context, bearer string, needs Needs) (Token, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%q %q", needs, bearer))
	if known, ok := r.remembered(key); ok {
		return known, nil
	}
	if !r.limit.Allow() {
		return TokenLimited, nil
	}
	found, err := r.ask(ctx, bearer, needs)
	if found != TokenUnknown {
		r.keep(key, found)
	}
	return found, err
}

func (r *Reviewer) ask(ctx context.Context, bearer string, needs Needs) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	question := &authorizationv1.SelfSubjectAccessReview{Spec: needs.spec()}
	var review authorizationv1.SelfSubjectAccessReview
	err := r.kubernetes.Post().Resource("selfsubjectaccessreviews").SetHeader("Authorization", "Bearer "+bearer).Body(question).Do(ctx).Into(&review)
	switch {
	case apierrors.IsUnauthorized(err):
		return TokenInvalid, nil
	case apierrors.IsForbidden(err): // a user who may not even ask
		return TokenDenied, nil
	case err != nil:
		return TokenUnknown, fmt.Errorf("ask Kubernetes what the caller may do: %w", err)
	case review.Status.Allowed && !review.Status.Denied:
		return TokenAllowed, nil
	default:
		return TokenDenied, nil
	}
}

func (n Needs) spec() authorizationv1.SelfSubjectAccessReviewSpec {
	if n.Path != "" {
		return authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: n.Path, Verb: n.Verb}}
	}
	return authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: n.Verb, Group: n.Group, Resource: n.Resource, Namespace: n.Namespace, Name: n.Name,
	}}
}

func (r *Reviewer) remembered(key [sha256.Size]byte) (Token, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.answers[key]
	return known.token, ok && r.now().Before(known.until)
}

func (r *Reviewer) keep(key [sha256.Size]byte, found Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	maps.DeleteFunc(r.answers, func(_ [sha256.Size]byte, a answer) bool { return !now.Before(a.until) })
	if len(r.answers) < maxRemembered {
		r.answers[key] = answer{found, now.Add(Remember)}
	}
}
