package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

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
