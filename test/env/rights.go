package env

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Rights are verbs on resources, like "get coordination.k8s.io/leases". The zero value is empty.
type Rights struct {
	mu   sync.Mutex
	held map[string]bool
}

// Add adds the rights of the rules of a Role.
func (r *Rights) Add(rules ...rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					r.add(verb, group, resource)
				}
			}
		}
	}
}

func (r *Rights) add(verb, group, resource string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = map[string]bool{}
	}
	r.held[verb+" "+strings.TrimPrefix(group+"/"+resource, "/")] = true
}

// requests reads the verb and the resource from a request, as the API server does.
var requests = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// Record adds the rights that the requests through next need. An apply that creates an object needs two.
func (r *Rights) Record(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		info, err := requests.NewRequestInfo(req)
		if err != nil {
			return nil, fmt.Errorf("find the verb of %s %s: %w", req.Method, req.URL.Path, err)
		}
		response, err := next.RoundTrip(req)
		if !info.IsResourceRequest || err != nil {
			return response, err
		}
		resource := info.Resource
		if info.Subresource != "" {
			resource += "/" + info.Subresource
		}
		r.add(info.Verb, info.APIGroup, resource)
		if info.Verb == "watch" && strings.Contains(req.URL.RawQuery, "sendInitialEvents=true") {
			r.add("list", info.APIGroup, resource) // what client-go falls back to where the API server does not send them
		}
		if info.Verb == "patch" && response.StatusCode == http.StatusCreated {
			r.add("create", info.APIGroup, resource)
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Without returns the rights that other does not have, sorted.
func (r *Rights) Without(other *Rights) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	return slices.Sorted(func(yield func(string) bool) {
		for right := range maps.Keys(r.held) {
			if !other.held[right] && !yield(right) {
				return
			}
		}
	})
}

// Compare writes what is granted and not in r, and what is in r and not granted, each as a line. It returns the exit code of the test
// package: who has the rights, and grants is what grants them.
func (r *Rights) Compare(granted *Rights, who, grants string) int {
	unused, missing := granted.Without(r), r.Without(granted)
	for _, right := range unused {
		fmt.Fprintf(os.Stderr, "%s grants %q, and no test has %s use it: remove it, or test what needs it\n", grants, right, who)
	}
	for _, right := range missing {
		fmt.Fprintf(os.Stderr, "%s uses %q, and %s does not grant it\n", who, right, grants)
	}
	return min(1, len(unused)+len(missing))
}

// Complete says whether the command line selects all tests of the package, so that what none of them used is used nowhere.
func Complete() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}
