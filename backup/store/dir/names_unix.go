//go:build unix

package dir

import (
	"os"
	"syscall"
)

// hasTwoNames returns whether the file has a second name.
func hasTwoNames(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 2
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(d *os.File) error { return d.Sync() }
