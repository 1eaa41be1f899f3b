package backup

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/machine"
)

// taskVariable of the environment makes this program a process that does one thing.
const taskVariable = "DRUID_BENCH_TASK"

// task is what a process is instructed to do.
type task struct {
	// Kind is a name in tasks.
	Kind string
	// Endpoint of etcd.
	Endpoint string
	Store    store.Config
	Prefix   string
	Lineage  catalog.Lineage
	// Key of an object.
	Key string
	// From and To are revisions.
	From, To int64
	// Path of a file or a directory, Records of another one.
	Path, Records string
	// Bytes to make.
	Bytes int64
	// Profiles is a directory; empty means none.
	Profiles string
}

// usage is what a process reports at its end, and what was seen of it.
type usage struct {
	// Seconds it took for what it was instructed to do, and the CPU of all of the process.
	Wall, CPU float64
	// Written are bytes that reached the file system's cache; memory in bytes.
	Written       float64
	Resident      float64
	AnonymousPeak float64
	// More has what is special to the task.
	More map[string]float64
}

const mib = 1 << 20

// process is one that was started.
type process struct {
	tb   testing.TB
	kind string
	cmd  *exec.Cmd
	out  *bufio.Reader
	// anonymous is the peak that was seen, in bytes.
	anonymous float64
	sampling  errgroup.Group
	exited    chan struct{}
}

// begin starts a process.
func begin(tb testing.TB, t task) *process {
	tb.Helper()
	t.Profiles = *profiles
	text, err := json.Marshal(t)
	if err != nil {
		tb.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{tb: tb, kind: t.Kind, cmd: exec.CommandContext(tb.Context(), self), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p.sampling.Go(p.sample)
	return p
}

// sample looks at the memory until the process ends.
func (p *process) sample() error {
	for tick := time.Tick(10 * time.Millisecond); ; {
		if now, err := statusOf(p.cmd.Process.Pid, "RssAnon"); err == nil {
			p.anonymous = max(p.anonymous, now)
		}
		select {
		case <-p.exited:
			return nil
		case <-tick:
		}
	}
}

// ready waits until the process says so.
func (p *process) ready() {
	p.tb.Helper()
	if said, err := p.out.ReadString('\n'); err != nil || said != "ready\n" {
		p.tb.Fatalf("%s said %q, want that it is ready: %v", p.kind, said, err)
	}
}

// wait returns what the process used.
func (p *process) wait() usage {
	p.tb.Helper()
	text, err := io.ReadAll(p.out)
	err = errors.Join(err, p.cmd.Wait())
	close(p.exited)
	_ = p.sampling.Wait() // it has no error
	var u usage
	if err = errors.Join(err, json.Unmarshal(text, &u)); err != nil {
		p.tb.Fatalf("%s: %v", p.kind, err)
	}
	u.AnonymousPeak = p.anonymous
	// The kernel knows better than the process, whose end it did not see.
	u.CPU = (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds()
	p.tb.Logf("%-8s wall %.1f s, cpu %.2f s, resident %.0f MiB, anonymous %.0f MiB, written %.0f MiB, %v",
		p.kind, u.Wall, u.CPU, u.Resident/mib, u.AnonymousPeak/mib, u.Written/mib, u.More)
	return u
}

// perform is begin and wait.
func perform(tb testing.TB, t task) usage {
	tb.Helper()
	return begin(tb, t).wait()
}

// statusOf reads a size in bytes from a process's status.
func statusOf(pid int, name string) (float64, error) {
	kib, err := machine.Number(fmt.Sprintf("/proc/%d/status", pid), name)
	return float64(kib << 10), err
}

// written is how many bytes this process wrote to disks, or will.
func written() (float64, error) {
	n, err := machine.Number("/proc/self/io", "write_bytes")
	return float64(n), err
}
