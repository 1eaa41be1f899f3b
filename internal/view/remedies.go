package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// remedy is what a user does about the reason of a condition. NAMESPACE and CLUSTER stand for those of the EtcdCluster in the command. MEMBER
// stands for the member that the message of the condition names first, and without one there is no command.
type remedy struct{ do, command, page string }

const (
	rescue   = "how-to/rescue/"
	manual   = rescue + "manual-actions.md"
	notReady = rescue + "pod-not-ready.md"
	upgrade  = rescue + "stuck-upgrade.md"
	failing  = rescue + "backups-failing.md"

	describePod = "kubectl -n NAMESPACE describe pod MEMBER"
	listMembers = "kubectl -n NAMESPACE get pods,leases -l etcd.druid.dev/cluster=CLUSTER"
)

// remedies are by reason. A reason that is not here has its own section in the pages about conditions. The condition has the details, so that
// no remedy repeats them.
var remedies = map[string]remedy{
	v1alpha1.ReasonUnknown:         {"Check that the members run, and that they reach the API server.", listMembers, ""},
	v1alpha1.ReasonClientsCutOff:   {"Set spec.clientService.serving to true when clients may connect again.", "", "how-to/run/cut-off-clients.md"},
	v1alpha1.ReasonMembersUnknown:  {"Find out why MEMBER does not renew its Lease.", describePod, notReady},
	v1alpha1.ReasonMembersNotReady: {"Find out why MEMBER is not ready.", describePod, notReady},

	v1alpha1.ReasonPaused:   {"Resume the cluster when you need it.", "kubectl druid -n NAMESPACE resume CLUSTER --replicas NUMBER", "how-to/run/pause.md#resume"},
	v1alpha1.ReasonHandsOff: {"Let druid act again when your work is done.", "kubectl druid -n NAMESPACE hands-off CLUSTER --end", "how-to/run/hands-off.md"},

	v1alpha1.ReasonBootstrapFailed:      {"Delete this EtcdCluster, and create it again.", "", "how-to/run/edit.md#recover-from-bootstrapfailed"},
	v1alpha1.ReasonDeadlineExceeded:     {"Resolve what stopped the change, and let druid continue.", "", "how-to/run/edit.md#continue-after-deadlineexceeded"},
	v1alpha1.ReasonScaleDownBlocked:     {"Resolve what blocks the removal of a member.", "", rescue + "stuck-scale-down.md"},
	v1alpha1.ReasonReplaceBlocked:       {"Resolve what blocks the replacement of the member.", "", "how-to/run/replace-member.md#when-it-waits"},
	v1alpha1.ReasonPauseBlocked:         {"Resolve what blocks the pause.", "", "how-to/run/pause.md#pauseblocked"},
	v1alpha1.ReasonRollingUpdateBlocked: {"Resolve what blocks the rolling update.", "", upgrade},
	v1alpha1.ReasonUpgradeBlocked:       {"Resolve what blocks the upgrade.", "", upgrade},
	v1alpha1.ReasonAgentUpdateBlocked:   {"Resolve what blocks the update of the agents.", "", upgrade},

	v1alpha1.ReasonRecordUnreadable: {"Correct the cluster record, or delete its Lease: druid creates it again.", "", manual},
	v1alpha1.ReasonRecordLost: {"Check that each agent could report. Delete nothing before that.", "",
		manual + "#cluster-record-lost"},
	v1alpha1.ReasonSnapshotUnusable: {"Correct spec.bootstrap.restore in a new EtcdCluster.", "", "how-to/back-up/restore.md#restore-an-etcdsnapshot"},
	v1alpha1.ReasonRecoveryProposed: {"Read druid's plan, and approve it.", "kubectl druid -n NAMESPACE recover CLUSTER",
		rescue + "quorum-lost.md#check-the-plan"},
	v1alpha1.ReasonRecoveryRefused: {"Remove what keeps druid from a recovery.", "", rescue + "recovery-waits.md#when-druid-refuses"},
	v1alpha1.ReasonQuorumLost:      {"Bring back the members that are down.", listMembers, rescue + "quorum-lost.md#bring-members-back"},
	v1alpha1.ReasonDataLost:        {"Read the plan that druid shows in status.recovery, and approve it.", "", manual + "#data-lost"},
	v1alpha1.ReasonDataUndecided:   {"Decide which member has the good data.", "", rescue + "data-differs.md#no-majority-has-the-same-data"},
	v1alpha1.ReasonDataDiffers: {"Look for the cause on the node of MEMBER. Its agent replaces the data.", "",
		rescue + "data-differs.md#a-member-differs-from-a-majority"},
	v1alpha1.ReasonAlarmRaised:          {"Resolve the alarm of etcd.", "", rescue + "nospace.md"},
	v1alpha1.ReasonObjectNotOwned:       {"Delete the object if nothing uses it. Otherwise give this EtcdCluster another name.", "", manual + "#object-not-owned"},
	v1alpha1.ReasonAPIRequestRejected:   {"Raise the quota, or correct the policy that rejects the request.", "", manual},
	v1alpha1.ReasonLeaseUnreadable:      {"Correct what cannot be parsed on the Lease of MEMBER.", "", manual + "#unreadable-removal-request"},
	v1alpha1.ReasonVolumeDeleted:        {"Save the data of MEMBER with an EtcdSnapshot. Do not delete its Pod before.", "", manual + "#volume-deleted"},
	v1alpha1.ReasonStorageClassMissing:  {"Create the StorageClass.", "", notReady},
	v1alpha1.ReasonVolumePending:        {"Create a volume for MEMBER, or check the driver of its StorageClass.", "", notReady},
	v1alpha1.ReasonVolumeNotExpanded:    {"Find out why the volume of MEMBER does not grow.", "", "how-to/run/resize-volumes.md#if-a-volume-does-not-grow"},
	v1alpha1.ReasonPodUnschedulable:     {"Add a node for MEMBER, or change the constraints of its placement.", describePod, "how-to/run/place-on-nodes.md"},
	v1alpha1.ReasonImagePullFailed:      {"Correct the image, or the Secret with which it is pulled.", describePod, notReady},
	v1alpha1.ReasonContainerCannotStart: {"Correct what keeps MEMBER from starting.", describePod, notReady},
	v1alpha1.ReasonMemberCannotStart:    {"Correct what keeps MEMBER from starting.", describePod, notReady},
	v1alpha1.ReasonAgentNotRunning:      {"Correct --agent-image of druid.", "", notReady},
	v1alpha1.ReasonMemberStuck:          {"Find out why the etcd of MEMBER is not ready.", "kubectl -n NAMESPACE logs MEMBER -c etcd", notReady},
	v1alpha1.ReasonNodeLost:             {"Bring back the node of MEMBER, or declare it lost.", "", rescue + "node-lost.md"},
	v1alpha1.ReasonOrphanedObjects:      {"Check in etcd that the objects belong to no member before you delete them.", "", rescue + "orphaned-objects.md"},
	v1alpha1.ReasonSlowDisk:             {"Use a faster disk for MEMBER, or move other load away from it.", "", rescue + "slow-disk.md"},
	v1alpha1.ReasonAuthRequiredNotConfigured: {"Set spec.auth.enabled to true, with TLS of clients and peers.", "",
		"how-to/back-up/restore.md#if-the-restore-is-blocked"},

	v1alpha1.ReasonFullBackupFailed:       {"Find out why the backup fails.", "", failing},
	v1alpha1.ReasonDeltaBackupFailed:      {"Find out why the backup fails.", "", failing},
	v1alpha1.ReasonBackupStoreNotAttached: {"Check that the rolling update goes on. It gives the Pods access to the backup store.", "", failing},
	v1alpha1.ReasonBackupClaimMissing:     {"Create the PersistentVolumeClaim of the backup store.", "", failing},
	v1alpha1.ReasonBackupClaimNotShared:   {"Use a PersistentVolumeClaim to which all members can write, or a bucket.", "", failing},
	v1alpha1.ReasonBackupSpecInvalid:      {"Correct spec.backup.", "", failing},
	v1alpha1.ReasonBackupSuperseded:       {"Set a prefix in spec.backup.store that no other cluster uses.", "", failing},
	v1alpha1.ReasonVerificationFailed: {"Look for the cause of the invalid object. An agent makes and verifies a new full backup.", "",
		"how-to/back-up/verify.md"},

	v1alpha1.ReasonCertificatesRejected:    {"Correct the certificates in the Secret.", "", "how-to/secure/tls.md#check-the-certificates"},
	v1alpha1.ReasonCertManagerNotInstalled: {"Install cert-manager.", "", "reference/runbooks.md#etcdcertificatesnotready"},
	v1alpha1.ReasonAuthorityLost:           {"Restore the Secret with the certificate authority.", "", "reference/runbooks.md#etcdcertificatesnotready"},
	v1alpha1.ReasonAuthIncomplete:          {"Add what is missing for the user.", "", "how-to/secure/authentication.md"},
	v1alpha1.ReasonAuthAccessDenied:        {"Let etcd admit the agents.", "", "how-to/secure/authentication.md"},
}

// backupRemedies are those of a failed backup, by its cause. The message of the condition has the same words (package druid/policy).
var backupRemedies = map[leases.BackupCause]string{
	leases.BackupUnauthorized: "Correct the credentials of the backup store, or their permissions.",
	leases.BackupNotFound:     "Create the bucket or the directory, or correct spec.backup.store.",
	leases.BackupUnreachable:  "Check the endpoint of the backup store, and the network and the NetworkPolicies on the path to it.",
	leases.BackupThrottled:    "Raise the request limit of the backup store, or increase spec.backup.delta.period.",
	leases.BackupFull:         "Enlarge the backup store or its quota, or keep fewer backups with spec.backup.retention.",
	leases.BackupKeyMissing:   "Restore the key in the Secret of spec.backup.encryption.keySecretRef, or the key of spec.backup.store.s3.sse.",
}

// remedy returns what to do about a condition. A druid that is newer than the plugin can have a reason that is not known here.
func (v Cluster) remedy(c Condition) Step {
	r, known := remedies[c.Reason]
	if !known {
		return Step{Do: fmt.Sprintf("Do what condition %s says.", c.Type), Command: v.describe(), Docs: c.Docs}
	}
	step := Step{Do: r.do, Command: r.command, Docs: c.Docs}
	if r.page != "" {
		step.Docs = docs + r.page
	}
	if failed := c.Reason == v1alpha1.ReasonFullBackupFailed || c.Reason == v1alpha1.ReasonDeltaBackupFailed; failed && v.Backup != nil {
		step.Do = cmp.Or(backupRemedies[leases.BackupCause(v.Backup.Cause)], step.Do)
	}
	member := v.namedIn(c.Message)
	if member == "" && strings.Contains(step.Command, "MEMBER") {
		step.Command = ""
	}
	named := "the member"
	if member != "" {
		named = "member " + member
	}
	step.Do = strings.ReplaceAll(step.Do, "MEMBER", named)
	step.Command = strings.NewReplacer("NAMESPACE", v.Namespace, "CLUSTER", v.Name, "MEMBER", member).Replace(step.Command)
	return step
}

// namedIn returns the member that a message names first, or "".
func (v Cluster) namedIn(message string) (name string) {
	first := len(message)
	for _, m := range v.Members {
		if i := strings.Index(message, m.Name); i >= 0 && i < first {
			name, first = m.Name, i
		}
	}
	return name
}
