package supervise_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/etcd-druid/druid/test/sources"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ignoresSIGTERM reads the mask of ignored signals.
func ignoresSIGTERM(pid int) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if hex, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && mask&(1<<(uint(syscall.SIGTERM)-1)) != 0
		}
	}
	return false
}

func isZombie(pid int) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	return err == nil && strings.Contains(string(raw), ") Z ")
}

// children are the processes with the parent pid, including zombies.
func children(t *testing.T, pid int) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// The name is in parentheses and can contain parentheses.
		after := string(raw[bytes.LastIndexByte(raw, ')')+1:])
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == itoa(pid) {
			found = append(found, path)
		}
	}
	return found
}

// maxMemory is the documented limit of launch, which runs next to every etcd.
const maxMemory = 12 << 10 // KiB

func TestMemory(t *testing.T) {
	if err := sources.Reads(t.Context(), "../../..", "./cmd/launch"); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "launch")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "github.com/etcd-druid/druid/cmd/launch") // bounded by the test
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	p := newPod(t)
	a := p.agent()
	cmd := exec.Command(binary, "--socket", p.socket, "--volume", p.volume, "--probe", p.probe) // ended below
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	a.asked()
	for range 500 {
		_, _ = p.get("/readyz")
	}
	for range 20 { // starts and ends
		a.answers <- p.etcd()
		if err := syscall.Kill(a.untilRunning().Report.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		a.asked()
	}
	a.answers <- p.etcd()
	a.untilRunning()
	for key, limit := range map[string]int{"VmRSS:": maxMemory, "VmHWM:": maxMemory} {
		got := status(t, cmd.Process.Pid, key)
		t.Logf("%s %d KiB", key, got)
		if got > limit {
			t.Errorf("%s %d KiB, want at most %d", key, got, limit)
		}
	}
}

func status(t *testing.T, pid int, key string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			n, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in the status of %d", key, pid)
	return 0
}
