package monitoring

// How Prometheus finds druid and the members. Both forms give the same labels: namespace and pod, and etcd_cluster for members.
const (
	labelCluster = "etcd.druid.dev/cluster"
	metaCluster  = "__meta_kubernetes_pod_label_etcd_druid_dev_cluster"
	metaPort     = "__meta_kubernetes_pod_container_port_name"
)

// object is a part of a document, whose keys are written in the order of the alphabet.
type object = map[string]any

func meta(name string) object {
	return object{"name": name, "namespace": "druid-system", "labels": object{"app.kubernetes.io/name": "druid"}}
}

// podMonitors are for the Prometheus Operator.
func podMonitors() []object {
	monitor := func(name string, selector, spec object) object {
		spec["selector"] = selector
		return object{"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": meta(name), "spec": spec}
	}
	relabel := []any{object{"sourceLabels": []any{metaCluster}, "targetLabel": "etcd_cluster"}}
	return []object{
		monitor("druid", object{"matchLabels": object{"app.kubernetes.io/name": "druid"}},
			object{"podMetricsEndpoints": []any{object{"port": "metrics"}}}),
		monitor("etcd-members", object{"matchExpressions": []any{object{"key": labelCluster, "operator": "Exists"}}}, object{
			"namespaceSelector": object{"any": true},
			"podMetricsEndpoints": []any{
				object{"port": "agent", "relabelings": relabel},
				object{"port": "metrics", "relabelings": relabel},
			},
		}),
	}
}

// scrapeConfigs are for a Prometheus without the Operator.
func scrapeConfigs() object {
	keep := func(source, regex string) object {
		return object{"source_labels": []any{source}, "regex": regex, "action": "keep"}
	}
	take := func(source, target string) object {
		return object{"source_labels": []any{source}, "target_label": target}
	}
	place := []any{take("__meta_kubernetes_namespace", "namespace"), take("__meta_kubernetes_pod_name", "pod")}
	job := func(name string, discovery object, rules ...any) object {
		discovery["role"] = "pod"
		return object{"job_name": name, "kubernetes_sd_configs": []any{discovery}, "relabel_configs": append(rules, place...)}
	}
	return object{"scrape_configs": []any{
		job("druid", object{"namespaces": object{"names": []any{"druid-system"}}},
			keep("__meta_kubernetes_pod_label_app_kubernetes_io_name", "druid"), keep(metaPort, "metrics")),
		job("etcd-members", object{"selectors": []any{object{"role": "pod", "label": labelCluster}}},
			keep(metaPort, "agent|metrics"), take(metaCluster, "etcd_cluster")),
	}}
}
