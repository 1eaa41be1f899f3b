package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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
