package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
)

const (
	suffix     = ".restoring"
	markerFile = "restore.json"
	dataName   = "data"
	purpose    = "druid restore: unfinished, may be deleted"

	dirMode  = 0o700 // the mode that etcd requires
	fileMode = 0o600
)

// marker identifies unfinished work of a restore, as opposed to files of others.
type marker struct {
	Purpose string       `json:"purpose"`
	DataDir string       `json:"dataDir"`
	Plan    catalog.Plan `json:"plan,omitzero"`
	File    string       `json:"file,omitempty"`
	Begun   time.Time    `json:"begun"`
}

// workspace is a directory next to the data directory. Its lock, on the directory itself, ends with the process.
type workspace struct {
	path    string
	dataDir string
	lock    *os.File
}

// enter takes the workspace, removes what a restore that died left in it, and marks it. It changes nothing if the data
// directory is not empty, or if the workspace was not made by a restore.
func enter(c *Config) (*workspace, error) {
	if errPlatform != nil {
		return nil, fmt.Errorf("restore: %w", errPlatform)
	}
	w := &workspace{path: c.DataDir + suffix, dataDir: c.DataDir}
	if err := w.checkTarget(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(w.path, dirMode); err != nil {
		return nil, fmt.Errorf("restore: create the workspace: %w", err)
	}
	if err := w.take(); err != nil {
		return nil, err
	}
	// The restore that held the lock may have finished meanwhile.
	err := w.checkTarget()
	if err == nil {
		err = w.clear()
	}
	if err == nil {
		err = w.mark(c)
	}
	if err != nil {
		return nil, errors.Join(err, w.lock.Close())
	}
	return w, nil
}

// Discard removes what a restore into dataDir left when it died, if anything. It returns ErrBusy for a restore that is
// running, and ErrForeign for what no restore made, and changes neither.
func Discard(dataDir string) error {
	w := &workspace{path: dataDir + suffix, dataDir: dataDir}
	if _, err := os.Lstat(w.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := w.take(); err != nil {
		return err
	}
	if err := w.clear(); err != nil {
		return errors.Join(err, w.lock.Close())
	}
	return w.leave()
}

// take locks the workspace until the process ends.
func (w *workspace) take() (err error) {
	if w.lock, err = os.Open(w.path); err != nil {
		return fmt.Errorf("restore: open the workspace: %w", err)
	}
	if err := lockDirectory(w.lock); err != nil {
		return errors.Join(fmt.Errorf("restore: %w: %s is locked: %w", ErrBusy, w.path, err), w.lock.Close())
	}
	return nil
}

// checkTarget rejects a data directory that is not empty.
func (w *workspace) checkTarget() error {
	entries, err := os.ReadDir(w.dataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("restore: read the data directory: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("restore: %w: %s has %s; move it away first", ErrNotEmpty, w.dataDir, entries[0].Name())
	}
	return nil
}

// clear removes what an earlier restore left, if it has the marker. A workspace with only an incomplete marker belongs
// to a restore that died before it began.
func (w *workspace) clear() error {
	entries, err := os.ReadDir(w.path)
	if err != nil {
		return fmt.Errorf("restore: read the workspace: %w", err)
	}
	if len(entries) == 0 || len(entries) == 1 && entries[0].Name() == markerFile+".tmp" {
		return nil
	}
	var m marker
	raw, err := os.ReadFile(filepath.Join(w.path, markerFile))
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil || m.Purpose != purpose {
		return fmt.Errorf("restore: %s was %w: it has %s, but no valid %s; move it away", w.path, ErrForeign, entries[0].Name(), markerFile)
	}
	if err := os.RemoveAll(filepath.Join(w.path, dataName)); err != nil {
		return fmt.Errorf("restore: remove the workspace of an earlier restore: %w", err)
	}
	return nil
}

// mark writes the marker atomically.
func (w *workspace) mark(c *Config) error {
	raw, err := json.MarshalIndent(marker{Purpose: purpose, DataDir: w.dataDir, Plan: c.Plan, File: c.File.Key, Begun: time.Now().UTC()}, "", "  ")
	if err != nil {
		return fmt.Errorf("restore: mark the workspace: %w", err)
	}
	name := filepath.Join(w.path, markerFile)
	err = errors.Join(os.WriteFile(name+".tmp", raw, fileMode), syncFile(name+".tmp"))
	if err == nil {
		err = os.Rename(name+".tmp", name)
	}
	if err = errors.Join(err, syncFile(w.path)); err != nil {
		return fmt.Errorf("restore: mark the workspace: %w", err)
	}
	return nil
}

// data returns the path where the data directory is made.
func (w *workspace) data() string { return filepath.Join(w.path, dataName) }

// publish moves the complete data directory to its final path and makes it durable.
func (w *workspace) publish() error {
	for _, dir := range []string{filepath.Join("member", "wal"), filepath.Join("member", "snap"), "member", ""} {
		if err := syncFile(filepath.Join(w.data(), dir)); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	// This removes an empty directory at the final path and nothing else.
	if err := os.Remove(w.dataDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore: replace the empty data directory: %w", err)
	}
	if err := os.Rename(w.data(), w.dataDir); err != nil {
		return fmt.Errorf("restore: move the data into place: %w", err)
	}
	if err := syncFile(filepath.Dir(w.dataDir)); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// leave removes the workspace with all its content.
func (w *workspace) leave() error {
	// The marker is removed last: without it, the remains could not be recognized.
	err := os.RemoveAll(w.data())
	if err == nil {
		err = os.RemoveAll(w.path)
	}
	if err := errors.Join(err, w.lock.Close()); err != nil {
		return fmt.Errorf("restore: remove the workspace: %w", err)
	}
	return nil
}

// syncFile makes a file, or the names in a directory, durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
