package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts an empty file system of size bytes at dir until the test ends. The test must run as root.
func SmallDisk(tb testing.TB, dir string, size int64) {
	tb.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		tb.Fatalf("mount a small disk (the test must run as root): %v", err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			tb.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// GrowDisk gives a small disk another size, and keeps what it has.
func GrowDisk(dir string, size int64) error {
	return syscall.Mount("", dir, "", syscall.MS_REMOUNT, fmt.Sprint("size=", size))
}

// FillDisk uses all the space of the disk at dir. EmptyDisk gives it back.
func FillDisk(tb testing.TB, dir string) {
	tb.Helper()
	file, err := os.OpenFile(ballast(dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	for block := make([]byte, os.Getpagesize()); err == nil; {
		_, err = file.Write(block)
	}
	if closed := file.Close(); !errors.Is(err, syscall.ENOSPC) || closed != nil {
		tb.Fatalf("fill the disk at %s: %v, %v", dir, err, closed)
	}
}

// EmptyDisk deletes what FillDisk wrote.
func EmptyDisk(dir string) error { return os.RemoveAll(ballast(dir)) }

func ballast(dir string) string { return filepath.Join(dir, "ballast") }
