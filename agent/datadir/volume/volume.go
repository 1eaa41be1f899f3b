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
	// LockFile is held with an exclusive flock for as long as etcd may run or the agent looks at the volume.
	LockFile = "druid.lock"
	// StampFile says whose the data is.
	IdentityFileName = "druid.json"
	// ExitFile says how the last etcd ended. It is absent while etcd runs, so its absence means an unclean end.
	ExitFile = "druid.exit"
	// AsidePrefix starts the names of data directories that were moved aside.
	QuarantinePrefix = "data.quarantine-"
	// RestoredDir is where a data directory is made from a backup, until it is stamped and renamed. Names that start so are
	// the restore's own, and no etcd ever ran on what they name.
	RestoredDir = "data.restored"
	// AsideFile, in such a directory, says why it was moved aside and what is in it.
	QuarantineFile = "druid.quarantine.json"
)

// RestoredPath is where a data directory is made from a backup.
func RestoredPath(volume string) string { return filepath.Join(volume, RestoredDir) }

// DataPath is etcd's data directory on the volume.
func DataPath(volume string) string { return filepath.Join(volume, DataDir) }

// ErrInUse says that another process holds the volume's lock.
var ErrInUse = errors.New("volume is in use by another process")

// Lock takes the volume's lock without waiting. It is held until every copy of the returned descriptor, also inherited
// and passed ones, is closed; it is never unlocked explicitly, for that would unlock all copies. Another's lock is
// ErrInUse; any other error says what is wrong with the volume and what to do.
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

// writable finds out before anything is tried on it whether the volume is ours to write.
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

// explain says what a person can do about err.
func explain(volume string, err error) error {
	hint := "look at the volume and its PersistentVolumeClaim"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		switch errno {
		case syscall.ENOENT:
			hint = "it is missing: mount the member's PersistentVolumeClaim there"
		case syscall.EROFS:
			hint = "it is read-only: a file system that found errors is remounted read-only; look at the node's kernel log"
		case syscall.EACCES, syscall.EPERM:
			hint = fmt.Sprintf("it is not writable by UID %d, GID %d: let the Pod's fsGroup or the storage class give it to them",
				os.Getuid(), os.Getgid())
		case syscall.ENOSPC, syscall.EDQUOT:
			hint = "it is full: raise spec.storage.size"
		case syscall.EIO:
			hint = "the disk fails to read or write: replace it"
		}
	}
	return fmt.Errorf("volume %s: %w (%s)", volume, err, hint)
}

// Free is the space that the volume has left for our user, in bytes.
func Free(volume string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(volume, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", volume, err)
	}
	return int64(st.Bavail * uint64(st.Bsize)), nil
}

// Size is what the volume's file system holds in all, in bytes.
func Size(volume string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(volume, &st); err != nil {
		return 0, fmt.Errorf("size of %s: %w", volume, err)
	}
	return int64(st.Blocks * uint64(st.Bsize)), nil
}

// Exit is the marker of how the last etcd on the volume ended. It is removed before etcd is started, so a volume without
// one saw a crash of the node, of launch, or never an etcd.
type Exit struct {
	// Clean: code 0, or SIGTERM that launch had sent.
	Clean bool `json:"clean"`
	// Code of the exit, −1 where a signal ended it; Signal is its name then.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Crashes counts the exits in a row that were not clean.
	Crashes int `json:"crashes,omitempty"`
}

// ErrNoExit says that there is no marker.
var ErrNoExit = errors.New("no exit marker")

// WriteExit puts the marker onto the volume.
func WriteExit(volume string, e Exit) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode exit marker: %w", err)
	}
	return WriteFile(filepath.Join(volume, ExitFile), append(raw, '\n'))
}

// ReadExit reads the marker. Its absence is ErrNoExit.
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

// fileMode of what this package writes: the volume is one user's.
const fileMode = 0o600

// WriteFile puts content into the file at path, whole or not at all, and durably: a temporary file next to it, fsync,
// rename, fsync of the directory. The temporary file has one name, so that anyone who writes after one that died takes it over and nothing
// gathers on the volume: no one else may be writing the same file.
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
