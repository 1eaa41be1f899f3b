package v1alpha1

// Reasons of the Events of an EtcdCluster. When Degraded becomes True, or BackupReady or BackupVerified False, its
// reason is the reason of a Warning too; when one of these two becomes True, that of a Normal one. So it is with Spread, which
// is told as Normal only after it was False, and with RollingUpdate, UpdatingAgents, Pausing, these with Blocked, Paused,
// Resuming, Upgrading and UpgradeBlocked, reasons of Progressing.
const (
	// EventRecordCreated: the cluster record was made, for the first time or again.
	EventRecordCreated = "RecordCreated"
	// EventPodCreated: a member's Pod was made, for the first time or again.
	EventPodCreated = "PodCreated"
	// EventPodDeleted: a member's Pod was deleted, so that the member can heal, or gets a Pod that the spec asks for.
	EventPodDeleted = "PodDeleted"
	// EventAgentReplaced: the agent of a member got another image, in the Pod that runs.
	EventAgentReplaced = "AgentReplaced"
	// EventPodRestarted: a member's Pod is going to be deleted because its etcd did not become ready.
	EventPodRestarted = "PodRestarted"
	// EventVolumeGivenUp: a member's volume is going to be given up together with the node that alone could mount it.
	EventVolumeGivenUp = "VolumeGivenUp"
	// EventClusterFormed: the raft group exists.
	EventClusterFormed = "ClusterFormed"
	// EventMemberReady: a member became a ready voter.
	EventMemberReady = "MemberReady"
	// EventMemberReplaced: a member lost its data and joined again under another ID.
	EventMemberReplaced = "MemberReplaced"
	// EventMemberNotReady: a member that was ready is not, or it is not known any more whether it is.
	EventMemberNotReady = "MemberNotReady"
	// EventKnownBug: members run a release of etcd with a bug that a later one does not have.
	EventKnownBug = "KnownBug"
	// EventScalingDown: a member was chosen to be removed.
	EventScalingDown = "ScalingDown"
	// EventMemberRemoved: a member is out of the cluster, and out of its record.
	EventMemberRemoved = "MemberRemoved"
	// EventScaleDownCancelled: a member that was to be removed stays.
	EventScaleDownCancelled = "ScaleDownCancelled"
	// EventScaleDownBlocked: a member is to be removed, and the cluster cannot spare it now.
	EventScaleDownBlocked = "ScaleDownBlocked"
	// EventClaimDeleted: the PersistentVolumeClaim of a removed member, or of a volume that was given up, was deleted.
	EventClaimDeleted = "ClaimDeleted"
	// EventClaimExpanded: the PersistentVolumeClaim of a member requests a larger volume.
	EventClaimExpanded = "ClaimExpanded"
	// EventClaimRetained: the PersistentVolumeClaim of a removed member stays, and is nobody's any more.
	EventClaimRetained = "ClaimRetained"
	// EventQuorumLost: the voters that serve are no quorum.
	EventQuorumLost = "QuorumLost"
	// EventQuorumRegained: they are one again.
	EventQuorumRegained = "QuorumRegained"
	// EventResumed: a quorum serves again after a pause.
	EventResumed = "Resumed"
	// EventVolumesLeftOver: a cluster begins empty beside the volumes of an earlier one of its name.
	EventVolumesLeftOver = "VolumesLeftOver"
	// EventRecovered: Degraded is not True any more.
	EventRecovered = "Recovered"
)

// Reasons of the Events of an EtcdSnapshot whose backup was to be deleted with it.
const (
	// EventBackupDeleted: the backup is gone from the store.
	EventBackupDeleted = "BackupDeleted"
	// EventBackupRetained: the EtcdSnapshot is gone, and the backup stays.
	EventBackupRetained = "BackupRetained"
)
