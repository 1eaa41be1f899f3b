package volume

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/test/machine"
)

func TestLockIsHeldUntilEveryCopyIsClosed(t *testing.T) {
	dir := t.TempDir()
	first, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := syscall.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for _, let := range []func() error{first.Close, func() error { return syscall.Close(copied) }} {
		if _, err := Lock(dir); !errors.Is(err, ErrInUse) {
			t.Errorf("a second lock: %v, want ErrInUse", err)
		}
		if err := let(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Lock(dir)
	if err != nil {
		t.Errorf("lock of a free volume: %v", err)
	}
	_ = again.Close()
}

func TestWhatIsWrongWithAVolumeIsReported(t *testing.T) {
	tests := map[string]struct {
		prepare func(dir string) error
		uid     uintptr // whose attempt it is
		want    string
	}{
		"it is missing":           {os.Remove, 0, "mount the member's PersistentVolumeClaim"},
		"it is a file":            {func(d string) error { return errors.Join(os.Remove(d), os.WriteFile(d, nil, 0o600)) }, 0, "is not a directory"},
		"it is another user's":    {func(d string) error { return os.Chmod(d, 0o755) }, 65532, "not writable by UID 65532"},
		"its lock is another's":   {foreignLock, 65532, "not writable by UID 65532"},
		"it is mounted read-only": {readOnly, 0, "read-only"},
		"its lock is a directory": {func(d string) error { return os.Mkdir(filepath.Join(d, LockFile), 0o700) }, 0, "is a directory"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 {
				t.Fatal("it takes root to be someone else and to mount: run the tests as root, as the rig does")
			}
			dir := machine.OpenDir(t)
			t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
			if err := tc.prepare(dir); err != nil {
				t.Fatal(err)
			}
			err := lockAs(tc.uid, dir)
			if err == nil || errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v; want %q said of %s", err, tc.want, dir)
			}
		})
	}
}

func foreignLock(dir string) error {
	return errors.Join(os.Chmod(dir, 0o777), os.WriteFile(filepath.Join(dir, LockFile), nil, 0o600))
}

func readOnly(dir string) error {
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		return err
	}
	return syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

// lockAs tries to lock as another user, on a thread that ends with its goroutine because it is never unlocked.
func lockAs(uid uintptr, dir string) (err error) {
	var other sync.WaitGroup
	other.Go(func() {
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			err = errno
			return
		}
		var f *os.File
		if f, err = Lock(dir); err == nil {
			_ = f.Close()
		}
	})
	other.Wait()
	return err
}

func TestExitMarkerIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadExit(dir); !errors.Is(err, ErrNoExit) {
		t.Errorf("read without a marker: %v, want ErrNoExit", err)
	}
	if err := ClearExit(dir); err != nil {
		t.Errorf("clear without a marker: %v", err)
	}
	for _, want := range []Exit{{Clean: true}, {Code: -1, Signal: "killed", Crashes: 3}} {
		if err := WriteExit(dir, want); err != nil {
			t.Fatal(err)
		}
		got, err := ReadExit(dir)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ExitFile), []byte(`{"clean":true`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadExit(dir); err == nil || got.Clean {
		t.Errorf("half a marker: %+v, %v; want an error and nothing clean", got, err)
	}
	if err := ClearExit(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadExit(dir); !errors.Is(err, ErrNoExit) {
		t.Errorf("read after clear: %v, want ErrNoExit", err)
	}
}

func TestFileIsWrittenWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	// The temporary file of a writer that was killed.
	if err := os.WriteFile(filepath.Join(dir, ".f.new"), []byte("much that is not whole"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("another")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "missing", "f"), nil); err == nil {
		t.Error("written into a directory that is not there")
	}
	// A failed rename leaves neither a change nor a temporary file.
	if err := os.MkdirAll(filepath.Join(dir, "d", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "d"), []byte("x")); err == nil {
		t.Error("written over a directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	raw, err := os.ReadFile(path)
	if diff := cmp.Diff([]string{"d", "f"}, names); err != nil || diff != "" || string(raw) != "another" {
		t.Errorf("%q, %v (-want +got):\n%s", raw, err, diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != fileMode {
		t.Errorf("mode %v, %v; want %v", info.Mode(), err, os.FileMode(fileMode))
	}
}

func TestFreeSpaceAndSizeAreKnown(t *testing.T) {
	free, err := Free(t.TempDir())
	if err != nil || free <= 0 {
		t.Errorf("%d, %v; want some", free, err)
	}
	if size, err := Size(t.TempDir()); err != nil || size < free {
		t.Errorf("size %d, %v; want at least the free %d", size, err, free)
	}
	if _, err := Size(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("the size of nothing is known")
	}
	if _, err := Free(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("the space of nothing is known")
	}
}
