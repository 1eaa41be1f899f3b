package manifests

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Way is what to change of live's spec, as a merge patch, so that the API server takes what is applied: apply leaves what others
// set, and is refused where that excludes a field of ours. It gives up nothing else of theirs. nil: nothing of live is in the way.
func (a Applied) Way(live runtime.Object) (map[string]any, error) {
	want, err := tree(a.Configuration)
	if err != nil {
		return nil, fmt.Errorf("compare %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	}
	got, err := tree(live)
	if err != nil {
		return nil, fmt.Errorf("compare %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	}
	ours, _ := want["spec"].(map[string]any)
	theirs, _ := got["spec"].(map[string]any)
	switch a.Kind {
	case policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"):
		return budgetWay(ours, theirs), nil
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return serviceWay(ours, theirs), nil
	default:
		return nil, nil
	}
}

// budgetWay: a budget has minAvailable or maxUnavailable. Both are set at once, so that there is no time with neither, in which it
// would guard nothing.
func budgetWay(ours, theirs map[string]any) map[string]any {
	if theirs["maxUnavailable"] == nil {
		return nil
	}
	return map[string]any{"maxUnavailable": nil, "minAvailable": ours["minAvailable"]}
}

// serviceWay: apply knows a port by number and protocol, and next to ours none may bear the name of one of ours, or none at all. Such
// a port is what becomes of ours when someone changes its number. All other ports stay.
func serviceWay(ours, theirs map[string]any) map[string]any {
	own, live := portsOf(ours), portsOf(theirs)
	is := func(port, other map[string]any) bool {
		return port["port"] == other["port"] && port["protocol"] == other["protocol"]
	}
	ports, found := slices.Clone(own), false
	for _, port := range live {
		if i := slices.IndexFunc(own, func(o map[string]any) bool { return is(o, port) }); i >= 0 {
			ports[i] = maps.Clone(port) // what others set of it stays
			maps.Copy(ports[i], own[i])
			continue
		}
		nameless := port["name"] == nil
		if nameless || slices.ContainsFunc(own, func(o map[string]any) bool { return o["name"] == port["name"] }) {
			found = true
			continue
		}
		ports = append(ports, port)
	}
	if !found {
		return nil
	}
	return map[string]any{"ports": ports}
}

func portsOf(spec map[string]any) []map[string]any {
	list, _ := spec["ports"].([]any)
	ports := make([]map[string]any, 0, len(list))
	for _, item := range list {
		port, _ := item.(map[string]any)
		ports = append(ports, port)
	}
	return ports
}
