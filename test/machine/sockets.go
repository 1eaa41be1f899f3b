package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// maxSocketDir is the longest path of a directory that OpenDir returns. A unix socket's path has at most 107 bytes; the
// rest is for names in it.
const maxSocketDir = 80

// OpenDir makes a directory with a short path, so that unix sockets fit into it, through whose parents every user may
// walk; itself it is its maker's alone. t.TempDir promises neither. It goes with the test.
func OpenDir(tb testing.TB) string {
	tb.Helper()
	var all []string
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"} {
		dir, err := openDir(parent)
		if err == nil {
			tb.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
		all = append(all, err.Error())
	}
	tb.Fatalf("no directory for sockets: %q", all)
	return ""
}

func openDir(parent string) (string, error) {
	// What a test compares with /proc must not lead over a symbolic link.
	parent, err := filepath.EvalSymlinks(parent)
	if err != nil {
		return "", err
	}
	for p := parent; p != filepath.Dir(p); p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil {
			return "", err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return "", fmt.Errorf("%s is closed to other users", p)
		}
	}
	dir, err := os.MkdirTemp(parent, "druid-*")
	if err == nil && len(dir) > maxSocketDir {
		return "", fmt.Errorf("%s is too long for a socket (%w)", dir, os.Remove(dir))
	}
	return dir, err
}
