package leases

// RestoreFailure says why no later attempt of a member can carry out an order to restore a backup. It is empty as long as an attempt
// can succeed. A reader takes a value that it does not know for a failure.
type RestoreFailure string

// The failures.
const (
	// FailedBackups: the objects do not lead to the target, are damaged, or were deleted.
	FailedBackups RestoreFailure = "backups"
	// FailedKey: the agent does not have the key of an encrypted object.
	FailedKey RestoreFailure = "key"
	// FailedSpace: the restored data does not fit on the volume.
	FailedSpace RestoreFailure = "space"
	// FailedQuota: the restored database is larger than the quota of etcd.
	FailedQuota RestoreFailure = "quota"
	// FailedVersion: etcd or the agent is too old for the backup.
	FailedVersion RestoreFailure = "version"
	// FailedAuth: authentication is on in the backup, and the spec does not enable it.
	FailedAuth RestoreFailure = "auth"
)
