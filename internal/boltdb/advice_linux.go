package boltdb

import (
	"os"

	"golang.org/x/sys/unix"
)

// willReadAll advises the kernel that the complete file will be read. Without it, the check is only slower.
func willReadAll(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL) }

// willRead advises the kernel that a part of the file will be read.
func willRead(f *os.File, offset, length int64) {
	_ = unix.Fadvise(int(f.Fd()), offset, length, unix.FADV_WILLNEED)
}
