package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Program is one of the programs of a member's Pod.
type Program string

// The programs of a member's Pod, and druid.
const (
	Etcd   Program = "etcd"
	Launch Program = "launch"
	Agent  Program = "run"
	Druid  Program = "druid"
)

// Processes finds a program's processes by the Pod's UID, in the process list of the machine that carries the rig.
func Processes(podUID string, program Program) ([]int, error) {
	directories, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, dir := range directories {
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(group), podUID) {
			continue // ended while we looked, or another Pod's
		}
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !program.is(strings.Split(string(command), "\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, fmt.Errorf("process %s: %w", dir, err)
		}
		found = append(found, pid)
	}
	return found, nil
}

func (p Program) is(argv []string) bool {
	name := filepath.Base(argv[0])
	if p == Etcd {
		return name == string(Etcd)
	}
	return name == string(p) || (name == "agent" && len(argv) > 1 && argv[1] == string(p))
}

// Process is the one process of a program in a member's Pod.
func (c *Cluster) Process(t testing.TB, member string, program Program) int {
	t.Helper()
	var pid int
	Eventually(t, maxWait, fmt.Sprintf("one process %s of %s", program, member), func(ctx context.Context) error {
		pod, err := c.Pod(ctx, member)
		if err != nil {
			return err
		}
		pids, err := Processes(string(pod.UID), program)
		if err != nil || len(pids) != 1 {
			return errors.Join(err, fmt.Errorf("processes %v", pids))
		}
		pid = pids[0]
		return nil
	})
	return pid
}

// Kill ends a program of a member's Pod at once, as the kernel does when memory is short.
func (c *Cluster) Kill(t testing.TB, member string, program Program) {
	t.Helper()
	c.Signal(t, member, program, syscall.SIGKILL)
}

// Signal sends a signal to a program of a member's Pod.
func (c *Cluster) Signal(t testing.TB, member string, program Program, signal syscall.Signal) {
	t.Helper()
	pid := c.Process(t, member, program)
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatalf("send %s to %s of %s (%d): %v", signal, program, member, pid, err)
	}
}

// TryKill ends a program of a member's Pod at once if it runs.
func (c *Cluster) TryKill(t testing.TB, member string, program Program) {
	t.Helper()
	pod, err := c.Pod(t.Context(), member)
	if err != nil {
		return // it is gone, and its programs with it
	}
	pids, err := Processes(string(pod.UID), program)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("kill %s of %s (%d): %v", program, member, pid, err)
		}
	}
}

// Stopped returns an error unless a signal stopped the process.
func Stopped(pid int) error {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	if _, after, _ := strings.Cut(string(raw), ") "); !strings.HasPrefix(after, "T") {
		return fmt.Errorf("process %d is not stopped: %q", pid, raw)
	}
	return nil
}

// Ended returns an error while the process runs. One that its parent did not reap yet has ended.
func Ended(pid int) error {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if _, after, _ := strings.Cut(string(raw), ") "); err == nil && !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X") {
		return fmt.Errorf("process %d runs: %q", pid, raw)
	}
	return nil
}

// Usage is what a process has used.
type Usage struct {
	RSS int64 // bytes
	CPU time.Duration
}

// clockTick is the unit of CPU time in /proc: sysconf(_SC_CLK_TCK), 100 on every Linux platform that Go supports.
const clockTick = time.Second / 100

// UsageOf reads what a process has used.
func UsageOf(pid int) (Usage, error) {
	numbers, err := stat(pid, 11, 12, 21) // utime, stime, rss in pages
	if err != nil {
		return Usage{}, err
	}
	return Usage{
		CPU: time.Duration(numbers[0]+numbers[1]) * clockTick,
		RSS: numbers[2] * int64(os.Getpagesize()),
	}, nil
}

// BegunAt is when a process began, from the start of the machine.
func BegunAt(pid int) (time.Duration, error) {
	numbers, err := stat(pid, 19) // starttime
	if err != nil {
		return 0, err
	}
	return time.Duration(numbers[0]) * clockTick, nil
}

// AgeOf is for how long a process has run.
func AgeOf(pid int) (time.Duration, error) {
	begun, err := BegunAt(pid)
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	return time.Duration(now.Nano()) - begun, nil
}

// stat reads fields of /proc/<pid>/stat, counted from the process's state on. The name before it is in parentheses and may
// hold spaces.
func stat(pid int, wanted ...int) ([]int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(after)
	numbers := make([]int64, len(wanted))
	for i, field := range wanted {
		if field >= len(fields) {
			return nil, fmt.Errorf("process %d: %q has %d fields", pid, raw, len(fields))
		}
		if numbers[i], err = strconv.ParseInt(fields[field], 10, 64); err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return numbers, nil
}
