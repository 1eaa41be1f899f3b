package volume

import "path/filepath"

// Names in the root of a volume.
const (
	// DataDir is etcd's data directory.
	DataDir = "data"
	// LockFile is held with an exclusive flock for as long as etcd may run or the agent looks at the volume.
	LockFile = "druid.lock"
	// StampFile says whose the data is.
	StampFile = "druid.json"
	// ExitFile says how the last etcd ended. It is absent while etcd runs, so its absence means an unclean end.
	ExitFile = "druid.exit"
	// AsidePrefix starts the names of data directories that were moved aside.
	AsidePrefix = "data.aside-"
	// RestoredDir is where a data directory is made from a backup, until it is stamped and renamed. Names that start so are
	// the restore's own, and no etcd ever ran on what they name.
	RestoredDir = "data.restored"
	// AsideFile, in such a directory, says why it was moved aside and what is in it.
	AsideFile = "druid.aside.json"
)

// RestoredPath is where a data directory is made from a backup.
func RestoredPath(volume string) string { return filepath.Join(volume, RestoredDir) }

// DataPath is etcd's data directory on the volume.
func DataPath(volume string) string { return filepath.Join(volume, DataDir) }
