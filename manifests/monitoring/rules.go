package monitoring

// Group is a group of rules, evaluated in their order.
type Group struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Rule records a series or raises an alert.
type Rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// The severities: a critical alert wakes someone up, a warning waits for working hours.
const (
	critical = "critical"
	warning  = "warning"
)

// runbooks is where the alerts are explained, one section each.
const runbooks = "https://github.com/etcd-druid/druid/blob/main/docs/reference/runbooks.md"

// alert is raised when expr held for the time wait. The runbook's anchor is made as GitHub makes it.
func alert(name, severity, wait, expr, summary, description string) Rule {
	return Rule{
		Alert: name, Expr: expr, For: wait,
		Labels: map[string]string{"severity": severity},
		Annotations: map[string]string{
			"summary": summary, "description": description, "runbook_url": runbooks + "#" + anchor(name),
		},
	}
}

// Rules are all rules. Rules about members group by namespace and etcd_cluster, the labels that the scrape gives; etcd's own
// metrics are reported from those of other etcds by the latter.
func Rules() []Group {
	return []Group{
		{Name: "etcd-druid.records", Rules: records()},
		{Name: "etcd-druid.druid", Rules: druidAlerts()},
		{Name: "etcd-druid.clusters", Rules: clusterAlerts()},
		{Name: "etcd-druid.members", Rules: memberAlerts()},
		{Name: "etcd-druid.backups", Rules: backupAlerts()},
	}
}

// Names of the recorded series, level:metric:operation.
const (
	recordHealthy = "namespace_etcd_cluster:etcd_agent_member_healthy:sum"
	recordQuota   = "namespace_etcd_cluster:etcd_server_quota_used:max_ratio"
	recordRPO     = "namespace_etcd_cluster:etcd_agent_backup_rpo_seconds:max"
	recordFsync   = "namespace_etcd_cluster_pod:etcd_disk_wal_fsync_duration_seconds:p99_5m"
	recordCommit  = "namespace_etcd_cluster_pod:etcd_disk_backend_commit_duration_seconds:p99_5m"
)

func records() []Rule {
	p99 := func(histogram string) string {
		return "histogram_quantile(0.99, sum by (namespace, etcd_cluster, pod, le) (rate(" + histogram + `_bucket{etcd_cluster!=""}[5m])))`
	}
	return []Rule{
		{Record: recordHealthy, Expr: "sum by (namespace, etcd_cluster) (etcd_agent_member_healthy)"},
		{
			Record: recordQuota,
			Expr: `max by (namespace, etcd_cluster) (etcd_mvcc_db_total_size_in_bytes{etcd_cluster!=""} ` +
				`/ (etcd_server_quota_backend_bytes{etcd_cluster!=""} > 0))`,
		},
		{Record: recordRPO, Expr: "max by (namespace, etcd_cluster) (etcd_agent_backup_rpo_seconds)"},
		{Record: recordFsync, Expr: p99("etcd_disk_wal_fsync_duration_seconds")},
		{Record: recordCommit, Expr: p99("etcd_disk_backend_commit_duration_seconds")},
	}
}
