//go:build unix

package restore

import (
	"os"

	"golang.org/x/sys/unix"
)

// errPlatform is why no data directory can be restored on this system.
var errPlatform error

// Space returns the free and all bytes of the file system at path.
func Space(path string) (free, total int64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, 0, err
	}
	block := uint64(fs.Bsize)
	return int64(fs.Bavail * block), int64(fs.Blocks * block), nil
}

func mapFile(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmap(table []byte) error { return unix.Munmap(table) }

// lockDirectory takes a lock that ends with the process, or fails at once.
func lockDirectory(d *os.File) error { return unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
