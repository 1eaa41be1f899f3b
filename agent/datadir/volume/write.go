package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

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
