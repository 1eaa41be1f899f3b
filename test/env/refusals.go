package env

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Refusals are the validations of ValidatingAdmissionPolicies that requests of tests failed. The API server names only the first one in
// its response. So each validation is also a policy of its own, which only warns.
type Refusals struct {
	mu    sync.Mutex
	known map[string]bool
	// alone are the validations that were the only ones that a request failed: without one, the API server admits that request.
	alone map[string]bool
}

// validation is the name of a policy for one validation: validation-<its number from 0>-of-<its policy>.
var validation = regexp.MustCompile(`ValidatingAdmissionPolicy '(validation-[0-9]+-of-[a-z-]+)'`)

// Split returns a policy for each validation of a policy, each with a binding that only warns. It returns nothing for other objects.
// Create them before the policy, so that they are in force when it is.
func (r *Refusals) Split(object *unstructured.Unstructured) (all []*unstructured.Unstructured, err error) {
	if object.GetKind() != "ValidatingAdmissionPolicy" {
		return nil, nil
	}
	validations, _, err := unstructured.NestedSlice(object.Object, "spec", "validations")
	if err != nil {
		return nil, fmt.Errorf("split %s: %w", object.GetName(), err)
	}
	for i, one := range validations {
		name := fmt.Sprintf("validation-%d-of-%s", i, object.GetName())
		r.mu.Lock()
		if r.known == nil {
			r.known, r.alone = map[string]bool{}, map[string]bool{}
		}
		r.known[name] = true
		r.mu.Unlock()
		policy := object.DeepCopy()
		policy.SetName(name)
		expression, _ := one.(map[string]any)["expression"].(string)
		only := []any{map[string]any{"expression": expression, "message": "refused"}} // all warnings fit into a response
		if err := unstructured.SetNestedSlice(policy.Object, only, "spec", "validations"); err != nil {
			return nil, fmt.Errorf("split %s: %w", object.GetName(), err)
		}
		all = append(all, policy, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": policy.GetAPIVersion(), "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"policyName": name, "validationActions": []any{"Warn"}},
		}})
	}
	return all, nil
}

// Record reads the warnings of the responses through next, and removes them.
func (r *Refusals) Record(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(req)
		if err != nil {
			return response, err
		}
		failed := map[string]bool{}
		kept := slices.DeleteFunc(slices.Clone(response.Header.Values("Warning")), func(warning string) bool {
			found := validation.FindStringSubmatch(warning)
			if found != nil {
				failed[found[1]] = true
			}
			return found != nil
		})
		if len(failed) == 0 {
			return response, nil
		}
		response.Header["Warning"] = kept
		if refused := response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnprocessableEntity; refused && len(failed) == 1 {
			r.mu.Lock()
			defer r.mu.Unlock()
			maps.Copy(r.alone, failed)
		}
		return response, nil
	})
}

// Untested returns the validations of policies without which the API server admits the same requests of tests, sorted.
func (r *Refusals) Untested(policies ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(func(yield func(string) bool) {
		for name := range r.known {
			if _, policy, _ := strings.Cut(name, "-of-"); !r.alone[name] && slices.Contains(policies, policy) && !yield(name) {
				return
			}
		}
	})
}
