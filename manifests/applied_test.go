package manifests

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/leases"
)

// appliedTo is the object as the API server would hold it after a was applied.
func appliedTo[T runtime.Object](t *testing.T, a Applied, into T) T {
	t.Helper()
	raw, err := json.Marshal(a.Configuration)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestHandsOnAppliedObjectsAreSeen(t *testing.T) {
	shared, err := Shared(plain(), leases.Record{Members: []string{"demo-a"}}, Options{AgentImage: "agent", Reloadable: config.DefaultReloadable()})
	if err != nil {
		t.Fatal(err)
	}
	of := func(kind, name string) Applied {
		for _, a := range shared {
			if a.Kind.Kind == kind && (name == "" || a.Name == name) {
				return a
			}
		}
		t.Fatalf("no %s %s", kind, name)
		return Applied{}
	}
	budget, err := DisruptionBudget(plain(), 2, evictions)
	if err != nil {
		t.Fatal(err)
	}
	service := func(change func(*corev1.Service)) func() (Applied, runtime.Object) {
		return func() (Applied, runtime.Object) {
			a := of("Service", ClientServiceName("demo"))
			s := appliedTo(t, a, &corev1.Service{})
			change(s)
			return a, s
		}
	}
	role := func(change func(*rbacv1.Role)) func() (Applied, runtime.Object) {
		return func() (Applied, runtime.Object) {
			a := of("Role", "")
			r := appliedTo(t, a, &rbacv1.Role{})
			change(r)
			return a, r
		}
	}
	disruption := func(change func(*policyv1.PodDisruptionBudget)) func() (Applied, runtime.Object) {
		return func() (Applied, runtime.Object) {
			b := appliedTo(t, budget, &policyv1.PodDisruptionBudget{})
			change(b)
			return budget, b
		}
	}
	network := func(change func(*networkingv1.NetworkPolicy)) func() (Applied, runtime.Object) {
		return func() (Applied, runtime.Object) {
			a, err := applied(networkPolicy(full(), leases.Record{}))
			if err != nil {
				t.Fatal(err)
			}
			p := appliedTo(t, a, &networkingv1.NetworkPolicy{})
			change(p)
			return a, p
		}
	}
	tests := map[string]struct {
		object func() (Applied, runtime.Object)
		held   bool
	}{
		"a policy as it was applied":  {network(func(*networkingv1.NetworkPolicy) {}), true},
		"a policy with one rule more": {network(func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress = append(p.Spec.Ingress, p.Spec.Ingress[0]) }), false},
		"a policy with an empty rule": {network(func(p *networkingv1.NetworkPolicy) {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{})
		}), false},
		"a policy without its sources": {network(func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].From = nil }), false},
		"a policy with one peer more": {network(func(p *networkingv1.NetworkPolicy) {
			p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}})
		}), false},
		"a policy for fewer Pods": {network(func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchLabels["more"] = "x" }), false},
		"as it was applied":       {service(func(*corev1.Service) {}), true},
		"with the defaults of the API server": {service(func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.Type, s.Spec.SessionAffinity = "10.0.0.1", corev1.ServiceTypeClusterIP, corev1.ServiceAffinityNone
			s.UID, s.ResourceVersion = "uid", "7"
		}), true},
		"with what others added": {service(func(s *corev1.Service) {
			s.Labels["theirs"], s.Annotations["theirs"] = "a", "b"
			s.Spec.Ports = append([]corev1.ServicePort{{Name: "more", Port: 1}}, s.Spec.Ports...)
		}), true},
		"a selector that selects less":      {service(func(s *corev1.Service) { s.Spec.Selector["more"] = "x" }), false},
		"a selector that selects more":      {service(func(s *corev1.Service) { delete(s.Spec.Selector, LabelServing) }), false},
		"not-ready addresses unpublished":   {service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false }), false},
		"another port":                      {service(func(s *corev1.Service) { s.Spec.Ports[0].Port = 1 }), false},
		"a label taken away":                {service(func(s *corev1.Service) { delete(s.Labels, labelManagedBy) }), false},
		"an older hash":                     {service(func(s *corev1.Service) { s.Annotations[AnnotationHash] = "old" }), false},
		"the owner taken away":              {service(func(s *corev1.Service) { s.OwnerReferences = nil }), false},
		"a Role as it was applied":          {role(func(*rbacv1.Role) {}), true},
		"a Role that allows more":           {role(func(r *rbacv1.Role) { r.Rules[0].Verbs = append(r.Rules[0].Verbs, "delete") }), false},
		"a Role with a rule more":           {role(func(r *rbacv1.Role) { r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"*"}}) }), false},
		"a Role that allows less":           {role(func(r *rbacv1.Role) { r.Rules = nil }), false},
		"a budget as it was applied":        {disruption(func(*policyv1.PodDisruptionBudget) {}), true},
		"a budget that allows more":         {disruption(func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromInt32(0)) }), false},
		"a budget for other Pods":           {disruption(func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels = nil }), false},
		"a budget with another sentence":    {disruption(func(b *policyv1.PodDisruptionBudget) { b.Annotations[AnnotationEvictions] = "evict all" }), false},
		"a budget without its sentence":     {disruption(func(b *policyv1.PodDisruptionBudget) { delete(b.Annotations, AnnotationEvictions) }), false},
		"a budget that protects the unwell": {disruption(func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = nil }), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			applied, live := test.object()
			if held, err := applied.HeldBy(live); err != nil || held != test.held {
				t.Errorf("got %t, %v; want %t", held, err, test.held)
			}
		})
	}
}

func TestOnlyWhatExcludesOurFieldsIsInTheWay(t *testing.T) {
	budget, err := DisruptionBudget(plain(), 2, evictions)
	if err != nil {
		t.Fatal(err)
	}
	client, err := applied(clientService(plain()))
	if err != nil {
		t.Fatal(err)
	}
	role, err := applied(agentRole(plain(), nil))
	if err != nil {
		t.Fatal(err)
	}
	withPorts := func(ports ...corev1.ServicePort) runtime.Object {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: ports}}
	}
	tcp := func(name string, number int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(number)}
	}
	own, more := tcp("client", config.ClientPort), tcp("more", 80)
	more.NodePort = 30080
	udp, spoken := own, own
	spoken.AppProtocol = new("kubernetes.io/h2c")
	udp.Protocol = corev1.ProtocolUDP
	const repaired = `{"name":"client","port":2379,"protocol":"TCP","targetPort":2379}`
	tests := map[string]struct {
		applied Applied
		live    runtime.Object
		patch   string
	}{
		"a budget with our number": {budget, &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))}}, "null"},
		"a budget with neither":    {budget, &policyv1.PodDisruptionBudget{}, "null"},
		"a budget with the other number": {
			budget, &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(0))}},
			`{"maxUnavailable":null,"minAvailable":2}`,
		},
		"a Service as it was applied":            {client, withPorts(own), "null"},
		"a Service with a port more":             {client, withPorts(own, more), "null"},
		"a Service whose port is called other":   {client, withPorts(tcp("etcd", config.ClientPort)), "null"},
		"a Service whose port has no name":       {client, withPorts(tcp("", config.ClientPort)), "null"},
		"a Service whose port has another":       {client, withPorts(tcp("client", 2380)), `{"ports":[` + repaired + `]}`},
		"a Service with a nameless other port":   {client, withPorts(tcp("", 2380)), `{"ports":[` + repaired + `]}`},
		"a Service whose port is not TCP":        {client, withPorts(udp), `{"ports":[` + repaired + `]}`},
		"a Service whose name is another port's": {client, withPorts(tcp("etcd", config.ClientPort), tcp("client", 2380)), `{"ports":[` + repaired + `]}`},
		"a Service with other ports next to": {
			client, withPorts(more, tcp("client", 2380)),
			`{"ports":[` + repaired + `,{"name":"more","nodePort":30080,"port":80,"protocol":"TCP","targetPort":80}]}`,
		},
		"a Service whose port was added to": {
			client, withPorts(spoken, tcp("", 2380)),
			`{"ports":[{"appProtocol":"kubernetes.io/h2c","name":"client","port":2379,"protocol":"TCP","targetPort":2379}]}`,
		},
		"what is no Service and no budget": {role, &rbacv1.Role{}, "null"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			patch, err := test.applied.ConflictPatch(test.live)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := json.Marshal(patch); string(got) != test.patch {
				t.Errorf("got %s, want %s", got, test.patch)
			}
		})
	}
}
