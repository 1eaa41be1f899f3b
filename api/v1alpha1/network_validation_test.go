package v1alpha1_test

func network(rule string, sources ...any) []edit {
	return []edit{{"spec.networkPolicy", object{rule: append([]any{}, sources...)}}}
}

func block(cidr string) object { return object{"ipBlock": object{"cidr": cidr}} }

func pods(key, value string) object {
	return object{"podSelector": object{"matchLabels": object{key: value}}}
}

var badNetwork = map[string]refusal{
	"a source of nothing":  {network("clients", object{}), "each entry of networkPolicy.clients needs either ipBlock, or podSelector"},
	"no source of clients": {network("clients"), "spec.networkPolicy.clients in body should have at least 1 items"},
	"Pods by an address": {network("metrics", object{"ipBlock": object{"cidr": "10.0.0.0/8"}, "podSelector": object{}}),
		"each entry of networkPolicy.metrics needs either ipBlock"},
	"namespaces by an address": {network("agentAPI", object{"ipBlock": object{"cidr": "10.0.0.0/8"}, "namespaceSelector": object{}}),
		"each entry of networkPolicy.agentAPI needs either ipBlock"},
	"a block that has no address": {network("clients", object{"ipBlock": object{}}), "ipBlock.cidr: Required value"},
}

var goodNetwork = map[string][]edit{
	"a network that is open to all": {{"spec.networkPolicy", object{}}},
	"a network for Pods": network("clients", pods("app", "api"), object{"namespaceSelector": object{}},
		object{"podSelector": object{}, "namespaceSelector": object{}}),
	"a network for addresses":        network("agentAPI", block("203.0.113.0/24"), block("2001:db8::/32")),
	"a network for metrics by label": network("metrics", object{"namespaceSelector": object{"matchExpressions": []any{object{"key": "a", "operator": "Exists"}}}}),
}
