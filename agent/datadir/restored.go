package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/crash"
)

// PlaceRestored makes what was restored (volume.RestoredPath) the data directory, for good. Its stamp stands already: data
// without one would be no one's. A data directory that has anything in it is an error, and stays.
func PlaceRestored(dir string) error {
	data := volume.DataPath(dir)
	// The stamp made an empty one; nothing but an empty one goes.
	crash.Before("clear-place")
	err := os.Remove(data)
	crash.After("clear-place")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("place restored data: %w", err)
	}
	crash.Before("place-restored")
	err = os.Rename(volume.RestoredPath(dir), data)
	crash.After("place-restored")
	if err != nil {
		return fmt.Errorf("place restored data: %w", err)
	}
	return volume.SyncDir(dir)
}
