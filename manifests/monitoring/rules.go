package monitoring

import (
	"fmt"
	"strings"
)

// Group is a group of rules, evaluated in order.
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

// The pages that explain the alerts, one section each: those about druid and clusters, and those about members and backups.
const (
	clusterRunbooks = "https://github.com/etcd-druid/druid/blob/main/docs/reference/runbooks.md"
	memberRunbooks  = "https://github.com/etcd-druid/druid/blob/main/docs/reference/runbooks-members.md"
)

// alert is raised after expr was true for the duration wait.
func alert(name, severity, wait, expr, summary, description string) Rule {
	return Rule{
		Alert: name, Expr: expr, For: wait,
		Labels:      map[string]string{"severity": severity},
		Annotations: map[string]string{"summary": summary, "description": description},
	}
}

// Rules returns all rules. Rules about members group by namespace and etcd_cluster, the labels that the scrape sets.
// The label etcd_cluster separates the metrics of these etcds from those of others.
func Rules() []Group {
	return []Group{
		{Name: "etcd-druid.records", Rules: records()},
		{Name: "etcd-druid.druid", Rules: explainedIn(clusterRunbooks, druidAlerts())},
		{Name: "etcd-druid.clusters", Rules: explainedIn(clusterRunbooks, clusterAlerts())},
		{Name: "etcd-druid.members", Rules: explainedIn(memberRunbooks, memberAlerts())},
		{Name: "etcd-druid.backups", Rules: explainedIn(memberRunbooks, backupAlerts())},
	}
}

// explainedIn links each alert to its section of the page. The anchor is as GitHub makes it.
func explainedIn(page string, alerts []Rule) []Rule {
	for _, a := range alerts {
		a.Annotations["runbook_url"] = page + "#" + anchor(a.Alert)
	}
	return alerts
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

// ofCondition names the cluster of an alert about a condition, and describeIt is the command that shows its message.
const (
	ofCondition = "{{ $labels.namespace }}/{{ $labels.etcd_cluster }}"
	describeIt  = "kubectl -n {{ $labels.namespace }} describe etcdcluster {{ $labels.etcd_cluster }}"
)

// conditionAlert is raised for each cluster that has had this status of the condition for longer than seconds. In
// summary, CLUSTER stands for its name. The label namespace of the series is that of druid, so the alert gets that of
// the cluster.
func conditionAlert(name, severity, selector string, seconds int, summary, sentence string) Rule {
	expr := fmt.Sprintf(`label_replace(max by (cluster_namespace, etcd_cluster, reason) `+
		`(time() - etcd_druid_condition_transition_timestamp_seconds{%s}), "namespace", "$1", "cluster_namespace", "(.*)") > %d`, selector, seconds)
	return alert(name, severity, "1m", expr, strings.Replace(summary, "CLUSTER", "etcd cluster "+ofCondition, 1),
		sentence+" ({{ $labels.reason }}). The message of the condition says more: "+describeIt)
}

func druidAlerts() []Rule {
	return []Rule{
		alert("DruidNotLeading", critical, "5m",
			"sum(etcd_druid_leading) == 0 or absent(etcd_druid_leading)",
			"No druid replica is active.",
			"No replica of druid leads, or Prometheus cannot scrape it. Clusters continue to serve, and their containers restart, but druid creates "+
				"no Pods and runs no requested actions."),
		alert("DruidStepsFailing", warning, "15m",
			"sum by (step) (rate(etcd_druid_step_failures_total[10m])) > 0",
			"druid cannot {{ $labels.step }}.",
			"Steps {{ $labels.step }} have failed for 15 minutes. See the error in the log of druid."),
	}
}

func clusterAlerts() []Rule {
	const (
		lost        = `condition="Ready",status="False",reason="QuorumLost"`
		unrecovered = `condition="Degraded",status="True",reason=~"RecoveryProposed|RecoveryRefused"`
		recovering  = `condition="Progressing",status="True",reason="Recovering"`
		forming     = `condition="Ready",status="False",reason="Forming"`
		unknown     = `condition="Ready",status="Unknown"`
		degraded    = `condition="Degraded",status="True",reason!="QuorumLost"` // EtcdClusterQuorumLost reports that one
		progressing = `condition="Progressing",status="True"`
		blocked     = `condition="Progressing",status="False",` +
			`reason=~"RollingUpdateBlocked|UpgradeBlocked|AgentUpdateBlocked|ScaleDownBlocked|ReplaceBlocked|PauseBlocked"`
		stopped     = `condition="Progressing",status="False",reason="DeadlineExceeded"`
		handsOff    = `condition="Progressing",status="False",reason="HandsOff"`
		neverFormed = `condition="Progressing",status="False",reason="BootstrapFailed"`
		together    = `condition="Spread",status="False"`
		auth        = `condition="AuthReady",status="False"`
		uncertified = `condition="CertificatesReady",status="False"`
		cutOff      = `condition="Ready",status="False",reason="ClientsCutOff"`
	)
	return []Rule{
		conditionAlert("EtcdClusterQuorumLost", critical, lost, 60,
			"CLUSTER has no quorum.", "Writes are refused"),
		conditionAlert("EtcdClusterRecoveryNeedsAction", critical, unrecovered, 60,
			"CLUSTER has no quorum, and its recovery waits for you.", "status.recovery has the plan and the command that approves it, or says what to do first"),
		conditionAlert("EtcdClusterRecoverySlow", critical, recovering, 600,
			"The recovery of CLUSTER has not completed within 10 minutes.", "The message of status.recovery names what druid waits for"),
		conditionAlert("EtcdClusterNotFormed", warning, forming, 900,
			"CLUSTER has not formed within 15 minutes.", "Its first member is not ready"),
		conditionAlert("EtcdClusterUnknown", warning, unknown, 600,
			"The state of CLUSTER is unknown.", "Its members have not been reachable for 10 minutes"),
		conditionAlert("EtcdClusterDegraded", warning, degraded, 900,
			"CLUSTER does not match its spec.", "Manual action might be required"),
		conditionAlert("EtcdClusterProgressSlow", warning, progressing, 3600,
			"CLUSTER has been changing for an hour.", "It does not reach its spec"),
		conditionAlert("EtcdClusterChangeBlocked", warning, blocked, 900,
			"A change of CLUSTER has been blocked for 15 minutes.", "Fix the cause in its status first"),
		conditionAlert("EtcdClusterDeadlineExceeded", warning, stopped, 60,
			"A change of CLUSTER exceeded its progress deadline.", "druid stopped it; it continues with the next edit of the spec"),
		conditionAlert("EtcdClusterHandsOff", warning, handsOff, 24*3600,
			"druid has taken no action for CLUSTER for 24 hours.", "Annotation etcd.druid.dev/hands-off is set; the message has the reason"),
		conditionAlert("EtcdClusterBootstrapFailed", critical, neverFormed, 60,
			"CLUSTER, which is new, did not form before its progress deadline.", "druid takes no further action"),
		conditionAlert("EtcdMembersColocated", warning, together, 3600,
			"Members of CLUSTER have shared a node for an hour.", "The loss of one node would affect more than one member"),
		conditionAlert("EtcdAuthNotReady", warning, auth, 300,
			"Authentication of CLUSTER is not as required.", "A user cannot log in, or etcd does not admit the agents"),
		conditionAlert("EtcdCertificatesNotReady", warning, uncertified, 900,
			"The certificates of CLUSTER cannot be used or renewed.", "Members keep their certificates until these expire"),
		alert("EtcdAuthorityExpiring", critical, "15m",
			`label_replace(max by (cluster_namespace, etcd_cluster, plane) (etcd_druid_authority_remaining_ratio), "namespace", "$1", `+
				`"cluster_namespace", "(.*)") < 0.2`,
			"The {{ $labels.plane }} certificate authority of etcd cluster "+ofCondition+" was not replaced.",
			"Share of its lifetime that is left: {{ $value | humanizePercentage }}. Below 0 it has expired, and members refuse its certificates. "+
				"The field message in status.tls says what the replacement waits for: "+describeIt),
		conditionAlert("EtcdClientsCutOff", warning, cutOff, 24*3600,
			"Clients of CLUSTER have been cut off for 24 hours.", "A quorum serves, and the client Service has no endpoint"),
	}
}

func memberAlerts() []Rule {
	const where = "{{ $labels.namespace }}/{{ $labels.etcd_cluster }}"
	const member = "{{ $labels.namespace }}/{{ $labels.pod }}"
	return []Rule{
		alert("EtcdNoLeader", critical, "1m",
			`max by (namespace, etcd_cluster) (etcd_server_has_leader{etcd_cluster!=""}) == 0`,
			"etcd cluster "+where+" has no leader.", "No reachable member knows a leader, so etcd refuses writes."),
		alert("EtcdMemberNotHealthy", warning, "10m",
			"max by (namespace, etcd_cluster, pod) (etcd_agent_member_healthy) == 0",
			"etcd member "+member+" is not healthy.", "Its agent has found etcd unhealthy for 10 minutes."),
		alert("EtcdLeaderChangesOften", warning, "5m",
			`max by (namespace, etcd_cluster) (increase(etcd_server_leader_changes_seen_total{etcd_cluster!=""}[15m])) >= 4`,
			"etcd cluster "+where+" changes its leader frequently.", "{{ $value | humanize }} changes in 15 minutes. Each change interrupts writes for a moment."),
		alert("EtcdAlarmRaised", critical, "1m",
			"max by (namespace, etcd_cluster, alarm) (etcd_agent_member_alarm) == 1",
			"etcd cluster "+where+" has the alarm {{ $labels.alarm }}.", "NOSPACE: etcd refuses writes. CORRUPT: the data of the members differs."),
		alert("EtcdDataDiffers", critical, "1m",
			`max by (namespace, etcd_cluster, verdict) (etcd_agent_comparison{verdict=~"Differing|Tie"}) == 1`,
			"The data of the members of etcd cluster "+where+" differs.",
			"Differing: the agent replaces the member whose data differs. Tie: no majority has the same data, and you must decide."),
		alert("EtcdQuotaNearlyUsed", warning, "10m", recordQuota+" > 0.85",
			"etcd cluster "+where+" has used {{ $value | humanizePercentage }} of its quota.", "At 100 % etcd refuses writes."),
		alert("EtcdVolumeNearlyFull", warning, "10m",
			"min by (namespace, etcd_cluster, pod) (etcd_agent_volume_free_bytes / (etcd_agent_volume_size_bytes > 0)) < 0.15",
			"The volume of etcd member "+member+" has {{ $value | humanizePercentage }} left.", "etcd cannot run on a full volume."),
		alert("EtcdDiskSlow", warning, "10m", recordFsync+" > 0.5",
			"The disk of etcd member "+member+" is slow.",
			"The 99th percentile of WAL syncs is {{ $value | humanizeDuration }}. Half a second causes elections."),
		alert("EtcdCertificateRejected", warning, "15m",
			"max by (namespace, etcd_cluster, pod, plane) (etcd_agent_certificate_rejected) == 1",
			"The {{ $labels.plane }} certificates in the Secrets of etcd member "+member+" are not usable.",
			"The member keeps its previous certificates until these expire. Condition CertificatesReady says what is wrong."),
		alert("EtcdCertificateExpiring", critical, "15m",
			"min by (namespace, etcd_cluster, pod, plane) ((etcd_agent_certificate_expiration_timestamp_seconds - time()) "+
				"/ (etcd_agent_certificate_lifetime_seconds >= 86400)) < 0.2",
			"The {{ $labels.plane }} certificate of etcd member "+member+" was not renewed.",
			"{{ $value | humanizePercentage }} of its lifetime is left. After that, no new connection succeeds."),
		alert("EtcdAgentNotRenewing", warning, "5m",
			`max by (namespace, etcd_cluster, pod) (rate(etcd_agent_lease_renewals_total{result="failed"}[5m])) > 0 `+
				`unless max by (namespace, etcd_cluster, pod) (rate(etcd_agent_lease_renewals_total{result="renewed"}[5m])) > 0`,
			"The agent of etcd member "+member+" cannot renew its Lease.", "druid will treat the member as lost after a while, although etcd may be serving."),
		alert("EtcdAgentTasksRestarting", warning, "5m",
			"sum by (namespace, etcd_cluster, pod, loop) (increase(etcd_agent_loop_restarts_total[15m])) > 3",
			"Task {{ $labels.loop }} of the agent of etcd member "+member+" fails repeatedly.", "See the error in the log of the agent."),
		alert("EtcdAgentConfigInvalid", warning, "10m",
			"min by (namespace, etcd_cluster, pod) (etcd_agent_config_valid) == 0",
			"The agent of etcd member "+member+" rejects its configuration.", "The agent uses an older configuration. See the reason in its log."),
	}
}

func backupAlerts() []Rule {
	const (
		notReady   = `condition="BackupReady",status="False"`
		broken     = `condition="BackupVerified",status="False"`
		unverified = `condition="BackupVerified",status="Unknown",reason!="Paused"`
	)
	return []Rule{
		conditionAlert("EtcdBackupNotReady", critical, notReady, 300,
			"CLUSTER is not backed up.", "If the volumes are lost, so are acknowledged writes"),
		conditionAlert("EtcdBackupVerificationFailed", critical, broken, 60,
			"The newest backups of CLUSTER are broken.", "A restore would not return the data of etcd"),
		conditionAlert("EtcdBackupNotVerified", warning, unverified, 172800,
			"The backups of CLUSTER have not been verified for two days.", "It is unknown whether they can be restored"),
		alert("EtcdBackupAttemptsFailing", warning, "15m",
			"sum by (namespace, etcd_cluster, kind) (rate(etcd_agent_backup_failures_total[10m])) > 0",
			"Backups ({{ $labels.kind }}) of etcd cluster {{ $labels.namespace }}/{{ $labels.etcd_cluster }} fail.",
			"Attempts have failed for 15 minutes. See the error in the Leases of the backups."),
	}
}
