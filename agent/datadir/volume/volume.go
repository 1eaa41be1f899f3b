package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names in the root of a volume.
const (
	// DataDir is etcd's data directory.
	DataDir = "data"
	// LockFile is locked with an exclusive flock while etcd may run or the agent reads the volume.
	LockFile = "druid.lock"
	// IdentityFileName is the identity file: to whom the data belongs.
	IdentityFileName = "druid.json"
	// ExitFile says how the last etcd exited. It is absent while etcd runs, so its absence means an unclean exit.
	ExitFile = "druid.exit"
	// QuarantinePrefix starts the names of quarantined data directories.
	QuarantinePrefix = "data.quarantine-"
	// RestoredDir is where a restore builds a data directory until its identity file is written and it is renamed.
	// Names with this prefix belong to the restore, and no etcd ever ran on their data.
	RestoredDir = "data.restored"
	// QuarantineFile, in a quarantined directory, says why it was quarantined and what it contains.
	QuarantineFile = "druid.quarantine.json"
)

// RestoredPath is where a restore builds a data directory.
func RestoredPath(volume string) string { return filepath.Join(volume, RestoredDir) }

// DataPath is etcd's data directory on the volume.
func DataPath(volume string) string { return filepath.Join(volume, DataDir) }

// ErrInUse says that another process holds the lock of the volume.
var ErrInUse = errors.New("volume is in use by another process")

// Lock takes the lock of the volume without waiting. The lock is held until every copy of the returned descriptor is
// closed, inherited and passed ones included. It is never unlocked explicitly, because that would unlock all copies.
// If another process holds the lock, the error is ErrInUse. Any other error describes the problem of the volume and
// what to do.
func Lock(volume string) (*os.File, error) {
	if err := writable(volume); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(volume, LockFile), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, explain(volume, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(fmt.Errorf("lock volume %s: %w", volume, err), f.Close())
	}
	return f, nil
}

// writable checks that this process can write to the volume, before anything is changed on it.
func writable(volume string) error {
	info, err := os.Stat(volume)
	if err != nil {
		return explain(volume, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("volume %s is not a directory: mount the member's PersistentVolumeClaim there", volume)
	}
	if err := unix.Access(volume, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return explain(volume, &os.PathError{Op: "access", Path: volume, Err: err})
	}
	return nil
}

// explain adds to err what the user can do.
func explain(volume string, err error) error {
	hint := "check the volume and its PersistentVolumeClaim"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		switch errno {
		case syscall.ENOENT:
			hint = "it is missing: mount the member's PersistentVolumeClaim there"
		case syscall.EROFS:
			hint = "it is read-only: Linux can remount a file system with errors as read-only; check the kernel log of the node"
		case syscall.EACCES, syscall.EPERM:
			hint = fmt.Sprintf("it is not writable by UID %d, GID %d: grant write access with the fsGroup of the Pod or in the StorageClass",
				os.Getuid(), os.Getgid())
		case syscall.ENOSPC, syscall.EDQUOT:
			hint = "it is full: increase spec.storage.size"
		case syscall.EIO:
			hint = "the disk has I/O errors: replace it"
		}
	}
	return fmt.Errorf("volume %s: %w (%s)", volume, err, hint)
}

// Free is the free space of the volume for this user, in bytes.
func Free(volume string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(volume, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", volume, err)
	}
	return int64(st.Bavail * uint64(st.Bsize)), nil
}

// Allocated is the space in bytes that a file takes on its volume. A database can have holes, so its size can be more.
func Allocated(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Blocks * 512
}

// Size is the total size of the volume's file system, in bytes.
func Size(volume string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(volume, &st); err != nil {
		return 0, fmt.Errorf("size of %s: %w", volume, err)
	}
	return int64(st.Blocks * uint64(st.Bsize)), nil
}

// Exit is the marker of how the last etcd on the volume exited. It is removed before etcd starts. Without a marker,
// the node or launch crashed, or etcd never ran.
type Exit struct {
	// Clean: exit code 0, or SIGTERM from launch.
	Clean bool `json:"clean"`
	// Code of the exit, −1 if a signal ended etcd; Signal is then its name.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Crashes counts consecutive exits that were not clean.
	Crashes int `json:"crashes,omitempty"`
}

// ErrNoExit says that there is no marker.
var ErrNoExit = errors.New("no exit marker")

// WriteExit writes the marker to the volume.
func WriteExit(volume string, e Exit) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode exit marker: %w", err)
	}
	return WriteFile(filepath.Join(volume, ExitFile), append(raw, '\n'))
}

// ReadExit reads the marker. Without a marker it returns ErrNoExit.
func ReadExit(volume string) (Exit, error) {
	var e Exit
	raw, err := os.ReadFile(filepath.Join(volume, ExitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return e, ErrNoExit
	}
	if err != nil {
		return e, fmt.Errorf("read exit marker: %w", err)
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return Exit{}, fmt.Errorf("read exit marker %s: %w", filepath.Join(volume, ExitFile), err)
	}
	return e, nil
}

// ClearExit removes the marker, durably.
func ClearExit(volume string) error {
	if err := os.Remove(filepath.Join(volume, ExitFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove exit marker: %w", err)
	}
	return SyncDir(volume)
}

// fileMode of the files of this package. The volume belongs to one user.
const fileMode = 0o600

// WriteFile writes content to the file at path, durably and completely or not at all: a temporary file in the same
// directory, fsync, rename, fsync of the directory. The temporary file has a fixed name. So a writer after a crash
// reuses it, and no files accumulate on the volume. Only one process may write the same file at a time.
func WriteFile(path string, content []byte) error {
	temp, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = temp.Write(content)
	err = errors.Join(err, temp.Chmod(fileMode), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes creations, renames and removals in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
