package v1alpha1

// Condition types of an EtcdCluster.
const (
	// ConditionReady is True while a quorum of voters serves clients, and spec.clientService.serving is not false.
	ConditionReady = "Ready"
	// ConditionAllMembersReady is True while every desired member is a ready voter.
	ConditionAllMembersReady = "AllMembersReady"
	// ConditionProgressing is True while druid or an agent works towards the spec.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True when the cluster does not match its spec and you might have to act.
	ConditionDegraded = "Degraded"
	// ConditionSpread is True while each voter runs on a node of its own, so that the loss of a node costs one voter.
	// It is information only: no decision of druid depends on it.
	ConditionSpread = "Spread"
	// ConditionBackupReady is True while a full backup and all changes since then are saved as spec.backup requires. A
	// cluster without spec.backup does not have it.
	ConditionBackupReady = "BackupReady"

	// ConditionBackupVerified is True when an agent restored the newest backups and they equal what etcd reported. It
	// is False when they are broken. A cluster without spec.backup does not have it.
	ConditionBackupVerified = "BackupVerified"

	// ConditionCertificatesReady is True while every member has usable certificates, and druid can renew those that it
	// issues. A cluster without spec.tls does not have it.
	ConditionCertificatesReady = "CertificatesReady"

	// ConditionAuthReady is True while authentication in etcd is as spec.auth requires. A cluster has it with spec.auth,
	// and while authentication is on.
	ConditionAuthReady = "AuthReady"

	// ConditionReconciling is True while the cluster does not match its spec and this can end without you. It is absent
	// otherwise. Tools that apply objects read it. Its reason and message are those of another condition.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True while something is wrong that only you can end. It is absent otherwise. Tools that apply
	// objects read it. Its reason and message are those of another condition.
	ConditionStalled = "Stalled"
)

// Reasons of ConditionAuthReady.
const (
	// ReasonAuthEnabled: authentication is on, and users and roles are as spec.auth requires.
	ReasonAuthEnabled = "AuthEnabled"
	// ReasonAuthDisabled: authentication is off, as spec.auth requires.
	ReasonAuthDisabled = "AuthDisabled"
	// ReasonAuthPending: the leader's agent has not done yet what spec.auth requires.
	ReasonAuthPending = "AuthPending"
	// ReasonAuthIncomplete: something is missing for a user, such as its password. The message says what.
	ReasonAuthIncomplete = "AuthIncomplete"
	// ReasonAuthUnmanaged: authentication is on without spec.auth. The agents are admitted.
	ReasonAuthUnmanaged = "AuthUnmanaged"
	// ReasonAuthAccessDenied: authentication is on, and etcd does not admit the agents. They cannot repair, back up or
	// upgrade the cluster.
	ReasonAuthAccessDenied = "AuthAccessDenied"
)

// Reasons of ConditionCertificatesReady.
const (
	// ReasonCertificatesValid: all members have valid certificates.
	ReasonCertificatesValid = "CertificatesValid"
	// ReasonCertificatesPending: certificates are not issued yet, or no member has reported any.
	ReasonCertificatesPending = "CertificatesPending"
	// ReasonCertificatesRejected: a member does not use what the Secrets contain, because it is bad.
	ReasonCertificatesRejected = "CertificatesRejected"
	// ReasonAuthorityLost: the Secret with the certificate authority is gone, is another one, or cannot be used, and no
	// Secret has the certificates in use. druid
	// cannot renew certificates.
	ReasonAuthorityLost = "AuthorityLost"
	// ReasonCertManagerNotInstalled: you chose cert-manager for the certificates, and the API server does not know its
	// kinds.
	ReasonCertManagerNotInstalled = "CertManagerNotInstalled"
)

// Reasons of ConditionReady.
const (
	ReasonQuorate    = "Quorate"
	ReasonQuorumLost = "QuorumLost"
	// ReasonClientsCutOff: a quorum of voters serves, and spec.clientService.serving is false or a restore in place was approved.
	ReasonClientsCutOff = "ClientsCutOff"
	ReasonForming       = "Forming"
	ReasonUnknown       = "Unknown"
)

// Reasons of a member's state.
const (
	// ReasonLeaseSucceeded: the member's agent renewed its Lease in time.
	ReasonLeaseSucceeded = "LeaseSucceeded"
	// ReasonLeaseExpired: the agent did not renew the Lease in time, for an unknown reason.
	ReasonLeaseExpired = "LeaseExpired"
	// ReasonUnknownGracePeriodExceeded: the Lease has been expired for longer than the grace period.
	ReasonUnknownGracePeriodExceeded = "UnknownGracePeriodExceeded"
	// ReasonPodNotReady: the Pod is absent, or its etcd container is not ready.
	ReasonPodNotReady = "PodNotReady"
)

// Reasons of ConditionAllMembersReady.
const (
	// ReasonAllReady: every desired member is a ready voter.
	ReasonAllReady = "AllReady"
	// ReasonMembersNotReady: a desired member is missing or not ready.
	ReasonMembersNotReady = "MembersNotReady"
	// ReasonMembersUnknown: it is unknown whether a desired member is ready.
	ReasonMembersUnknown = "MembersUnknown"
)

// Reasons of ConditionProgressing; ReasonForming is another.
const (
	// ReasonReconciled: the cluster matches its spec.
	ReasonReconciled = "Reconciled"
	// ReasonSpecAccepted: druid accepted the spec for the first time.
	ReasonSpecAccepted = "SpecAccepted"
	// ReasonSpecChanged: druid accepted a spec change and has not acted on it yet.
	ReasonSpecChanged = "SpecChanged"
	// ReasonRetryAfterDeadline: druid accepted a spec change because the deadline of the change in progress has
	// passed.
	ReasonRetryAfterDeadline = "RetryAfterDeadline"
	// ReasonWaitingForSeed: no member has started to bootstrap the cluster yet.
	ReasonWaitingForSeed = "WaitingForSeed"
	// ReasonWaitingForSnapshot: the EtcdSnapshot that the cluster restores has not succeeded, or the location of its
	// backup is unknown. druid has created nothing yet.
	ReasonWaitingForSnapshot = "WaitingForSnapshot"
	// ReasonBootstrapFailed: the cluster did not form before its deadline. druid takes no further action.
	ReasonBootstrapFailed = "BootstrapFailed"
	// ReasonDeadlineExceeded: the cluster did not reach the state of the last spec change before its deadline, and
	// druid stopped the change. druid still repairs members.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonHandsOff: annotation etcd.druid.dev/hands-off is set, and druid takes no action for the cluster.
	ReasonHandsOff = "HandsOff"
	// ReasonScalingUp: new members join.
	ReasonScalingUp = "ScalingUp"
	// ReasonExternalMembersPresent: the members joined a running cluster, and the external members remain until you
	// set spec.bootstrap.join.removeExternalMembers.
	ReasonExternalMembersPresent = "ExternalMembersPresent"
	// ReasonRemovingExternalMembers: the external members are removed, one at a time.
	ReasonRemovingExternalMembers = "RemovingExternalMembers"
	// ReasonLeavingJoinedCluster: the EtcdCluster is deleted while external members remain, and its members leave the
	// joined cluster, one at a time.
	ReasonLeavingJoinedCluster = "LeavingJoinedCluster"
	// ReasonRepairingMember: a member is restarted or replaced.
	ReasonRepairingMember = "RepairingMember"
	// ReasonScalingDown: a member is removed, because the cluster has more members than spec.replicas.
	ReasonScalingDown = "ScalingDown"
	// ReasonScaleDownBlocked: a removal waits for another member that is not ready, joins or is replaced, or for
	// failing backups.
	ReasonScaleDownBlocked = "ScaleDownBlocked"
	// ReasonReplacingMember: a new member joins, and then the member that annotation etcd.druid.dev/replace names is removed.
	ReasonReplacingMember = "ReplacingMember"
	// ReasonReplaceBlocked: the member that annotation etcd.druid.dev/replace names stays, because another member is not ready, or
	// backups fail.
	ReasonReplaceBlocked = "ReplaceBlocked"
	// ReasonPausing: spec.replicas is 0, and the Pod of the last member is about to be deleted.
	ReasonPausing = "Pausing"
	// ReasonPauseBlocked: the deletion of the last Pod waits for its etcd, its node, or failing backups.
	ReasonPauseBlocked = "PauseBlocked"
	// ReasonPaused: spec.replicas is 0, and no member runs. A PersistentVolumeClaim holds the data. It is a reason of
	// all conditions except Degraded, and of the state of a member.
	ReasonPaused = "Paused"
	// ReasonResuming: the cluster was paused, and its member is started again. It is also a reason of Ready.
	ReasonResuming = "Resuming"
	// ReasonRecovering: the quorum is lost, or a restore in place was approved, and a recovery order is in effect. No client is sent to any
	// member.
	ReasonRecovering = "Recovering"
	// ReasonRollingUpdate: Pods are replaced one at a time, because the spec requires other Pods.
	ReasonRollingUpdate = "RollingUpdate"
	// ReasonRollingUpdateBlocked: Pods must be replaced, and druid waits until another problem is resolved.
	ReasonRollingUpdateBlocked = "RollingUpdateBlocked"
	// ReasonUpgrading: the members change their etcd version, one at a time.
	ReasonUpgrading = "Upgrading"
	// ReasonUpgradeBlocked: the version change waits until another problem is resolved or you change the spec.
	ReasonUpgradeBlocked = "UpgradeBlocked"
	// ReasonUpdatingAgents: agents are replaced one at a time in running Pods, because druid has another agent image.
	ReasonUpdatingAgents = "UpdatingAgents"
	// ReasonAgentUpdateBlocked: agents must be replaced, and druid waits until another problem is resolved.
	ReasonAgentUpdateBlocked = "AgentUpdateBlocked"
	// ReasonClusterRecordInvalid: the cluster record is unusable, and druid does nothing. Degraded shows the cause.
	ReasonClusterRecordInvalid = "ClusterRecordInvalid"
)

// Reasons of ConditionSpread.
const (
	// ReasonMembersSpread: each voter runs on a node of its own.
	ReasonMembersSpread = "MembersSpread"
	// ReasonMembersColocated: voters share a node, and the other voters are a quorum.
	ReasonMembersColocated = "MembersColocated"
	// ReasonQuorumOnOneNode: the loss of one node would cost the quorum.
	ReasonQuorumOnOneNode = "QuorumOnOneNode"
	// ReasonMembersNotPlaced: the node of a voter is unknown, and no other voters share a node.
	ReasonMembersNotPlaced = "MembersNotPlaced"
)

// Reasons of ConditionBackupVerified.
const (
	// ReasonVerificationSucceeded: an agent restored the backups, and they hold what etcd reported.
	ReasonVerificationSucceeded = "VerificationSucceeded"
	// ReasonVerificationFailed: the backups do not restore to a state that the cluster had.
	ReasonVerificationFailed = "VerificationFailed"
	// ReasonNotYetVerified: no agent has verified the backups, or not within the last two schedules.
	ReasonNotYetVerified = "NotYetVerified"
)

// Reasons of ConditionBackupReady; ReasonUnknown is another.
const (
	// ReasonFullBackupSucceeded: a full backup is saved. Changes since then are not saved yet.
	ReasonFullBackupSucceeded = "FullBackupSucceeded"
	// ReasonDeltaBackupSucceeded: a full backup and the changes since then are saved.
	ReasonDeltaBackupSucceeded = "DeltaBackupSucceeded"
	// ReasonFullBackupFailed: the newest full backup is too old, or there is none.
	ReasonFullBackupFailed = "FullBackupFailed"
	// ReasonDeltaBackupFailed: changes are not saved.
	ReasonDeltaBackupFailed = "DeltaBackupFailed"
	// ReasonBackupStoreNotAttached: no backup was made, because Pods do not mount the volume of the store yet.
	ReasonBackupStoreNotAttached = "BackupStoreNotAttached"
	// ReasonBackupClaimMissing: the PersistentVolumeClaim of spec.backup.store does not exist, or it is being deleted.
	ReasonBackupClaimMissing = "BackupClaimMissing"
	// ReasonBackupClaimNotShared: the access mode of the PersistentVolumeClaim of spec.backup.store does not let all members
	// write to it.
	ReasonBackupClaimNotShared = "BackupClaimNotShared"
	// ReasonBackupSpecInvalid: the agent cannot parse a value in spec.backup.
	ReasonBackupSpecInvalid = "BackupSpecInvalid"
	// ReasonBackupSuperseded: another cluster saved the latest backup under the same prefix.
	ReasonBackupSuperseded = "BackupSuperseded"
)

// Reasons of ConditionDegraded; ReasonQuorumLost is another.
const (
	// ReasonAsExpected: no problem is known.
	ReasonAsExpected = "AsExpected"
	// ReasonRecordUnreadable: druid cannot parse the cluster record.
	ReasonRecordUnreadable = "RecordUnreadable"
	// ReasonRecordLost: the cluster record was deleted before the cluster was known to have formed.
	ReasonRecordLost = "RecordLost"
	// ReasonSnapshotUnusable: the EtcdSnapshot that the cluster restores cannot be used with this spec.
	ReasonSnapshotUnusable = "SnapshotUnusable"
	// ReasonDataLost: more than half of the members lost the data that they stored in their Pods. They cannot form a
	// quorum again.
	ReasonDataLost = "DataLost"
	// ReasonRecoveryProposed: the quorum is lost, and the plan in status.recovery needs your approval. It is also a reason of Progressing.
	ReasonRecoveryProposed = "RecoveryProposed"
	// ReasonRecoveryRefused: the quorum is lost, and druid cannot recover it before you act. It is also a reason of Progressing.
	ReasonRecoveryRefused = "RecoveryRefused"
	// ReasonDataUndecided: the data of the members differs, and no majority of them has the same data. You must decide which
	// data is good.
	ReasonDataUndecided = "DataUndecided"
	// ReasonDataDiffers: the data of a member differs from that of a majority of all members. Its agent replaces it.
	ReasonDataDiffers = "DataDiffers"
	// ReasonAlarmRaised: an alarm of etcd is raised. With the alarm NOSPACE, etcd refuses all writes.
	ReasonAlarmRaised = "AlarmRaised"
	// ReasonObjectNotOwned: an object that the cluster needs exists and has another owner.
	ReasonObjectNotOwned = "ObjectNotOwned"
	// ReasonAPIRequestRejected: the API server rejects an object of the cluster, for example because of a quota.
	ReasonAPIRequestRejected = "APIRequestRejected"
	// ReasonLeaseUnreadable: druid cannot parse the Lease of a member.
	ReasonLeaseUnreadable = "LeaseUnreadable"
	// ReasonVolumeDeleted: the volume of a running member was deleted, and the cluster cannot spare the member.
	ReasonVolumeDeleted = "VolumeDeleted"
	// ReasonStorageClassMissing: the StorageClass of a member's PersistentVolumeClaim does not exist.
	ReasonStorageClassMissing = "StorageClassMissing"
	// ReasonVolumePending: the PersistentVolumeClaim of a member has no volume.
	ReasonVolumePending = "VolumePending"
	// ReasonVolumeNotExpanded: the volume of a member is smaller than spec.storage.size and does not grow.
	ReasonVolumeNotExpanded = "VolumeNotExpanded"
	// ReasonPodUnschedulable: the scheduler finds no node for the Pod of a member.
	ReasonPodUnschedulable = "PodUnschedulable"
	// ReasonImagePullFailed: the kubelet cannot pull an image.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonContainerCannotStart: a container cannot start, or ends repeatedly.
	ReasonContainerCannotStart = "ContainerCannotStart"
	// ReasonMemberCannotStart: the agent of a member does not start etcd, and this has not resolved by itself.
	ReasonMemberCannotStart = "MemberCannotStart"
	// ReasonAuthRequiredNotConfigured: authentication is on in the backup that the cluster restores, and spec.auth does not
	// require it. Nothing was restored.
	ReasonAuthRequiredNotConfigured = "AuthRequiredNotConfigured"
	// ReasonAgentNotRunning: the new agent of a member does not start. Its etcd continues to run.
	ReasonAgentNotRunning = "AgentNotRunning"
	// ReasonMemberStuck: the etcd of a member does not become ready, for an unknown reason. druid counts the restarts
	// of its Pod.
	ReasonMemberStuck = "MemberStuck"
	// ReasonNodeLost: the node of a member is unreachable.
	ReasonNodeLost = "NodeLost"
	// ReasonSlowDisk: the disk of a member is so slow that followers might elect another leader.
	ReasonSlowDisk = "SlowDisk"
	// ReasonOrphanedObjects: an object of the cluster has the name of no member, and it is not known whether it can be
	// deleted.
	ReasonOrphanedObjects = "OrphanedObjects"
)
