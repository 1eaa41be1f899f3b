package boltdb

import (
	"os"

	"golang.org/x/sys/unix"
)

// willReadAll advises the kernel. Without it the check is slower, not wrong.
func willReadAll(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL) }

// willRead advises the kernel of one part.
func willRead(f *os.File, offset, length int64) {
	_ = unix.Fadvise(int(f.Fd()), offset, length, unix.FADV_WILLNEED)
}
