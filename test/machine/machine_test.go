package machine

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestAPortIsGivenAwayOnce(t *testing.T) {
	port, release, err := Reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reserve(t.Context(), port); err == nil {
		t.Errorf("port %d was reserved twice", port)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatalf("listen on a reserved port: %v", err)
	}
	release()
	if _, err := reserve(t.Context(), port); err == nil {
		t.Errorf("port %d was reserved while someone listens there", port)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if low, high := kernelRange(); low <= port && port <= high && (low > firstPort || lastPort > high) {
		t.Errorf("port %d is one that the kernel gives to anybody, %d to %d", port, low, high)
	}
}

// TestSocketDirectoryIsShort: a directory for sockets is short wherever temporary files live.
func TestSocketDirectoryIsShort(t *testing.T) {
	base := OpenDir(t)
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]os.FileMode{
		filepath.Join(base, strings.Repeat("x", 100)): 0o755, filepath.Join(base, "closed"): 0o700,
	} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", dir)
		got := OpenDir(t)
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(got, "socket"))
		if err != nil {
			t.Fatalf("TMPDIR %s: %v", dir, err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(got, dir) {
			t.Errorf("TMPDIR %s: got %s, which is too long or closed to others", dir, got)
		}
	}
}
