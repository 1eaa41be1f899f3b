package manifests

import (
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// caller is who connects to a member. Its IP stands for one outside of the Kubernetes cluster.
type caller struct {
	pod, namespace labels.Set
	ip             string
}

var (
	allPorts  = []int32{config.ClientPort, config.PeerPort, config.MetricsPort, config.AgentPort, config.APIPort}
	theirs    = labels.Set{metav1.NamespaceDefault: "no"}
	ownSpace  = labels.Set{"kubernetes.io/metadata.name": "default"}
	demoPods  = labels.Set(Selector("demo"))
	restrict  = func() *v1alpha1.EtcdCluster { return full() }
	unlimited = func() *v1alpha1.EtcdCluster {
		cluster := plain()
		cluster.Spec.NetworkPolicy = &v1alpha1.NetworkPolicySpec{}
		return cluster
	}
	joining = func() *v1alpha1.EtcdCluster {
		cluster := unlimited()
		cluster.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Join: &v1alpha1.JoinSpec{Endpoints: []v1alpha1.JoinEndpoint{"http://etcd-0.old:2379"}}}
		return cluster
	}
)

// TestWhoCanConnect evaluates the NetworkPolicy as a network plugin does: the plugin of the tests' Kubernetes enforces none.
func TestWhoCanConnect(t *testing.T) {
	external := leases.ListedMember{ID: "9", Name: "etcd-0", PeerURL: "http://etcd-0.old:2380"}
	own := leases.ListedMember{ID: "1", Name: member, PeerURL: "http://" + member + ".demo-peer:2380"}
	list := func(members ...leases.ListedMember) leases.Record {
		return leases.Record{Members: []string{member}, MemberList: &leases.MemberList{Members: members}}
	}
	notPeers := []int32{config.ClientPort, config.MetricsPort, config.AgentPort, config.APIPort}
	tests := map[string]struct {
		cluster *v1alpha1.EtcdCluster
		record  leases.Record
		from    caller
		want    []int32
	}{
		"a member":                        {unlimited(), list(own), caller{demoPods, ownSpace, ""}, allPorts},
		"any Pod":                         {unlimited(), list(own), caller{theirs, theirs, ""}, notPeers},
		"a member of another cluster":     {unlimited(), list(own), caller{labels.Set(Selector("other")), ownSpace, ""}, notPeers},
		"a member of that name elsewhere": {unlimited(), list(own), caller{demoPods, theirs, ""}, notPeers},
		"any address":                     {unlimited(), list(own), caller{ip: "198.51.100.7"}, notPeers},
		"a restricted member": {restrict(), list(own), caller{demoPods, ownSpace, ""},
			[]int32{config.ClientPort, config.PeerPort, config.APIPort}},
		"a restricted Pod of an EtcdSnapshot": {restrict(), list(own), caller{snapshotLabels(t), ownSpace, ""}, []int32{config.ClientPort, config.APIPort}},
		"a Pod that no list names":            {restrict(), list(own), caller{theirs, ownSpace, ""}, []int32{config.APIPort}},
		"a client by its Pod": {restrict(), list(own), caller{labels.Set{"etcd-client": "demo"}, ownSpace, ""},
			[]int32{config.ClientPort, config.APIPort}},
		"such a Pod in another namespace":   {restrict(), list(own), caller{labels.Set{"etcd-client": "demo"}, theirs, ""}, []int32{config.APIPort}},
		"a client by its namespace":         {restrict(), list(own), caller{theirs, labels.Set{"team": "b"}, ""}, []int32{config.ClientPort, config.APIPort}},
		"such a namespace that is excluded": {restrict(), list(own), caller{theirs, labels.Set{"team": "b", "closed": ""}, ""}, []int32{config.APIPort}},
		"a client by its address":           {restrict(), list(own), caller{ip: "203.0.113.7"}, []int32{config.ClientPort, config.APIPort}},
		"such an address that is excluded":  {restrict(), list(own), caller{ip: "203.0.113.200"}, []int32{config.APIPort}},
		"Prometheus": {restrict(), list(own), caller{theirs, labels.Set{"kubernetes.io/metadata.name": "monitoring"}, ""},
			[]int32{config.MetricsPort, config.AgentPort, config.APIPort}},
		"a joined cluster, members unknown":      {joining(), leases.Record{Members: []string{member}}, caller{ip: "198.51.100.7"}, allPorts},
		"a joined cluster with external members": {joining(), list(own, external), caller{ip: "198.51.100.7"}, allPorts},
		"a joined cluster without them":          {joining(), list(own), caller{ip: "198.51.100.7"}, notPeers},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			applied, err := applied(networkPolicy(test.cluster, test.record))
			if err != nil {
				t.Fatal(err)
			}
			live := appliedTo(t, applied, &networkingv1.NetworkPolicy{})
			if !selects(t, &live.Spec.PodSelector, demoPods) || !slices.Equal(live.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
				t.Fatalf("it is for %v and %v", live.Spec.PodSelector, live.Spec.PolicyTypes)
			}
			for _, port := range allPorts {
				if got, want := admits(t, live, test.from, port), slices.Contains(test.want, port); got != want {
					t.Errorf("port %d: admitted %t, want %t", port, got, want)
				}
			}
		})
	}
}

func snapshotLabels(t *testing.T) labels.Set {
	t.Helper()
	pod, err := SnapshotPod(plain(), ownStore(plain()), SnapshotRun{Within: SnapshotTimeout}, options())
	if err != nil {
		t.Fatal(err)
	}
	return pod.Labels
}

func admits(t *testing.T, policy *networkingv1.NetworkPolicy, from caller, port int32) bool {
	t.Helper()
	return slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
		onPort := len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == port })
		return onPort && (len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(p networkingv1.NetworkPolicyPeer) bool { return includes(t, p, from) }))
	})
}

func includes(t *testing.T, peer networkingv1.NetworkPolicyPeer, from caller) bool {
	t.Helper()
	if peer.IPBlock != nil {
		return from.ip != "" && within(from.ip, peer.IPBlock.CIDR) &&
			!slices.ContainsFunc(peer.IPBlock.Except, func(cidr string) bool { return within(from.ip, cidr) })
	}
	if from.ip != "" || peer.PodSelector != nil && !selects(t, peer.PodSelector, from.pod) {
		return false
	}
	if peer.NamespaceSelector == nil {
		return from.namespace["kubernetes.io/metadata.name"] == ownSpace["kubernetes.io/metadata.name"]
	}
	return selects(t, peer.NamespaceSelector, from.namespace)
}

func within(ip, cidr string) bool {
	return netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(ip))
}

func selects(t *testing.T, s *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(set)
}
