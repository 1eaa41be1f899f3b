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

// Idle is a launch that asks what to do. Lock is the lock of the volume, the same open file description that launch
// holds. So the volume stays locked until both close it. The Server closes it after Next has returned.
type Idle struct {
	Report Report
	Lock   *os.File
}

// Decider decides what etcd does. One goroutine calls it at a time.
type Decider interface {
	// Next blocks until it has an OrderStart. It calls inform with an OrderWait when its reason changes. Its ctx ends
	// when launch disconnects. It must then return soon, because the lock is held for it. After an error it is called
	// again.
	Next(ctx context.Context, idle Idle, inform func(Order)) (Order, error)
	// Stopping is called when launch must end while etcd still runs. It moves leadership away. Its ctx ends after
	// StopGrace.
	Stopping(ctx context.Context)
}

// Status is what the agent knows about its launch.
type Status struct {
	// Connected is false while launch is not connected. etcd can still be running.
	Connected bool
	// Report is the last one. It outlives its connection.
	Report Report
}

// Running reports whether launch reported that etcd runs.
func (s Status) Running() bool {
	return s.Connected && (s.Report.State == StateRunning || s.Report.State == StateStopping)
}

// ErrDisconnected says that launch is not connected.
var ErrDisconnected = errors.New("launch is not connected")

// retryNext is how long the Server waits before it calls a Decider again after an error. It is about the duration of a
// member's start, so that a lasting error does not cause a busy loop.
const retryNext = time.Second

// Server is the agent's side of the protocol. Create it with NewServer.
type Server struct {
	socket  string
	decider Decider
	log     *slog.Logger

	mu      sync.Mutex
	conn    *Conn
	status  Status
	changed loop.Signal
}

// NewServer returns a Server that listens on the Unix socket at path socket.
func NewServer(socket string, decider Decider, log *slog.Logger) *Server {
	return &Server{socket: socket, decider: decider, log: log}
}

// State returns the current status of launch, and a channel that is closed at the next change.
func (s *Server) State() (Status, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.changed.Wait()
}

// Stop orders launch to stop etcd, with SIGKILL after grace. It blocks until etcd does not run or ctx ends. launch
// then asks the Decider again. If etcd does not run, Stop returns nil. If launch is not connected, it returns
// ErrDisconnected.
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

// Run serves launch until ctx ends. It serves one launch at a time. A second one waits until the first is gone, which
// the kernel reports at once when the process ends.
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
			s.log.WarnContext(ctx, "launch connection rejected", "err", err)
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

// listen takes over the path of the socket. An existing file was left by a previous agent.
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

// sameUser rejects a peer with another UID. All containers of the Pod run as one user, who owns the volume.
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
		return fmt.Errorf("the peer runs as UID %d and the agent as UID %d: configure one user for all containers of the Pod", uid, os.Getuid())
	}
	return nil
}

func (s *Server) set(conn *Conn, status Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.status = conn, status
	s.changed.Send()
}

// session is one connection of launch. Its reader never blocks on the Decider, so that it detects at once when launch
// disconnects. At most one call of the Decider is active.
type session struct {
	*Server
	conn *Conn

	asking sync.WaitGroup
	cancel context.CancelFunc // of the question under way
}

// serve reads reports until the connection breaks. It returns only after the Decider has stopped using the volume.
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
	// The new report replaces the previous question.
	s.cancel()
	s.asking.Wait()
	ctx, s.cancel = context.WithCancel(ctx)
	switch {
	case report.State == StateIdle && lock != nil:
		s.asking.Go(func() { s.ask(ctx, Idle{Report: report, Lock: lock}) })
		return
	case report.State == StateIdle:
		s.log.WarnContext(ctx, "launch did not send the volume lock")
	case report.State == StateStopping:
		s.asking.Go(func() { s.release(ctx) })
	}
	closeFile(lock)
}

// ask gets a start order from the Decider and sends it after the agent has closed the lock. From then on, the volume
// belongs to etcd.
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
		s.log.WarnContext(ctx, "start decision failed, retrying", "err", err)
		if err != nil {
			inform(Order{Reason: err.Error()})
		}
		if !loop.Sleep(ctx, retryNext) {
			return
		}
	}
}

// release lets the Decider move leadership away, then lets launch continue.
func (s *session) release(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, StopGrace)
	defer cancel()
	s.decider.Stopping(bounded)
	crash.Before("order-proceed")
	s.send(ctx, Order{Kind: OrderProceed})
	crash.After("order-proceed")
}

// send closes the connection on an error. launch then reconnects and reports its state again.
func (s *session) send(ctx context.Context, o Order) {
	if err := s.conn.SendOrder(o); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "order not sent", "rule", o.Kind, "err", err)
		_ = s.conn.Close()
	}
}
