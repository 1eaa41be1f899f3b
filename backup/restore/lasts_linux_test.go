package restore

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

// A table is mapped, and a mapped page that the disk has no room for would end the process: the room is taken before.
func TestATableOfKeysThatDoesNotFitTheDiskIsSaidSo(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount a small file system, which root may: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	l, err := newLasts(dir)
	if err != nil {
		t.Fatal(err)
	}
	var main int64
	for err == nil && main < 100_000 {
		main++
		err = l.note(fmt.Append(nil, "key-", main), place{main: main}, 1)
	}
	if !errors.Is(err, ErrSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("after %d keys: %v, want ErrSpace", main, err)
	}
	if !l.isAlive(fmt.Append(nil, "key-", main-1), place{main: main - 1}) {
		t.Error("the table that there is was lost")
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	// What could not be made leaves nothing behind, so that its room is free again.
	if l, err = newLasts(dir); err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}
