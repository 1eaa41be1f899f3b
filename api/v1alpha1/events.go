package v1alpha1

// Reasons of the Events of an EtcdCluster. Some reasons of conditions are reasons of Events too:
//
//   - When Degraded becomes True, or BackupReady or BackupVerified becomes False, druid emits a Warning with its reason.
//   - When BackupReady or BackupVerified becomes True, druid emits a Normal Event with its reason. For Spread it does so only
//     after the condition was False.
//   - druid emits the reasons RollingUpdate, UpdatingAgents, Pausing, Paused, Resuming and Upgrading of Progressing, and those
//     that end in Blocked.
const (
	// EventRecordCreated: druid created the cluster record, for the first time or again.
	EventRecordCreated = "RecordCreated"
	// EventPodCreated: druid created the Pod of a member, for the first time or again.
	EventPodCreated = "PodCreated"
	// EventPodDeleted: druid deleted the Pod of a member, to repair the member or to replace the Pod as the spec
	// requires.
	EventPodDeleted = "PodDeleted"
	// EventAgentReplaced: druid changed the agent image in the running Pod of a member.
	EventAgentReplaced = "AgentReplaced"
	// EventPodRestarted: druid is about to delete the Pod of a member because its etcd did not become ready.
	EventPodRestarted = "PodRestarted"
	// EventVolumeAbandoned: druid is about to abandon the volume of a member together with the only node that could
	// mount it.
	EventVolumeAbandoned = "VolumeAbandoned"
	// EventClusterFormed: the raft group exists.
	EventClusterFormed = "ClusterFormed"
	// EventMemberReady: a member became a ready voter.
	EventMemberReady = "MemberReady"
	// EventMemberReplaced: a member lost its data and joined again with another member ID.
	EventMemberReplaced = "MemberReplaced"
	// EventMemberNotReady: a member that was ready is not ready any more, or its state is unknown.
	EventMemberNotReady = "MemberNotReady"
	// EventKnownEtcdBug: members run an etcd release with a bug that a later release fixes.
	EventKnownEtcdBug = "KnownEtcdBug"
	// EventSpecChangePending: druid accepts a spec change later, because an earlier change is in progress.
	EventSpecChangePending = "SpecChangePending"
	// EventScalingDown: druid chose a member to remove.
	EventScalingDown = "ScalingDown"
	// EventMemberRemoved: a member was removed from the cluster and from its record.
	EventMemberRemoved = "MemberRemoved"
	// EventScaleDownCancelled: a member that was about to be removed stays.
	EventScaleDownCancelled = "ScaleDownCancelled"
	// EventAuthorityReplacing: druid replaces a certificate authority, because it was requested, ends, or is lost.
	EventAuthorityReplacing = "AuthorityReplacing"
	// EventAuthoritySwitched: another certificate authority signs, and the old one is still trusted.
	EventAuthoritySwitched = "AuthoritySwitched"
	// EventAuthorityReplaced: members and clients trust only the new certificate authority.
	EventAuthorityReplaced = "AuthorityReplaced"
	// EventPVCDeleted: druid deleted the PersistentVolumeClaim of a removed member or of an abandoned volume.
	EventPVCDeleted = "PVCDeleted"
	// EventPVCExpanded: druid requested a larger volume for the PersistentVolumeClaim of a member.
	EventPVCExpanded = "PVCExpanded"
	// EventPVCRetained: druid retained the PersistentVolumeClaim of a removed member. No member uses it again.
	EventPVCRetained = "PVCRetained"
	// EventQuorumLost: the voters that serve are not a quorum.
	EventQuorumLost = "QuorumLost"
	// EventQuorumRecovered: after a loss of the quorum, a member formed the raft group again from its disk or a backup.
	EventQuorumRecovered = "QuorumRecovered"
	// EventClientsServed: a quorum serves, and clients are not cut off any more.
	EventClientsServed = "ClientsServed"
	// EventQuorumRestored: the voters that serve are a quorum again.
	EventQuorumRestored = "QuorumRestored"
	// EventRestored: the cluster was restored in place, as spec.recovery.restore requested.
	EventRestored = "Restored"
	// EventRestoreProposed: the plan of the restore in status.recovery needs your approval.
	EventRestoreProposed = "RestoreProposed"
	// EventRestoreReleased: a restore in place ended early, and the cluster continues with the data that it had.
	EventRestoreReleased = "RestoreReleased"
	// EventResumed: a quorum serves again after a pause.
	EventResumed = "Resumed"
	// EventRetainedVolumesFound: a cluster starts empty while volumes of an earlier cluster of its name exist.
	EventRetainedVolumesFound = "RetainedVolumesFound"
	// EventProblemResolved: Degraded is not True any more.
	EventProblemResolved = "ProblemResolved"
)

// Reasons of the Events of an EtcdSnapshot. The latter two are about a backup that was to be deleted with it.
const (
	// EventBackupSaved: the EtcdSnapshot succeeded.
	EventBackupSaved = "BackupSaved"
	// EventBackupFailed: the EtcdSnapshot failed.
	EventBackupFailed = "BackupFailed"
	// EventBackupDeleted: the agent deleted the backup from the store.
	EventBackupDeleted = "BackupDeleted"
	// EventBackupRetained: the EtcdSnapshot is deleted, and the backup stays.
	EventBackupRetained = "BackupRetained"
)
