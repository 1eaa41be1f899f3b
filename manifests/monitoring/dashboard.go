package monitoring

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// gridWidth is the number of columns of Grafana's grid.
const gridWidth = 24

// kind is what a panel looks like: the name of Grafana's panel, and its size in columns and lines of the grid.
type kind struct {
	name         string
	width, lines int
	// states are what a timeline says for 0 and 1, or the series of a graph that have a color of their own.
	states []state
}

// state is a text and a color of Grafana. Grafana chooses a color for a state without one, and that can be the color of the other state.
type state struct{ text, color string }

// A graph shows values over time, and a wide one has space for a long legend. A stat shows one present value, a table the present series
// with their labels, and a timeline which of two states each series had when.
var (
	graph = kind{name: "timeseries", width: 8, lines: 8}
	wide  = kind{name: "timeseries", width: 12, lines: 8}
	stat  = kind{name: "stat", width: 4, lines: 4}
	table = kind{name: "table", width: gridWidth, lines: 9}
)

func timeline(zero, one state) kind {
	return kind{name: "state-timeline", width: 8, lines: 6, states: []state{zero, one}}
}

func colored(states ...state) kind {
	return kind{name: wide.name, width: wide.width, lines: wide.lines, states: states}
}

// panel of the dashboard.
type panel struct {
	title, unit string
	// queries by legend.
	queries []query
	kind    kind
}

type query struct{ expr, legend string }

const (
	ofCluster = `namespace="$namespace",etcd_cluster="$cluster"`
	anyMember = "{{pod}}"
)

// fleetPanels show all clusters, with metrics of druid.
func fleetPanels() []panel {
	// The number of clusters is 0, and not absent, if none is in that state.
	counted := func(title, selector string) panel {
		return panel{title, "short", []query{{"sum(etcd_druid_clusters{" + selector + "}) or vector(0)", title}}, stat}
	}
	return []panel{
		counted("Clusters", `condition="Ready"`),
		counted("Ready", `condition="Ready",status="True"`),
		counted("Without quorum", `condition="Ready",reason="QuorumLost"`),
		counted("Degraded", `condition="Degraded",status="True"`),
		counted("Not backed up", `condition="BackupReady",status="False"`),
		{"Leading druid replicas", "short", []query{{"sum(etcd_druid_leading)", "leading replicas"}}, stat},
		{"Clusters that are not at rest, by condition, and for how long", "s", []query{{
			"max by (cluster_namespace, etcd_cluster, condition, status, reason) (time() - etcd_druid_condition_transition_timestamp_seconds)", "",
		}}, table},
		{"Clusters that are not ready", "short", []query{{`sum by (reason) (etcd_druid_clusters{condition="Ready",status!="True"})`, "{{reason}}"}}, graph},
		{"Degraded clusters", "short", []query{{`sum by (reason) (etcd_druid_clusters{condition="Degraded",status="True"})`, "{{reason}}"}}, graph},
		{"Clusters with backup problems", "short",
			[]query{{`sum by (condition, reason) (etcd_druid_clusters{condition=~"BackupReady|BackupVerified",status!="True"})`, "{{condition}}: {{reason}}"}}, graph},
		{"Members", "short", []query{{"sum by (status) (etcd_druid_members)", "{{status}}"}},
			colored(state{"Ready", "green"}, state{"NotReady", "red"}, state{"Unknown", "yellow"})},
		{"EtcdSnapshots", "short", []query{{"sum by (phase) (etcd_druid_snapshots)", "{{phase}}"}},
			colored(state{"Succeeded", "green"}, state{"Failed", "red"}, state{"Running", "blue"}, state{"Pending", "yellow"})},
		{"Steps of druid", "short", []query{
			{"sum by (step) (increase(etcd_druid_steps_total[$__rate_interval]))", "{{step}}"},
			{"sum by (step) (increase(etcd_druid_step_failures_total[$__rate_interval]))", "{{step}} failed"},
		}, wide},
		{"Events of druid", "short", []query{{"sum by (type, reason) (increase(etcd_druid_events_total[$__rate_interval]))", "{{type}} {{reason}}"}}, wide},
	}
}

// clusterPanels show one cluster, with metrics of its agents and of etcd.
func clusterPanels() []panel {
	rate := func(metric string) string { return "rate(" + metric + "{" + ofCluster + "}[$__rate_interval])" }
	is := func(metric string) string { return metric + "{" + ofCluster + "}" }
	return []panel{
		{"Healthy members", "short", []query{{is("etcd_agent_member_healthy"), anyMember}}, timeline(state{"not healthy", "red"}, state{"healthy", "green"})},
		{"Leader", "short", []query{{is("etcd_server_is_leader"), anyMember}}, timeline(state{"follower", "super-light-blue"}, state{"leader", "blue"})},
		{"Alarms", "short", []query{{"max by (alarm) (" + is("etcd_agent_member_alarm") + ")", "{{alarm}}"}},
			timeline(state{"none", "green"}, state{"raised", "red"})},
		{"Committed and failed proposals", "ops", []query{
			{"max(" + rate("etcd_server_proposals_committed_total") + ")", "committed"},
			{"sum(" + rate("etcd_server_proposals_failed_total") + ")", "failed"},
		}, graph},
		{"WAL sync duration, 99 %", "s", []query{{is(recordFsync), anyMember}}, graph},
		{"Database commit duration, 99 %", "s", []query{{is(recordCommit), anyMember}}, graph},
		{"Database", "bytes", []query{
			{is("etcd_mvcc_db_total_size_in_bytes"), anyMember},
			{is("etcd_mvcc_db_total_size_in_use_in_bytes"), anyMember + " in use"},
			{"min(" + is("etcd_server_quota_backend_bytes") + ")", "quota"},
		}, wide},
		{"Free space of the volumes", "bytes", []query{{is("etcd_agent_volume_free_bytes"), anyMember}}, wide},
		{"Leader changes", "short", []query{{"max(increase(" + is("etcd_server_leader_changes_seen_total") + "[$__rate_interval]))", "changes"}}, graph},
		{"Age of the oldest unsaved write", "s", []query{{is(recordRPO), "age"}}, graph},
		{"Saved", "Bps", []query{{"sum by (kind) (" + rate("etcd_agent_backup_bytes_total") + ")", "{{kind}}"}}, graph},
		{"Backups and verifications", "short", []query{
			{"sum by (kind) (increase(" + is("etcd_agent_backup_failures_total") + "[$__rate_interval]))", "{{kind}} failed"},
			{"sum by (verdict) (increase(" + is("etcd_agent_backup_verifications_total") + "[$__rate_interval]))", "verification: {{verdict}}"},
		}, wide},
		{"Defragmentations", "s", []query{{"sum by (member, result) (increase(" + is("etcd_agent_defragmentation_seconds_sum") + "[$__rate_interval]))",
			"{{member}} {{result}}"}}, wide},
		{"Decisions of the agents", "short", []query{
			{"sum by (table, rule) (increase(" + is("etcd_agent_decisions_total") + "[$__rate_interval]))", "{{table}}: {{rule}}"}}, wide},
		{"Lease renewals", "ops", []query{{"sum by (pod, result) (" + rate("etcd_agent_lease_renewals_total") + ")", "{{pod}} {{result}}"}}, wide},
	}
}

func dashboard() object {
	var panels []any
	line := 0
	add := func(row string, all []panel) {
		panels = append(panels, object{
			"id": len(panels) + 1, "type": "row", "title": row, "collapsed": false, "panels": []any{},
			"gridPos": object{"x": 0, "y": line, "w": gridWidth, "h": 1},
		})
		line++
		column, lines := 0, 0
		for _, p := range all {
			if column+p.kind.width > gridWidth {
				line, column, lines = line+lines, 0, 0
			}
			panels = append(panels, p.json(len(panels)+1, column, line))
			column, lines = column+p.kind.width, max(lines, p.kind.lines)
		}
		line += lines
	}
	add("All clusters", fleetPanels())
	add("Cluster $namespace/$cluster", clusterPanels())
	return object{
		"uid": "etcd-druid", "title": "etcd by druid", "tags": []any{"etcd", "druid"},
		"schemaVersion": 39, "version": 1, "editable": true, "refresh": "30s",
		"time":       object{"from": "now-3h", "to": "now"},
		"templating": object{"list": variables()},
		"panels":     panels,
	}
}

func variables() []any {
	of := func(name, label, ask string) object {
		return object{
			"name": name, "label": label, "type": "query", "refresh": 2, "sort": 1,
			"datasource": source(), "definition": ask, "query": object{"query": ask, "refId": name},
		}
	}
	return []any{
		object{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		of("namespace", "Namespace", "label_values(etcd_agent_member_healthy, namespace)"),
		of("cluster", "Cluster", `label_values(etcd_agent_member_healthy{namespace="$namespace"}, etcd_cluster)`),
	}
}

func source() object { return object{"type": "prometheus", "uid": "${datasource}"} }

func (p panel) json(id, x, y int) object {
	var targets []any
	for i, q := range p.queries {
		target := object{"refId": string(rune('A' + i)), "expr": q.expr, "legendFormat": q.legend, "datasource": source()}
		if p.kind.name == table.name {
			target["format"], target["instant"] = "table", true
		}
		targets = append(targets, target)
	}
	defaults, overrides := object{"unit": p.unit, "min": 0}, []any{}
	if p.unit == "short" {
		defaults["decimals"] = 0 // it counts whole things
	}
	for _, s := range p.kind.states {
		overrides = append(overrides, object{
			"matcher":    object{"id": "byName", "options": s.text},
			"properties": []any{object{"id": "color", "value": object{"mode": "fixed", "fixedColor": s.color}}},
		})
	}
	drawn := object{
		"id": id, "type": p.kind.name, "title": p.title, "datasource": source(), "targets": targets,
		"gridPos":     object{"x": x, "y": y, "w": p.kind.width, "h": p.kind.lines},
		"fieldConfig": object{"defaults": defaults, "overrides": overrides},
	}
	switch p.kind.name {
	case graph.name:
		drawn["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi"}}
	case stat.name:
		drawn["options"] = object{"reduceOptions": object{"calcs": []any{"lastNotNull"}}, "colorMode": "none", "graphMode": "area"}
	case table.name:
		drawn["transformations"] = []any{object{"id": "organize", "options": object{
			"excludeByName": object{"Time": true},
			"indexByName":   object{"cluster_namespace": 0, "etcd_cluster": 1, "condition": 2, "status": 3, "reason": 4, "Value": 5},
			"renameByName":  object{"cluster_namespace": "namespace", "etcd_cluster": "cluster", "Value": "for"},
		}}}
		drawn["options"] = object{"sortBy": []any{object{"displayName": "for", "desc": true}}}
	default: // a timeline
		states := object{}
		for value, s := range p.kind.states {
			states[fmt.Sprint(value)] = object{"text": s.text, "color": s.color}
		}
		drawn["fieldConfig"] = object{"overrides": []any{}, "defaults": object{"mappings": []any{object{"type": "value", "options": states}}}}
		drawn["options"] = object{"mergeValues": true, "showValue": "auto", "legend": object{"showLegend": false}}
	}
	return drawn
}

// How Prometheus finds druid and the members. Both forms give the same labels: namespace and pod, and etcd_cluster for members.
const (
	labelCluster = "etcd.druid.dev/cluster"
	metaCluster  = "__meta_kubernetes_pod_label_etcd_druid_dev_cluster"
	metaPort     = "__meta_kubernetes_pod_container_port_name"
)

// object is a part of a document. Its keys are written in alphabetical order.
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

// Files returns all files of the folder, by name.
func Files() (map[string]string, error) {
	files := map[string]string{}
	rules := object{"groups": Rules()}
	for name, documents := range map[string][]object{
		"rules.yaml": {rules},
		"prometheusrule.yaml": {{
			"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": meta("druid"), "spec": rules,
		}},
		"podmonitors.yaml": podMonitors(),
		"scrape.yaml":      {scrapeConfigs()},
	} {
		var parts []string
		for _, d := range documents {
			raw, err := yaml.Marshal(d)
			if err != nil {
				return nil, fmt.Errorf("encode %s: %w", name, err)
			}
			parts = append(parts, string(raw))
		}
		files[name] = "# Generated by go generate from the code next to it: change that.\n" + strings.Join(parts, "---\n")
	}
	raw, err := json.MarshalIndent(dashboard(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode dashboard.json: %w", err)
	}
	files["dashboard.json"] = string(raw) + "\n"
	return files, nil
}

// anchor returns the anchor of a heading of a single word, as GitHub makes it.
func anchor(heading string) string { return strings.ToLower(heading) }
