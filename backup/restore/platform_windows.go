package restore

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// errPlatform is why no data directory can be restored on this system: Windows has no lock on a directory, and renames no
// directory while a file in it is open.
var errPlatform = errors.New("Windows cannot hold a data directory: restore on Linux or macOS, or in a container")

// Space returns the free and all bytes of the volume at path.
func Space(path string) (free, total int64, err error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, 0, err
	}
	var available, all uint64
	if err := windows.GetDiskFreeSpaceEx(name, &available, &all, nil); err != nil {
		return 0, 0, err
	}
	return int64(available), int64(all), nil
}

func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) error { return errors.ErrUnsupported }

func lockDirectory(*os.File) error { return errors.ErrUnsupported }
