package launch

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/machine"
)

// maxWait is the timeout for what takes milliseconds on an idle machine.
const maxWait = 2 * time.Minute

// script is a Decider that the test controls.
type script struct {
	asked    chan Idle
	answer   chan func(ctx context.Context, inform func(Order)) (Order, error)
	released chan context.Context
}

func (s *script) Next(ctx context.Context, idle Idle, inform func(Order)) (Order, error) {
	s.asked <- idle
	select {
	case answer := <-s.answer:
		return answer(ctx, inform)
	case <-ctx.Done():
		return Order{}, context.Cause(ctx)
	}
}

func (s *script) Stopping(ctx context.Context) { s.released <- ctx }

func serve(t *testing.T) (*Server, *script, string) {
	t.Helper()
	socket := filepath.Join(machine.OpenDir(t), "s")
	if err := os.WriteFile(socket, []byte("left behind"), 0o600); err != nil {
		t.Fatal(err)
	}
	decider := &script{
		asked: make(chan Idle, 8), released: make(chan context.Context, 8),
		answer: make(chan func(context.Context, func(Order)) (Order, error), 8),
	}
	server := NewServer(socket, decider, slog.New(slog.NewJSONHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return server, decider, socket
}

// dial connects as launch does. The server might not listen yet.
func dial(t *testing.T, socket string) *Conn {
	t.Helper()
	for poll, late := time.Tick(5*time.Millisecond), time.After(maxWait); ; {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err == nil {
			conn := NewConn(c)
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		select {
		case <-poll:
		case <-late:
			t.Fatal(err)
		}
	}
}

func lockFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(maxWait):
		t.Fatalf("not within %s: %s", maxWait, what)
		panic("unreachable")
	}
}

func order(t *testing.T, c *Conn) Order {
	t.Helper()
	o, err := c.ReadOrder()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func send(t *testing.T, c *Conn, r Report, lock *os.File) {
	t.Helper()
	if err := c.SendReport(r, lock); err != nil {
		t.Fatal(err)
	}
}

// TestAgentReleasesVolumeBeforeEtcd: the agent releases the volume before etcd starts.
func TestAgentReleasesVolumeBeforeEtcd(t *testing.T) {
	_, decider, socket := serve(t)
	conn := dial(t, socket)
	send(t, conn, Report{State: StateIdle, Clean: true}, lockFile(t))
	idle := await(t, "the question", decider.asked)
	if !idle.Report.Clean {
		t.Errorf("report %+v", idle.Report)
	}
	decider.answer <- func(_ context.Context, inform func(Order)) (Order, error) {
		inform(Order{Reason: "first"})
		return Order{Kind: OrderStart, Path: "/etcd"}, nil
	}
	if o := order(t, conn); o.Kind != OrderWait || o.Reason != "first" {
		t.Errorf("%+v, want to wait", o)
	}
	if o := order(t, conn); o.Kind != OrderStart || o.Path != "/etcd" {
		t.Errorf("%+v, want the start", o)
	}
	if _, err := idle.Lock.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the lock's descriptor after the start: %v, want it closed", err)
	}
}

func TestQuestionEndsWithItsLaunch(t *testing.T) {
	server, decider, socket := serve(t)
	first := dial(t, socket)
	send(t, first, Report{State: StateIdle}, lockFile(t))
	idle := await(t, "the question", decider.asked)
	returned, let := make(chan struct{}), make(chan struct{})
	decider.answer <- func(ctx context.Context, _ func(Order)) (Order, error) {
		<-ctx.Done()
		close(returned)
		<-let // as one that is in the midst of something
		return Order{}, context.Cause(ctx)
	}
	_ = first.Close()
	await(t, "the end of the question's context", returned)
	second := dial(t, socket)
	send(t, second, Report{State: StateIdle}, lockFile(t))
	if _, err := idle.Lock.Stat(); err != nil {
		t.Errorf("the lock went while the Decider still looked: %v", err)
	}
	select {
	case <-decider.asked:
		t.Error("a second launch was served while the first one's question was open")
	case <-time.After(200 * time.Millisecond): // nothing is to happen
	}
	close(let)
	await(t, "the second question", decider.asked)
	if status, _ := server.State(); !status.Connected {
		t.Errorf("status %+v, want connected", status)
	}
}

// TestQuestionEndsWhenLaunchGoesOn: the question ends when launch goes on without its answer.
func TestQuestionEndsWhenLaunchGoesOn(t *testing.T) {
	server, decider, socket := serve(t)
	conn := dial(t, socket)
	send(t, conn, Report{State: StateIdle}, lockFile(t))
	idle := await(t, "the question", decider.asked)
	send(t, conn, Report{State: StateRunning, PID: 5}, nil)
	send(t, conn, Report{State: StateIdle}, lockFile(t))
	await(t, "the next question", decider.asked)
	if _, err := idle.Lock.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the former lock's descriptor: %v, want it closed", err)
	}
	if status, _ := server.State(); status.Running() {
		t.Errorf("status %+v, want idle", status)
	}
}

func TestFailedQuestionIsAskedAgain(t *testing.T) {
	_, decider, socket := serve(t)
	conn := dial(t, socket)
	send(t, conn, Report{State: StateIdle}, lockFile(t))
	for range 2 {
		await(t, "the question", decider.asked)
		decider.answer <- func(context.Context, func(Order)) (Order, error) { return Order{}, errors.New("disk on fire") }
		if o := order(t, conn); o.Kind != OrderWait || o.Reason != "disk on fire" {
			t.Errorf("%+v, want to wait for the error's sake", o)
		}
	}
}

func TestIdleWithoutLockIsNotAsked(t *testing.T) {
	server, decider, socket := serve(t)
	conn := dial(t, socket)
	send(t, conn, Report{State: StateIdle}, nil)
	send(t, conn, Report{State: StateRunning, PID: 5}, nil)
	for {
		status, changed := server.State()
		if status.Running() {
			break
		}
		await(t, "the state", changed)
	}
	select {
	case <-decider.asked:
		t.Error("asked without the volume's lock")
	default:
	}
}

func TestStoppingIsBoundedAndAnswered(t *testing.T) {
	server, decider, socket := serve(t)
	conn := dial(t, socket)
	send(t, conn, Report{State: StateStopping, PID: 5}, nil)
	ctx := await(t, "the release", decider.released)
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) > StopGrace {
		t.Errorf("deadline %v, %v; want within %v", deadline, ok, StopGrace)
	}
	if o := order(t, conn); o.Kind != OrderProceed {
		t.Errorf("%+v, want to proceed", o)
	}
	if status, _ := server.State(); !status.Running() {
		t.Errorf("status %+v, want running until it ends", status)
	}
}

func TestStopWithoutLaunch(t *testing.T) {
	server, _, _ := serve(t)
	if err := server.Stop(t.Context(), time.Second, "test"); !errors.Is(err, ErrDisconnected) {
		t.Errorf("%v, want ErrDisconnected", err)
	}
}

func TestLaunchOfAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("it takes root to be someone else: run the tests as root, as the rig does")
	}
	server, _, socket := serve(t)
	own := dial(t, socket)
	send(t, own, Report{State: StateRunning}, nil)
	_, changed := server.State()
	_ = own.Close()
	await(t, "the end of the former connection", changed)
	var asOther error
	// The mode of the socket is the first barrier. Open it to reach the second one.
	for _, path := range []string{filepath.Dir(socket), socket} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	var other sync.WaitGroup
	other.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread of another user ends with its goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65532, 65532, 65532); errno != 0 {
			asOther = errno
			return
		}
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			asOther = err
			return
		}
		_ = c.SetReadDeadline(time.Now().Add(maxWait))
		conn := NewConn(c)
		_ = conn.SendReport(Report{State: StateRunning, PID: 666}, nil)
		_, asOther = conn.ReadOrder()
		_ = conn.Close()
	})
	other.Wait()
	if asOther == nil || !(strings.Contains(asOther.Error(), "EOF") || strings.Contains(asOther.Error(), "reset") ||
		strings.Contains(asOther.Error(), "broken pipe")) {
		t.Errorf("another user's connection: %v, want it closed", asOther)
	}
	if status, _ := server.State(); status.Report.PID == 666 {
		t.Error("another user's report was believed")
	}
}
