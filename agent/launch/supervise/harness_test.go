package supervise_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/launch/supervise"
	"github.com/etcd-druid/druid/test/machine"
)

// The test binary also serves as the programs that the tests run: launch itself, because it reaps every child of its
// process, the real etcd, and a program that behaves as etcd cannot be made to behave.
const roleVariable = "SUPERVISE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "etcd":
		etcdmain.Main(os.Args)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		// To the Go runtime, waiting for nothing is a deadlock, which ends the process without cgo.
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGUSR1)
		fmt.Fprintln(os.Stderr, "ignoring SIGTERM")
		<-never
	case "launch":
		if err := runLaunch(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

func runLaunch() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// Process 1 of a container gets its orphans. This makes them children of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	return supervise.Run(ctx, supervise.Options{
		Socket: os.Args[1], Volume: os.Args[2], Probe: os.Args[3],
		Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
}

// maxWait is the timeout for what takes at most seconds on an idle machine.
const maxWait = 2 * time.Minute

// pod is one volume, the socket of one agent and the processes around them.
type pod struct {
	t              *testing.T
	socket, volume string
	probe          string
	client         string
}

func newPod(t *testing.T) *pod {
	t.Helper()
	volume, err := filepath.EvalSymlinks(t.TempDir()) // as /proc reports it
	if err != nil {
		t.Fatal(err)
	}
	return &pod{
		t: t, socket: filepath.Join(machine.OpenDir(t), "s"), volume: volume,
		probe: machine.Address(t), client: machine.Address(t),
	}
}

// process is one run of launch.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (p *pod) launch() *process {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], p.socket, p.volume, p.probe) // ended by the test
	cmd.Env = append(os.Environ(), roleVariable+"=launch")
	cmd.Stdout, cmd.Stderr = p.t.Output(), p.t.Output()
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	run := &process{cmd: cmd, done: make(chan struct{})}
	var wait sync.WaitGroup
	wait.Go(func() { run.err = cmd.Wait(); close(run.done) })
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); wait.Wait() })
	return run
}

func (r *process) end(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.done:
		if r.err != nil {
			t.Fatalf("launch ended with %v, want code 0", r.err)
		}
	case <-time.After(maxWait):
		t.Fatalf("launch did not end within %s of SIGTERM", maxWait)
	}
}

// agent is the real server with a Decider that the test controls.
type agent struct {
	t      *testing.T
	server *launch.Server
	stop   func()
	hang   bool          // Stopping does not return before the test ends
	gone   chan struct{} // closed then
	copies chan int      // where not nil, gets a copy of the lock, as of a Decider that cannot return yet

	idle     chan launch.Idle
	answers  chan launch.Order
	stopping chan struct{}
}

func (p *pod) agent() *agent {
	p.t.Helper()
	a := &agent{t: p.t, idle: make(chan launch.Idle, 16), answers: make(chan launch.Order, 16), stopping: make(chan struct{}, 16), gone: make(chan struct{})}
	a.server = launch.NewServer(p.socket, a, slog.New(slog.NewJSONHandler(p.t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.server.Run(ctx); err != nil {
			p.t.Errorf("server: %v", err)
		}
	})
	var once sync.Once
	a.stop = func() { once.Do(func() { close(a.gone); cancel(); running.Wait() }) }
	p.t.Cleanup(a.stop)
	return a
}

func (a *agent) Next(ctx context.Context, idle launch.Idle, inform func(launch.Order)) (launch.Order, error) {
	if a.copies != nil {
		held, err := syscall.Dup(int(idle.Lock.Fd()))
		if err != nil {
			return launch.Order{}, err
		}
		a.copies <- held
	}
	a.idle <- idle
	for {
		select {
		case <-ctx.Done():
			return launch.Order{}, ctx.Err()
		case o := <-a.answers:
			if o.Kind == launch.OrderStart {
				return o, nil
			}
			inform(o)
		}
	}
}

func (a *agent) Stopping(context.Context) {
	a.stopping <- struct{}{}
	if a.hang {
		<-a.gone // beyond the bound of ctx: launch does not count on the agent
	}
}

// asked waits until launch asks.
func (a *agent) asked() launch.Idle {
	a.t.Helper()
	select {
	case idle := <-a.idle:
		return idle
	case <-time.After(maxWait):
		a.t.Fatalf("launch did not ask within %s", maxWait)
		return launch.Idle{}
	}
}

// until waits for a state of launch.
func (a *agent) until(what string, is func(launch.Status) bool) launch.Status {
	a.t.Helper()
	deadline := time.After(maxWait)
	for {
		status, changed := a.server.State()
		if is(status) {
			return status
		}
		select {
		case <-changed:
		case <-deadline:
			a.t.Fatalf("not within %s: %s; last: %+v", maxWait, what, status)
		}
	}
}

func (a *agent) untilRunning() launch.Status {
	a.t.Helper()
	return a.until("etcd runs", launch.Status.Running)
}

// etcd is the start order for a real etcd on the pod's volume.
func (p *pod) etcd() launch.Order {
	peer := "http://" + machine.Address(p.t)
	return launch.Order{
		Kind: launch.OrderStart,
		Path: os.Args[0],
		Argv: []string{
			"etcd", "--data-dir=" + filepath.Join(p.volume, "data"), "--name=demo-abcde", "--log-level=error",
			"--listen-client-urls=http://" + p.client, "--advertise-client-urls=http://" + p.client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=demo-abcde=" + peer, "--listen-metrics-urls=http://" + p.probe,
		},
		Env: append(os.Environ(), roleVariable+"=etcd"),
	}
}

// get reads a path of the probe address. If nothing listens there, it returns an error.
func (p *pod) get(path string) (string, error) {
	conn, err := net.DialTimeout("tcp", p.probe, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close() // only read
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path); err != nil {
		return "", err
	}
	raw, err := io.ReadAll(conn)
	return string(raw), err
}

// eventually polls with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for poll, late := time.Tick(20*time.Millisecond), time.After(maxWait); !ok(); {
		select {
		case <-poll:
		case <-late:
			t.Fatalf("not within %s: %s", maxWait, what)
		}
	}
}
