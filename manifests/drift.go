package manifests

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// HeldBy says whether live still holds everything that was applied. What others added next to it is theirs, and defaults
// are the API server's.
func (a Applied) HeldBy(live runtime.Object) (bool, error) {
	want, err := tree(a.Configuration)
	if err != nil {
		return false, fmt.Errorf("compare %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	}
	got, err := tree(live)
	if err != nil {
		return false, fmt.Errorf("compare %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	}
	// Typed objects do not report their own kind.
	delete(want, "apiVersion")
	delete(want, "kind")
	return holdsMap(got, want), nil
}

func tree(object any) (map[string]any, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	return fields, json.Unmarshal(raw, &fields)
}

// atomic are the fields that server-side apply replaces as a whole: what someone adds to them counts too, and goes.
var atomic = []string{"selector", "rules", "subjects"}

func holdsMap(got, want map[string]any) bool {
	for key, w := range want {
		switch g, ok := got[key]; {
		case !ok, !holds(g, w):
			return false
		case slices.Contains(atomic, key) && size(g) != size(w):
			return false
		}
	}
	return true
}

func holds(got, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		return ok && holdsMap(g, w)
	case []any:
		g, ok := got.([]any)
		return ok && !slices.ContainsFunc(w, func(item any) bool {
			return !slices.ContainsFunc(g, func(candidate any) bool { return holds(candidate, item) })
		})
	default:
		return reflect.DeepEqual(got, want)
	}
}

// size counts what an atomic field consists of, to the last leaf of its lists and maps of texts.
func size(value any) int {
	n := 0
	switch v := value.(type) {
	case map[string]any:
		for _, item := range v {
			n += size(item)
		}
	case []any:
		for _, item := range v {
			n += size(item)
		}
	default:
		n = 1
	}
	return n
}
