package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// Applied is an object that druid owns completely and writes by server-side apply.
type Applied struct {
	Kind            schema.GroupVersionKind
	Namespace, Name string
	// Hash of the content. The object has it as AnnotationHash, so druid can tell whether the object is up to date
	// without a write.
	Hash string
	// Configuration is the object to apply.
	Configuration runtime.ApplyConfiguration
}

// Shared returns the objects that the members of a cluster share, in the order in which they are needed. The agents may
// write only the Leases of the members that the cluster record lists.
func Shared(cluster *v1alpha1.EtcdCluster, record leases.Record, options Options) ([]Applied, error) {
	config, err := configMap(cluster, options.Reloadable)
	if err != nil {
		return nil, err
	}
	var all collector
	add(&all, serviceAccount(cluster))
	add(&all, agentRole(cluster, record.Members))
	add(&all, agentRoleBinding(cluster))
	add(&all, config)
	add(&all, peerService(cluster))
	add(&all, clientService(cluster))
	add(&all, nodesService(cluster))
	if cluster.LeaderWanted() {
		add(&all, leaderService(cluster))
	}
	if cluster.Spec.NetworkPolicy != nil {
		add(&all, networkPolicy(cluster, record))
	}
	return all.objects, all.err
}

// configuration has the methods of every generated apply configuration.
type configuration[T any] interface {
	runtime.ApplyConfiguration
	identified
	WithAnnotations(map[string]string) T
}

// identified has the methods that distinguish an object from all others.
type identified interface {
	GetAPIVersion() *string
	GetKind() *string
	GetNamespace() *string
	GetName() *string
}

// collector gathers objects and keeps the first error.
type collector struct {
	objects []Applied
	err     error
}

func add[T configuration[T]](c *collector, object T) {
	applied, err := applied(object)
	if err != nil {
		if c.err == nil {
			c.err = err
		}
		return
	}
	c.objects = append(c.objects, applied)
}

// applied adds the hash of its content to an object.
func applied[T configuration[T]](object T) (Applied, error) {
	sum, err := hash(object)
	if err != nil {
		return Applied{}, fmt.Errorf("hash %s %s/%s: %w", *object.GetKind(), *object.GetNamespace(), *object.GetName(), err)
	}
	return Applied{
		Kind:          schema.FromAPIVersionAndKind(*object.GetAPIVersion(), *object.GetKind()),
		Namespace:     *object.GetNamespace(),
		Name:          *object.GetName(),
		Hash:          sum,
		Configuration: object.WithAnnotations(map[string]string{AnnotationHash: sum}),
	}, nil
}

func ownerReference(cluster *v1alpha1.EtcdCluster) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(kind.GroupVersion().String()).
		WithKind(kind.Kind).
		WithName(cluster.Name).
		WithUID(cluster.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

// HeldBy reports whether live still has everything that was applied. Additions of others and the defaults of the API
// server do not matter.
func (a Applied) HeldBy(live runtime.Object) (bool, error) {
	want, err := tree(a.Configuration)
	if err != nil {
		return false, fmt.Errorf("compare %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	}
	got, err := tree(live)
	if err != nil {
		return false, fmt.Errorf("compare %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	}
	// Typed objects have no kind of their own.
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

// atomic are the fields that server-side apply replaces completely. Additions of others to them count, and are
// removed.
var atomic = []string{
	"selector", "rules", "subjects", "dnsNames", "ipAddresses", "usages", "organizations",
	"podSelector", "namespaceSelector", "policyTypes", "ingress",
}

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

// size counts the leaves of an atomic field, in lists and in maps. An empty map is a leaf too: as a rule of a
// NetworkPolicy it permits everything.
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
		return 1
	}
	return max(n, 1)
}

// ConflictPatch returns a merge patch of the spec of live, after which the API server accepts the applied object.
// Server-side apply keeps what others set. It fails if that excludes a field of druid. The patch removes nothing else
// of others. It is nil if live has no conflict.
func (a Applied) ConflictPatch(live runtime.Object) (map[string]any, error) {
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
		return budgetConflictPatch(ours, theirs), nil
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return serviceConflictPatch(ours, theirs), nil
	default:
		return nil, nil
	}
}

// budgetConflictPatch sets both fields at once, because a PodDisruptionBudget has either minAvailable or
// maxUnavailable. So it protects at any time.
func budgetConflictPatch(ours, theirs map[string]any) map[string]any {
	if theirs["maxUnavailable"] == nil {
		return nil
	}
	return map[string]any{"maxUnavailable": nil, "minAvailable": ours["minAvailable"]}
}

// serviceConflictPatch removes ports that conflict with those of druid. Server-side apply identifies a port by number
// and protocol. Another port must not have the name of a port of druid, or no name. Such a port results if someone
// changes the number of a port of druid. All other ports stay.
func serviceConflictPatch(ours, theirs map[string]any) map[string]any {
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
