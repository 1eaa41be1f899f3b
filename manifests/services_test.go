package manifests

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// serviceFields are those of a Service that spec.clientService decides about.
type serviceFields struct {
	Type, Class, Traffic, Policy string
	Families                     []corev1.IPFamily
}

func fieldsOf(s corev1.Service) serviceFields {
	f := serviceFields{Type: string(s.Spec.Type), Families: s.Spec.IPFamilies}
	if s.Spec.LoadBalancerClass != nil {
		f.Class = *s.Spec.LoadBalancerClass
	}
	if s.Spec.TrafficDistribution != nil {
		f.Traffic = *s.Spec.TrafficDistribution
	}
	if s.Spec.IPFamilyPolicy != nil {
		f.Policy = string(*s.Spec.IPFamilyPolicy)
	}
	return f
}

// serviceSteps are values of spec.clientService, one after another on the same cluster, and what Kubernetes makes of them.
var serviceSteps = []struct {
	name    string
	spec    *v1alpha1.ClientServiceSpec
	client  serviceFields
	refused string // Kubernetes refuses the change of the client Service, and it stays as it was
}{
	{
		"no word of it", nil,
		serviceFields{Type: "ClusterIP", Policy: "SingleStack", Families: v4}, "",
	},
	{
		"ports of nodes", &v1alpha1.ClientServiceSpec{Type: "NodePort", TrafficDistribution: "PreferClose"},
		serviceFields{Type: "NodePort", Traffic: "PreferClose", Policy: "SingleStack", Families: v4}, "",
	},
	{
		"a load balancer of a class", &v1alpha1.ClientServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("example.com/a")},
		serviceFields{Type: "LoadBalancer", Class: "example.com/a", Policy: "SingleStack", Families: v4}, "",
	},
	{
		"of another class", &v1alpha1.ClientServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("example.com/b")},
		serviceFields{}, "may not change once set",
	},
	{
		"no load balancer any more", &v1alpha1.ClientServiceSpec{},
		serviceFields{Type: "ClusterIP", Policy: "SingleStack", Families: v4}, "",
	},
	{
		"the other class", &v1alpha1.ClientServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("example.com/b")},
		serviceFields{Type: "LoadBalancer", Class: "example.com/b", Policy: "SingleStack", Families: v4}, "",
	},
	{
		"both families", &v1alpha1.ClientServiceSpec{Type: "ClusterIP", IPFamilyPolicy: "RequireDualStack"},
		serviceFields{Type: "ClusterIP", Policy: "RequireDualStack", Families: v4v6}, "",
	},
	{
		"the other one if there is one", &v1alpha1.ClientServiceSpec{IPFamilyPolicy: "PreferDualStack"},
		serviceFields{Type: "ClusterIP", Policy: "PreferDualStack", Families: v4v6}, "",
	},
	{
		"both by name", &v1alpha1.ClientServiceSpec{IPFamilyPolicy: "RequireDualStack", IPFamilies: v4v6},
		serviceFields{Type: "ClusterIP", Policy: "RequireDualStack", Families: v4v6}, "",
	},
	{
		"the other one first", &v1alpha1.ClientServiceSpec{IPFamilyPolicy: "SingleStack", IPFamilies: v6},
		serviceFields{}, "ipFamilies[0]",
	},
	{
		"no word of it again", nil,
		serviceFields{Type: "ClusterIP", Policy: "RequireDualStack", Families: v4v6}, "",
	},
	{
		"one family by name", &v1alpha1.ClientServiceSpec{IPFamilies: v4},
		serviceFields{Type: "ClusterIP", Policy: "SingleStack", Families: v4}, "",
	},
	{
		"both by name again", &v1alpha1.ClientServiceSpec{IPFamilyPolicy: "PreferDualStack", IPFamilies: v4v6},
		serviceFields{Type: "ClusterIP", Policy: "PreferDualStack", Families: v4v6}, "",
	},
	{
		"one family", &v1alpha1.ClientServiceSpec{IPFamilyPolicy: "SingleStack"},
		serviceFields{Type: "ClusterIP", Policy: "SingleStack", Families: v4}, "",
	},
}

var (
	v4   = []corev1.IPFamily{corev1.IPv4Protocol}
	v6   = []corev1.IPFamily{corev1.IPv6Protocol}
	v4v6 = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
)

// otherFields are those of all other Services of the cluster: nothing of spec.clientService is for them.
var otherFields = serviceFields{Type: "ClusterIP", Policy: "SingleStack", Families: v4}

// TestServicesFollowTheSpec changes spec.clientService step by step on a real API server with two families. After each
// step druid finds the Services as it wants them, and applies nothing that changes them again.
func TestServicesFollowTheSpec(t *testing.T) {
	config := env.APIServer(t)
	admin, namespace := clientAs(t, config, ""), env.Namespace(t, config)
	cluster := plain()
	cluster.Namespace = namespace
	live := func(name string) (s corev1.Service) {
		if err := admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	apply := func(a Applied) error {
		return admin.Apply(t.Context(), a.Configuration, client.FieldOwner("druid"), client.ForceOwnership)
	}
	for _, step := range serviceSteps {
		cluster.Spec.ClientService = step.spec
		refusals := 0
		again := servicesOf(t, cluster)
		for i, a := range servicesOf(t, cluster) {
			var before corev1.Service
			refused := step.refused != "" && a.Name == ClientServiceName("demo")
			if refused {
				before = live(a.Name)
			}
			switch err := apply(a); {
			case refused && apierrors.IsInvalid(err) && strings.Contains(err.Error(), step.refused):
				refusals++
				if after := live(a.Name); after.ResourceVersion != before.ResourceVersion {
					t.Errorf("%s: %s was refused and changed", step.name, a.Name)
				}
				continue
			case err != nil:
				t.Fatalf("%s: apply %s: %v", step.name, a.Name, err)
			}
			service, want := live(a.Name), otherFields
			if a.Name == ClientServiceName("demo") {
				want = step.client
			}
			if diff := cmp.Diff(want, fieldsOf(service)); diff != "" {
				t.Errorf("%s: %s is (-want +got):\n%s", step.name, a.Name, diff)
			}
			if len(service.Spec.ClusterIPs) > len(want.Families) {
				t.Errorf("%s: %s has the addresses %v", step.name, a.Name, service.Spec.ClusterIPs)
			}
			if held, err := a.HeldBy(&service); err != nil || !held {
				t.Errorf("%s: %s is taken for outdated: %v", step.name, a.Name, err)
			}
			if err := apply(again[i]); err != nil { // apply writes its result into what was applied
				t.Fatalf("%s: apply %s again: %v", step.name, a.Name, err)
			}
			if after := live(a.Name); after.ResourceVersion != service.ResourceVersion {
				t.Errorf("%s: %s was written again", step.name, a.Name)
			}
		}
		if step.refused != "" && refusals != 1 {
			t.Errorf("%s: %d Services were refused", step.name, refusals)
		}
	}
}

// What others change of these fields is seen, so that druid reverts it.
func TestHandsOnServicesAreSeen(t *testing.T) {
	client, err := applied(clientService(full()))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*corev1.ServiceSpec)
		held   bool
	}{
		"as it was applied":    {func(*corev1.ServiceSpec) {}, true},
		"another type":         {func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeClusterIP }, false},
		"another class":        {func(s *corev1.ServiceSpec) { s.LoadBalancerClass = new("example.com/other") }, false},
		"another distribution": {func(s *corev1.ServiceSpec) { s.TrafficDistribution = nil }, false},
		"another policy":       {func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack) }, false},
		"a family less":        {func(s *corev1.ServiceSpec) { s.IPFamilies = s.IPFamilies[:1] }, false},
		"the port of a node":   {func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30001 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			live := appliedTo(t, client, &corev1.Service{})
			test.change(&live.Spec)
			if held, err := client.HeldBy(live); err != nil || held != test.held {
				t.Errorf("got %t, %v; want %t", held, err, test.held)
			}
		})
	}
}

// Clients use the family that the user names, and the members that of the Pods, which is the first one of Kubernetes.
func TestServicesOfClientsOfIPv6(t *testing.T) {
	config := env.APIServer(t)
	admin := clientAs(t, config, "")
	cluster := plain()
	cluster.Namespace = env.Namespace(t, config)
	cluster.Spec.LeaderService = &v1alpha1.LeaderServiceSpec{Enabled: true}
	cluster.Spec.ClientService = &v1alpha1.ClientServiceSpec{IPFamilies: v6}
	services := servicesOf(t, cluster)
	if len(services) != 4 {
		t.Fatalf("the cluster has %d Services", len(services))
	}
	for _, a := range services {
		if err := admin.Apply(t.Context(), a.Configuration, client.FieldOwner("druid")); err != nil {
			t.Fatal(err)
		}
		var service corev1.Service
		if err := admin.Get(t.Context(), types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, &service); err != nil {
			t.Fatal(err)
		}
		want, addresses := v4, "10."
		if a.Name == ClientServiceName("demo") {
			want, addresses = v6, "fd00:10::"
		}
		if !slices.Equal(service.Spec.IPFamilies, want) || service.Spec.ClusterIP != corev1.ClusterIPNone && !strings.HasPrefix(service.Spec.ClusterIP, addresses) {
			t.Errorf("%s has the families %v and the address %s", a.Name, service.Spec.IPFamilies, service.Spec.ClusterIP)
		}
	}
}

func servicesOf(t *testing.T, cluster *v1alpha1.EtcdCluster) (services []Applied) {
	t.Helper()
	all, err := Shared(cluster, leases.Record{}, options())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Kind.Kind == "Service" {
			services = append(services, a)
		}
	}
	if len(services) < 3 {
		t.Fatalf("the cluster has %d Services", len(services))
	}
	return services
}
