package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
)

// Idle is a launch that asks what to do. Lock is the volume's lock: the same open file description that launch holds, so
// the volume stays ours until both let go. The Server closes it after Next has returned.
type Idle struct {
	Report Report
	Lock   *os.File
}

// Decider says what etcd is to do. It is asked by one goroutine at a time.
type Decider interface {
	// Next blocks until it has an OrderStart, and calls report with an OrderWait whenever its reason changed. Its ctx ends
	// when launch went away: then it must return soon, for the lock is held for it. After an error it is asked again.
	Next(ctx context.Context, idle Idle, inform func(Order)) (Order, error)
	// Stopping is called when launch was instructed to end and etcd still runs: the place to move leadership away. Its ctx
	// bounds it by StopGrace.
	Stopping(ctx context.Context)
}

// Status is what the agent knows of its launch.
type Status struct {
	// Connected is false while no launch is on the line: etcd may well be running.
	Connected bool
	// Report is the last one. It outlives its connection.
	Report Report
}

// Running says whether etcd runs, as far as launch reports.
func (s Status) Running() bool {
	return s.Connected && (s.Report.State == StateRunning || s.Report.State == StateStopping)
}

// ErrDisconnected says that no launch is on the line.
var ErrDisconnected = errors.New("launch is not connected")

// retryNext is how long the Server waits before it asks a Decider again that failed: about as long as a member's start
// takes, so that an error that lasts does not become a busy loop.
const retryNext = time.Second

// Server is the agent's half of the conversation. Create it with NewServer.
type Server struct {
	socket  string
	decider Decider
	log     *slog.Logger

	mu      sync.Mutex
	conn    *Conn
	status  Status
	changed loop.Signal
}

// NewServer makes a Server that listens on the unix socket at path socket.
func NewServer(socket string, decider Decider, log *slog.Logger) *Server {
	return &Server{socket: socket, decider: decider, log: log}
}

// State is what is known of launch now, and a channel that is closed at the next change.
func (s *Server) State() (Status, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.changed.Wait()
}

// Stop orders launch to stop etcd, SIGKILL after grace, and blocks until it no longer runs or ctx ends. launch then asks
// the Decider again. Stopping an etcd that does not run is no error; without a launch it is ErrDisconnected.
func (s *Server) Stop(ctx context.Context, grace time.Duration, reason string) error {
	s.mu.Lock()
	conn, status := s.conn, s.status
	changed := s.changed.Wait()
	s.mu.Unlock()
	switch {
	case !status.Connected || conn == nil:
		return fmt.Errorf("stop etcd: %w", ErrDisconnected)
	case !status.Running():
		return nil
	}
	crash.Before("order-stop")
	err := conn.SendOrder(Order{Kind: OrderStop, Grace: grace, Reason: reason})
	crash.After("order-stop")
	if err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}
	for pid := status.Report.PID; ; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop etcd: %w", context.Cause(ctx))
		case <-changed:
		}
		if status, changed = s.State(); !status.Connected {
			return fmt.Errorf("stop etcd: %w", ErrDisconnected)
		}
		if !status.Running() || status.Report.PID != pid {
			return nil
		}
	}
}

// Run serves launch until ctx ends. Launches are served one after another: a second one waits until the first is gone,
// which the kernel reports at once when it dies.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	defer func() { _ = listener.Close() }()
	for {
		c, err := listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept launch on %s: %w", s.socket, err)
		}
		if err := sameUser(c); err != nil {
			s.log.WarnContext(ctx, "launch refused", "err", err)
			_ = c.Close()
			continue
		}
		err = s.serve(ctx, NewConn(c))
		if ctx.Err() != nil {
			return nil
		}
		s.log.WarnContext(ctx, "launch disconnected", "err", err)
	}
}

// listen takes over the socket's path: a file that is still there is what a former agent left behind.
func (s *Server) listen() (*net.UnixListener, error) {
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove stale socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for launch: %w", err)
	}
	if err := os.Chmod(s.socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for launch: %w", err), listener.Close())
	}
	return listener, nil
}

// sameUser refuses a peer of another UID: all containers of the Pod run as one user, whose volume this is about.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("read peer credentials: %w", err)
	}
	var uid uint32
	var credErr error
	if err := raw.Control(func(fd uintptr) { uid, credErr = peerUser(int(fd)) }); err != nil {
		return fmt.Errorf("read peer credentials: %w", err)
	}
	if credErr != nil {
		return fmt.Errorf("read peer credentials: %w", credErr)
	}
	if int(uid) != os.Getuid() {
		return fmt.Errorf("peer runs as UID %d, the agent as UID %d: give all containers of the Pod one user", uid, os.Getuid())
	}
	return nil
}

func (s *Server) set(conn *Conn, status Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.status = conn, status
	s.changed.Send()
}

// session is one connection of launch: a reader that never blocks on the Decider, so that a launch that goes away is
// seen at once, and at most one question to the Decider at a time.
type session struct {
	*Server
	conn *Conn

	asking sync.WaitGroup
	cancel context.CancelFunc // of the question under way
}

// serve reads reports until the connection breaks. It returns only when the Decider let go of the volume.
func (s *Server) serve(ctx context.Context, conn *Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	session := &session{Server: s, conn: conn, cancel: func() {}}
	defer func() {
		stop()
		cancel()
		_ = conn.Close()
		session.asking.Wait()
		last, _ := s.State()
		s.set(nil, Status{Report: last.Report})
	}()
	s.log.InfoContext(ctx, "launch connected")
	for {
		report, lock, err := conn.ReadReport()
		if err != nil {
			return err
		}
		s.set(conn, Status{Connected: true, Report: report})
		session.handle(ctx, report, lock)
	}
}

func (s *session) handle(ctx context.Context, report Report, lock *os.File) {
	s.log.InfoContext(ctx, "launch reported", "mode", report.State, "err", report.Error)
	// Whatever launch says now, its former question is settled.
	s.cancel()
	s.asking.Wait()
	ctx, s.cancel = context.WithCancel(ctx)
	switch {
	case report.State == StateIdle && lock != nil:
		s.asking.Go(func() { s.ask(ctx, Idle{Report: report, Lock: lock}) })
		return
	case report.State == StateIdle:
		s.log.WarnContext(ctx, "launch came without lock")
	case report.State == StateStopping:
		s.asking.Go(func() { s.release(ctx) })
	}
	closeFile(lock)
}

// ask gets a start order from the Decider and sends it, after the agent let go of the volume: from then on it is etcd's.
func (s *session) ask(ctx context.Context, idle Idle) {
	defer closeFile(idle.Lock)
	inform := func(o Order) {
		o.Kind = OrderWait
		s.send(ctx, o)
	}
	for {
		order, err := s.decider.Next(ctx, idle, inform)
		if ctx.Err() != nil {
			return
		}
		if err == nil && order.Kind == OrderStart {
			closeFile(idle.Lock)
			crash.Before("order-start")
			s.send(ctx, order)
			crash.After("order-start")
			return
		}
		s.log.WarnContext(ctx, "start not decided", "err", err)
		if err != nil {
			inform(Order{Reason: err.Error()})
		}
		if !loop.Sleep(ctx, retryNext) {
			return
		}
	}
}

// release lets the Decider move leadership away, then lets launch go on.
func (s *session) release(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, StopGrace)
	defer cancel()
	s.decider.Stopping(bounded)
	crash.Before("order-proceed")
	s.send(ctx, Order{Kind: OrderProceed})
	crash.After("order-proceed")
}

// send drops the connection where it fails: launch dials again and reports again what it does.
func (s *session) send(ctx context.Context, o Order) {
	if err := s.conn.SendOrder(o); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "order not sent", "rule", o.Kind, "err", err)
		_ = s.conn.Close()
	}
}
