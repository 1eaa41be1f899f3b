package v1alpha1_test

// clientService is the valid cluster with the given spec.clientService.
func clientService(fields object) []edit { return []edit{{"spec.clientService", fields}} }

func families(names ...any) []any { return append([]any{}, names...) }

const (
	oneClass    = "clientService.loadBalancerClass must not change while clientService.type is LoadBalancer"
	oneFirst    = "the first entry of ipFamilies must not change, because Kubernetes cannot change the first family of a Service"
	allFamilies = "clientService.ipFamilies must have two families with clientService.ipFamilyPolicy PreferDualStack or RequireDualStack, and " +
		"one family otherwise"
	classOfNodes = "clientService.loadBalancerClass needs clientService.type LoadBalancer"
)

var badServices = map[string]refusal{
	"a Service without an address": {clientService(object{"type": "ExternalName"}), `supported values: "ClusterIP", "NodePort", "LoadBalancer"`},
	"a class of no load balancer":  {clientService(object{"loadBalancerClass": "a"}), classOfNodes},
	"a class of ports of nodes":    {clientService(object{"type": "NodePort", "loadBalancerClass": "a"}), classOfNodes},
	"a class that is no name": {clientService(object{"type": "LoadBalancer", "loadBalancerClass": "a b"}),
		"loadBalancerClass must be a name like internal or example.com/internal"},
	"an empty class": {clientService(object{"type": "LoadBalancer", "loadBalancerClass": ""}), "should be at least 1 chars long"},
	"an unknown traffic distribution": {clientService(object{"trafficDistribution": "Close"}),
		`supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`},
	"an unknown policy": {clientService(object{"ipFamilyPolicy": "DualStack"}),
		`supported values: "SingleStack", "PreferDualStack", "RequireDualStack"`},
	"an unknown family": {clientService(object{"ipFamilies": families("IPv5")}), `supported values: "IPv4", "IPv6"`},
	"no family":         {clientService(object{"ipFamilies": families()}), "should have at least 1 items"},
	"three families":    {clientService(object{"ipFamilies": families("IPv4", "IPv6", "IPv4")}), "must have at most 2 items"},
	"a family twice": {clientService(object{"ipFamilies": families("IPv6", "IPv6"), "ipFamilyPolicy": "RequireDualStack"}),
		"ipFamilies must not contain a family twice"},
	"two families without a policy":     {clientService(object{"ipFamilies": families("IPv4", "IPv6")}), allFamilies},
	"two families of a single stack":    {clientService(object{"ipFamilies": families("IPv4", "IPv6"), "ipFamilyPolicy": "SingleStack"}), allFamilies},
	"one family of a preferred pair":    {clientService(object{"ipFamilies": families("IPv4"), "ipFamilyPolicy": "PreferDualStack"}), allFamilies},
	"one family where both are a must":  {clientService(object{"ipFamilies": families("IPv4"), "ipFamilyPolicy": "RequireDualStack"}), allFamilies},
	"a field of Services for no client": {clientService(object{"clusterIP": "10.0.0.7"}), `unknown field "spec.clientService.clusterIP"`},
}

var goodServices = map[string][]edit{
	"a Service that says its default":  clientService(object{"type": "ClusterIP"}),
	"ports of nodes":                   clientService(object{"type": "NodePort", "trafficDistribution": "PreferSameNode"}),
	"a load balancer":                  clientService(object{"type": "LoadBalancer", "trafficDistribution": "PreferClose"}),
	"a load balancer of a class":       clientService(object{"type": "LoadBalancer", "loadBalancerClass": "example.com/internal"}),
	"a Service of the leader":          {{"spec.leaderService", object{"enabled": true}}},
	"no Service of the leader":         {{"spec.leaderService", object{}}},
	"one family":                       clientService(object{"ipFamilies": families("IPv6")}),
	"one family of a single stack":     clientService(object{"ipFamilies": families("IPv6"), "ipFamilyPolicy": "SingleStack"}),
	"both families, one if need be":    clientService(object{"ipFamilyPolicy": "PreferDualStack"}),
	"both families in the order asked": clientService(object{"ipFamilies": families("IPv6", "IPv4"), "ipFamilyPolicy": "RequireDualStack"}),
}

// serviceChanges are changes of spec.clientService. What is refused would be refused by Kubernetes too.
var serviceChanges = map[string]struct {
	before, after []edit
	want          string
}{
	"another class": {
		clientService(object{"type": "LoadBalancer", "loadBalancerClass": "a"}), clientService(object{"type": "LoadBalancer", "loadBalancerClass": "b"}), oneClass,
	},
	"a class for a load balancer": {
		clientService(object{"type": "LoadBalancer"}), clientService(object{"type": "LoadBalancer", "loadBalancerClass": "b"}), oneClass,
	},
	"no class for a load balancer": {
		clientService(object{"type": "LoadBalancer", "loadBalancerClass": "a"}), clientService(object{"type": "LoadBalancer"}), oneClass,
	},
	"the same class": {
		clientService(object{"type": "LoadBalancer", "loadBalancerClass": "a"}),
		clientService(object{"type": "LoadBalancer", "loadBalancerClass": "a", "serving": false}), "",
	},
	"no load balancer any more":  {clientService(object{"type": "LoadBalancer", "loadBalancerClass": "a"}), clientService(object{"type": "ClusterIP"}), ""},
	"a load balancer of a class": {clientService(object{"type": "NodePort"}), clientService(object{"type": "LoadBalancer", "loadBalancerClass": "b"}), ""},
	"another family":             {clientService(object{"ipFamilies": families("IPv4")}), clientService(object{"ipFamilies": families("IPv6")}), oneFirst},
	"a family more": {clientService(object{"ipFamilies": families("IPv4")}),
		clientService(object{"ipFamilies": families("IPv4", "IPv6"), "ipFamilyPolicy": "PreferDualStack"}), ""},
	"a family more, which is first": {
		clientService(object{"ipFamilies": families("IPv4")}),
		clientService(object{"ipFamilies": families("IPv6", "IPv4"), "ipFamilyPolicy": "PreferDualStack"}), oneFirst,
	},
	"a family less": {
		clientService(object{"ipFamilies": families("IPv4", "IPv6"), "ipFamilyPolicy": "PreferDualStack"}),
		clientService(object{"ipFamilies": families("IPv4"), "ipFamilyPolicy": "SingleStack"}), "",
	},
	// Who asked for a family that the Kubernetes cluster does not have can correct it.
	"no word of families any more": {clientService(object{"ipFamilies": families("IPv6")}), []edit{{"spec.clientService", nil}}, ""},
}
