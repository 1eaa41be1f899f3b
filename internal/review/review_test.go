package review

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

var snapshots = rbacv1.PolicyRule{APIGroups: []string{"etcd.druid.dev"}, Resources: []string{"etcdsnapshots"}, Verbs: []string{"create"}}

func needs(namespace string) Needs {
	return Needs{Verb: "create", Group: "etcd.druid.dev", Resource: "etcdsnapshots", Namespace: namespace}
}

func newReviewer(t *testing.T, config *rest.Config) *Reviewer {
	t.Helper()
	r, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Reviewer) answerTo(t *testing.T, bearer string, needs Needs) Token {
	t.Helper()
	found, err := r.Review(t.Context(), bearer, needs)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What is known of a token is valid for ten seconds at most.
func TestAPermissionThatWasTakenAwayEndsSoon(t *testing.T) {
	admin := env.APIServer(t)
	here := env.Namespace(t, admin)
	good := env.Token(t, admin, here, "caller", snapshots)
	r := newReviewer(t, admin)
	now := time.Now()
	r.now = func() time.Time { return now }
	if got := r.answerTo(t, good, needs(here)); got != TokenAllowed {
		t.Fatalf("the token is %s", got)
	}
	if err := kubernetes.NewForConfigOrDie(admin).RbacV1().RoleBindings(here).Delete(t.Context(), "caller", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deadline, pause := time.Now().Add(time.Minute), time.NewTicker(20*time.Millisecond)
	defer pause.Stop()
	for newReviewer(t, admin).answerTo(t, good, needs(here)) != TokenDenied { // the API server learns of it by a watch
		if time.Now().After(deadline) {
			t.Fatal("the API server still allows it")
		}
		<-pause.C
	}
	if got := r.answerTo(t, good, needs(here)); got != TokenAllowed {
		t.Errorf("the answer was not remembered: the token is %s", got)
	}
	now = now.Add(Remember)
	if got := r.answerTo(t, good, needs(here)); got != TokenDenied {
		t.Errorf("the token is %s after the answer ended, want denied", got)
	}
}

// An answer about one permission is none about another.
func TestAnAnswerIsForOnePermission(t *testing.T) {
	admin := env.APIServer(t)
	here := env.Namespace(t, admin)
	good := env.Token(t, admin, here, "caller", snapshots)
	r := newReviewer(t, admin)
	for _, c := range []struct {
		needs Needs
		want  Token
	}{
		{needs(here), TokenAllowed},
		{Needs{Verb: "create", Path: "/metrics"}, TokenDenied},
		{Needs{Verb: "get", Path: "/version"}, TokenAllowed}, // each user may
		{Needs{Verb: "get", Path: "/metrics"}, TokenDenied},
		{needs(here), TokenAllowed},
	} {
		if got := r.answerTo(t, good, c.needs); got != c.want {
			t.Errorf("%s: the token is %s, want %s", c.needs, got, c.want)
		}
	}
}

// Unknown is no permission, and is not remembered.
func TestAnUnknownAnswerIsNotRemembered(t *testing.T) {
	answer := http.StatusInternalServerError
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }))
	defer server.Close()
	r := newReviewer(t, &rest.Config{Host: server.URL})
	if got, err := r.Review(t.Context(), "token", needs("ns")); got != TokenUnknown || err == nil {
		t.Errorf("the token is %s, %v; want unknown and an error", got, err)
	}
	answer = http.StatusUnauthorized
	if got := r.answerTo(t, "token", needs("ns")); got != TokenInvalid {
		t.Errorf("the token is %s, want invalid", got)
	}
}

// A flood of invented tokens does not reach the API server.
func TestAFloodOfTokensIsLimited(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	r := newReviewer(t, &rest.Config{Host: server.URL})
	limited := 0
	for i := range 200 {
		if r.answerTo(t, fmt.Sprint("invented", i), needs("ns")) == TokenLimited {
			limited++
		}
	}
	if asked > 100 || limited < 100 {
		t.Errorf("%d tokens reached the API server, %d were limited", asked, limited)
	}
}
