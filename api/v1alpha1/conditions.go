package v1alpha1

// Condition types of an EtcdCluster.
const (
	// ConditionReady is True while a quorum of voters serves clients.
	ConditionReady = "Ready"
	// ConditionAllMembersReady is True while every desired member is a ready voter.
	ConditionAllMembersReady = "AllMembersReady"
	// ConditionProgressing is True while druid or an agent works towards the spec.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True while something keeps the cluster from its spec that a person may have to mend.
	ConditionDegraded = "Degraded"
	// ConditionSpread is True while each voter is on a node of its own, so that the loss of one node costs one voter. It is
	// advice: what druid does depends on it nowhere.
	ConditionSpread = "Spread"
	// ConditionBackupReady is True while a full backup and all changes since are saved as spec.backup asks for. A cluster
	// without spec.backup does not have it.
	ConditionBackupReady = "BackupReady"

	// ConditionBackupVerified is True when the newest backups were restored in a scratch directory, and were equal to what etcd
	// said of itself; False when they are broken. A cluster without spec.backup does not have it.
	ConditionBackupVerified = "BackupVerified"
)

// Reasons of ConditionReady.
const (
	ReasonQuorate    = "Quorate"
	ReasonQuorumLost = "QuorumLost"
	ReasonForming    = "Forming"
	ReasonUnknown    = "Unknown"
)

// MemberState is what druid knows of a member's health.
type MemberState string

// The states of a member.
const (
	MemberReady    MemberState = "Ready"
	MemberNotReady MemberState = "NotReady"
	MemberUnknown  MemberState = "Unknown"
	// MemberPaused: it has no Pod, because the cluster is paused, and its PersistentVolumeClaim holds its data.
	MemberPaused MemberState = "Paused"
)

// MemberLeaving is how far a member's way out of the cluster has come.
type MemberLeaving string

// The stations of the way out. Until Removing a revert of the spec takes it back.
const (
	// LeavingClients: no client is to be sent to it any more.
	LeavingClients MemberLeaving = "LeavingClients"
	// LeaveRequested: the agents are asked to remove it.
	LeaveRequested MemberLeaving = "Requested"
	// LeaveRemoving: the leader's agent removes it.
	LeaveRemoving MemberLeaving = "Removing"
	// LeaveRemoved: it is out of the raft group.
	LeaveRemoved MemberLeaving = "Removed"
)

// Reasons of a member's state.
const (
	// ReasonLeaseSucceeded: the member's agent renewed its Lease in time.
	ReasonLeaseSucceeded = "LeaseSucceeded"
	// ReasonLeaseExpired: the Lease was not renewed in time; why is not known.
	ReasonLeaseExpired = "LeaseExpired"
	// ReasonUnknownGracePeriodExceeded: the Lease stayed expired for longer than the grace period.
	ReasonUnknownGracePeriodExceeded = "UnknownGracePeriodExceeded"
	// ReasonPodNotReady: the Pod is absent or its etcd container is not ready.
	ReasonPodNotReady = "PodNotReady"
)

// Reasons of ConditionAllMembersReady.
const (
	// ReasonAllReady: every desired member is a ready voter.
	ReasonAllReady = "AllReady"
	// ReasonMembersNotReady: a desired member is missing or known not to be ready.
	ReasonMembersNotReady = "MembersNotReady"
	// ReasonMembersUnknown: of a desired member it is not known whether it is ready.
	ReasonMembersUnknown = "MembersUnknown"
)

// Reasons of ConditionProgressing; ReasonForming is another.
const (
	// ReasonReconciled: nothing is left to do.
	ReasonReconciled = "Reconciled"
	// ReasonInitialSnapshot: the spec was adopted for the first time.
	ReasonInitialSnapshot = "InitialSnapshot"
	// ReasonSpecChanged: an edit of the spec was adopted, and nothing was done about it yet. It is the reason of an Event, too, when
	// an edit has to wait.
	ReasonSpecChanged = "SpecChanged"
	// ReasonRetryAfterDeadline: an edit was adopted because the deadline of what was under way had passed.
	ReasonRetryAfterDeadline = "RetryAfterDeadline"
	// ReasonWaitingForSeed: no member has begun to form the cluster yet.
	ReasonWaitingForSeed = "WaitingForSeed"
	// ReasonWaitingForSnapshot: the EtcdSnapshot that the cluster is to begin with has not succeeded, or it is not known where its backup
	// is. Nothing was made of the cluster yet.
	ReasonWaitingForSnapshot = "WaitingForSnapshot"
	// ReasonBootstrapFailed: the cluster has not formed within its deadline, and druid does nothing more about it.
	ReasonBootstrapFailed = "BootstrapFailed"
	// ReasonDeadlineExceeded: what the last edit asked for was not reached within its deadline, and druid has stopped it. Members are
	// healed all the same.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonScalingUp: new members join.
	ReasonScalingUp = "ScalingUp"
	// ReasonOthersRemain: the members joined a running cluster, and nothing is left to do until the user lets those go that were in
	// it before.
	ReasonOthersRemain = "OthersRemain"
	// ReasonRemovingOthers: those go, one after another.
	ReasonRemovingOthers = "RemovingOthers"
	// ReasonLeaving: the EtcdCluster is deleted while others are in the cluster that it joined, and its members leave that one after
	// another.
	ReasonLeaving = "Leaving"
	// ReasonHealing: a member of the cluster is started again or replaced.
	ReasonHealing = "Healing"
	// ReasonScalingDown: a member is removed, because the cluster has more members than replicas asks for.
	ReasonScalingDown = "ScalingDown"
	// ReasonScaleDownBlocked: a member is to be removed, and waits for another that is not ready, joins or replaces itself, or
	// for a backup that fails.
	ReasonScaleDownBlocked = "ScaleDownBlocked"
	// ReasonPausing: replicas is 0, and the Pod of the last member is about to go.
	ReasonPausing = "Pausing"
	// ReasonPauseBlocked: it is to go, and waits for its etcd, its node, or a backup that fails.
	ReasonPauseBlocked = "PauseBlocked"
	// ReasonPaused: replicas is 0 and no member runs; a PersistentVolumeClaim holds the data. It is a reason of all conditions
	// but Degraded, and of a member's state.
	ReasonPaused = "Paused"
	// ReasonResuming: the cluster was paused, and the member that was kept is started again. It is a reason of Ready too.
	ReasonResuming = "Resuming"
	// ReasonRollingUpdate: Pods are replaced one after another, because the spec asks for others.
	ReasonRollingUpdate = "RollingUpdate"
	// ReasonRollingUpdateBlocked: Pods are to be replaced, and none is until something else is mended.
	ReasonRollingUpdateBlocked = "RollingUpdateBlocked"
	// ReasonUpgrading: the members go to another version of etcd, one after another.
	ReasonUpgrading = "Upgrading"
	// ReasonUpgradeBlocked: they are to, and none does until something else is mended, or the spec is edited.
	ReasonUpgradeBlocked = "UpgradeBlocked"
	// ReasonUpdatingAgents: agents are replaced one after another in Pods that run on, because druid was given another image.
	ReasonUpdatingAgents = "UpdatingAgents"
	// ReasonAgentUpdateBlocked: agents are to be replaced, and none is until something else is mended.
	ReasonAgentUpdateBlocked = "AgentUpdateBlocked"
	// ReasonRecordBlocked: the cluster record cannot be used, so nothing is done; Degraded tells why.
	ReasonRecordBlocked = "RecordBlocked"
)

// Reasons of ConditionSpread.
const (
	// ReasonMembersApart: each voter is on a node of its own.
	ReasonMembersApart = "MembersApart"
	// ReasonMembersCoLocated: voters share a node, and the others are a quorum.
	ReasonMembersCoLocated = "MembersCoLocated"
	// ReasonQuorumOnOneNode: the loss of one node would cost the quorum.
	ReasonQuorumOnOneNode = "QuorumOnOneNode"
	// ReasonMembersNotPlaced: of a voter it is not known on which node it is, and no others share one.
	ReasonMembersNotPlaced = "MembersNotPlaced"
)

// Reasons of ConditionBackupVerified.
const (
	// ReasonBackupProven: the backups were restored, and hold what etcd said that it held.
	ReasonBackupProven = "BackupProven"
	// ReasonBackupBroken: the backups do not lead to a state that the cluster had.
	ReasonBackupBroken = "BackupBroken"
	// ReasonNotYetVerified: nobody found out yet, or not for two schedules.
	ReasonNotYetVerified = "NotYetVerified"
)

// Reasons of ConditionBackupReady; ReasonUnknown is another.
const (
	// ReasonFullBackupSucceeded: a full backup is saved, and no changes since then yet.
	ReasonFullBackupSucceeded = "FullBackupSucceeded"
	// ReasonIncrementalBackupSucceeded: a full backup is saved, and the changes since.
	ReasonIncrementalBackupSucceeded = "IncrementalBackupSucceeded"
	// ReasonFullBackupFailed: the newest full backup is too old, or there is none.
	ReasonFullBackupFailed = "FullBackupFailed"
	// ReasonIncrementalBackupFailed: changes are not saved.
	ReasonIncrementalBackupFailed = "IncrementalBackupFailed"
	// ReasonBackupStoreNotAttached: no backup was made, and Pods were made before the store was named.
	ReasonBackupStoreNotAttached = "BackupStoreNotAttached"
	// ReasonBackupSpecInvalid: something in spec.backup cannot be understood.
	ReasonBackupSpecInvalid = "BackupSpecInvalid"
	// ReasonBackupSuperseded: what is saved is not the latest backup in its place, which is another cluster's.
	ReasonBackupSuperseded = "BackupSuperseded"
)

// Reasons of ConditionDegraded.
const (
	// ReasonAsExpected: nothing is known to be wrong.
	ReasonAsExpected = "AsExpected"
	// ReasonRecordUnreadable: the cluster record cannot be understood.
	ReasonRecordUnreadable = "RecordUnreadable"
	// ReasonRecordLost: the cluster record vanished before the cluster was known to have formed.
	ReasonRecordLost = "RecordLost"
	// ReasonSnapshotUnusable: the EtcdSnapshot that the cluster is to begin with cannot be restored from as the spec stands.
	ReasonSnapshotUnusable = "SnapshotUnusable"
	// ReasonDataLost: so many members lost what they held in memory that the others are no quorum, and never will be.
	ReasonDataLost = "DataLost"
	// ReasonAlarmRaised: an alarm of etcd stands. With NOSPACE all writes are refused.
	ReasonAlarmRaised = "AlarmRaised"
	// ReasonForeignObject: an object that the cluster needs exists and belongs to somebody else.
	ReasonForeignObject = "ForeignObject"
	// ReasonRefusedByAPI: the API server refuses an object of the cluster, for example because of a quota.
	ReasonRefusedByAPI = "RefusedByAPI"
	// ReasonLeaseUnreadable: a member's Lease cannot be understood.
	ReasonLeaseUnreadable = "LeaseUnreadable"
	// ReasonVolumeDeleted: the volume of a running member was deleted, and the others cannot do without the member.
	ReasonVolumeDeleted = "VolumeDeleted"
	// ReasonStorageClassMissing: the StorageClass of a member's claim does not exist.
	ReasonStorageClassMissing = "StorageClassMissing"
	// ReasonVolumePending: a member's claim gets no volume.
	ReasonVolumePending = "VolumePending"
	// ReasonVolumeNotExpanded: a member's volume is smaller than spec.storage.size, and does not grow.
	ReasonVolumeNotExpanded = "VolumeNotExpanded"
	// ReasonPodUnschedulable: no node takes a member's Pod.
	ReasonPodUnschedulable = "PodUnschedulable"
	// ReasonImagePullFailed: an image cannot be pulled.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonContainerCannotStart: a container cannot be started, or ends again and again.
	ReasonContainerCannotStart = "ContainerCannotStart"
	// ReasonMemberCannotStart: a member's agent does not start etcd, and that did not pass by itself.
	ReasonMemberCannotStart = "MemberCannotStart"
	// ReasonAgentNotRunning: the new agent of a member, whose etcd runs on, does not come up.
	ReasonAgentNotRunning = "AgentNotRunning"
	// ReasonMemberStuck: a member's etcd does not become ready, and why is not known; restarts of its Pod are counted.
	ReasonMemberStuck = "MemberStuck"
	// ReasonNodeLost: a member's node is not heard of.
	ReasonNodeLost = "NodeLost"
	// ReasonOrphan: an object of the cluster bears the name of no member, and nothing proves that it may go.
	ReasonOrphan = "Orphan"
)
