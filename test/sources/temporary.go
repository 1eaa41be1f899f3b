package sources

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// TemporaryDir makes an empty directory for temporary files below base, and removes those of processes that ended: tests that were killed
// leave gigabytes there. It locks the directory until this process has ended, or the one that replaces it.
func TemporaryDir(base string) (string, error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	if err := removeEnded(base); err != nil {
		return "", fmt.Errorf("remove the temporary files of processes that ended: %w", err)
	}
	dir, err := os.MkdirTemp(base, "")
	if err != nil {
		return "", err
	}
	if _, err := lock(dir); err != nil {
		return "", fmt.Errorf("lock %s: %w", dir, err)
	}
	return dir, os.Chmod(dir, 0o777|os.ModeSticky)
}

// removeEnded removes the directories below base that no process locks.
func removeEnded(base string) error {
	entries, err := os.ReadDir(base)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		fd, err := lock(dir)
		if err != nil {
			continue // its process still runs, or another one removes it
		}
		err = os.RemoveAll(dir)
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// lock locks a directory until the file descriptor is closed. A process that replaces this one inherits it.
func lock(dir string) (fd int, err error) {
	if fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return 0, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}
