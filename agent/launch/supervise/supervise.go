package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/launch"
)

// Options of a supervisor.
type Options struct {
	// Socket on which the agent listens.
	Socket string
	// Volume is the root of the member's volume.
	Volume string
	// Probe is the address to serve while etcd does not run: the metrics address of etcd. Empty for none.
	Probe string
	// Forward are signals for etcd other than those that end it.
	Forward <-chan os.Signal
	Log     *slog.Logger
}

// lockRetry is the interval between attempts to lock the volume. Waiting for the other holder's exit would need a
// thread. A second is short compared with the start of a Pod.
const lockRetry = time.Second

// supervisor is one loop that owns all state. It stays on one thread. The kernel kills etcd when the thread that
// started it ends (Pdeathsig), and the loop lives as long as the process.
type supervisor struct {
	Options
	agent    *agentLine
	probe    *probe
	lock     *os.File
	children chan os.Signal // SIGCHLD

	lastExit *launch.Exit
	clean    bool
	crashes  int
}

// Run supervises etcd until ctx ends, which is the effect of SIGTERM. It then shuts down a running etcd cleanly.
func Run(ctx context.Context, o Options) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &supervisor{Options: o, children: make(chan os.Signal, 1), probe: &probe{addr: o.Probe, log: o.Log}}
	signal.Notify(s.children, syscall.SIGCHLD)
	defer signal.Stop(s.children)
	s.agent = dialAgent(ctx, o.Socket, o.Log)
	defer s.agent.close()
	defer s.probe.close()
	if !s.acquire(ctx) {
		return nil
	}
	defer s.lock.Close() // only held, never written
	s.readMarker(ctx)
	for {
		order, ok := s.idle(ctx)
		if !ok {
			return nil
		}
		s.probe.close()
		if s.run(ctx, order) {
			return nil
		}
	}
}

// acquire locks the volume, and reports what prevents that until it succeeds. It returns false if ctx ended first.
func (s *supervisor) acquire(ctx context.Context) bool {
	for former := ""; ; {
		lock, err := volume.Lock(s.Volume)
		if err == nil {
			s.lock = lock
			s.Log.InfoContext(ctx, "volume locked")
			return true
		}
		state := launch.StateUnusable
		if errors.Is(err, volume.ErrInUse) {
			state = launch.StateBlocked
		}
		s.probe.open(ctx, err.Error())
		s.agent.say(launch.Report{State: state, Error: err.Error()}, nil)
		if err.Error() != former {
			former = err.Error()
			s.Log.WarnContext(ctx, "volume not locked", "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.agent.orders: // nothing can be started yet
		case <-time.After(lockRetry):
		}
	}
}

// readMarker reads how the last etcd of a previous launch exited. An unreadable marker counts as not clean.
func (s *supervisor) readMarker(ctx context.Context) {
	exit, err := volume.ReadExit(s.Volume)
	if err != nil && !errors.Is(err, volume.ErrNoExit) {
		s.Log.WarnContext(ctx, "exit marker not read", "err", err)
	}
	s.clean, s.crashes = exit.Clean, exit.Crashes
}

// idle asks the agent until it responds with a start. It returns false if ctx ended first.
func (s *supervisor) idle(ctx context.Context) (launch.Order, bool) {
	s.probe.open(ctx, "waiting for the agent")
	s.agent.say(launch.Report{State: launch.StateIdle, LastExit: s.lastExit, Clean: s.clean, Crashes: s.crashes}, s.lock)
	for {
		select {
		case <-ctx.Done():
			return launch.Order{}, false
		case <-s.children:
			s.reap(0)
		case <-s.Forward: // there is no etcd to forward it to
		case order := <-s.agent.orders:
			switch order.Kind {
			case launch.OrderStart:
				return order, true
			case launch.OrderWait:
				s.Log.InfoContext(ctx, "start waits", "rule", order.Reason)
				s.probe.open(ctx, order.Reason)
			case launch.OrderStop, launch.OrderProceed:
				// They are for an etcd, and there is none.
			}
		}
	}
}

// writeMarker records how etcd exited. If that fails, the volume shows an unclean exit, and the next inspection takes
// longer.
func (s *supervisor) writeMarker(ctx context.Context, exit *launch.Exit) {
	err := volume.WriteExit(s.Volume, volume.Exit{Clean: s.clean, Code: exit.Code, Signal: exit.Signal, Crashes: s.crashes})
	if err != nil {
		s.Log.WarnContext(ctx, "exit marker not written", "err", err)
	}
}

// start runs etcd with exactly the path, arguments and environment of the order. etcd writes to launch's output, has
// no input, and gets the lock of the volume as its fourth descriptor. The marker is removed first, so that only an
// exit that launch saw counts as clean.
func (s *supervisor) start(o launch.Order) (int, error) {
	if err := volume.ClearExit(s.Volume); err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("start etcd: %w", err)
	}
	defer null.Close() // only read
	pid, err := syscall.ForkExec(o.Path, o.Argv, &syscall.ProcAttr{
		Env:   o.Env,
		Files: []uintptr{null.Fd(), 1, 2, s.lock.Fd()},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("start etcd %s: %w", o.Path, err)
	}
	return pid, nil
}

// child is a running etcd, and what was done to end it.
type child struct {
	pid     int
	started time.Time

	signalled bool             // SIGTERM was sent by us
	ending    bool             // ctx ended: there will be no next etcd
	proceed   <-chan time.Time // when the wait for the agent is over
	deadline  <-chan time.Time // when SIGKILL is due
}

// run runs etcd until it exits. done says that the supervisor must end too.
func (s *supervisor) run(ctx context.Context, order launch.Order) (done bool) {
	pid, err := s.start(order)
	if err != nil {
		// etcd did not run, so the marker still holds.
		s.Log.ErrorContext(ctx, "etcd not started", "err", err)
		s.lastExit = &launch.Exit{Code: -1, Message: err.Error()}
		s.writeMarker(ctx, s.lastExit)
		return false
	}
	c := &child{pid: pid, started: time.Now()}
	s.Log.InfoContext(ctx, "etcd started")
	s.agent.say(launch.Report{State: launch.StateRunning, PID: pid}, nil)
	stopped := ctx.Done()
	for {
		select {
		case <-stopped:
			stopped = nil
			c.ending = true
			c.proceed = s.leave(c)
		case <-c.proceed:
			c.terminate()
		case <-c.deadline:
			s.Log.WarnContext(ctx, "etcd did not exit within its grace period, sending SIGKILL")
			c.signal(syscall.SIGKILL)
		case sig := <-s.Forward:
			c.forward(sig)
		case order := <-s.agent.orders:
			c.serveOrders(order)
		case <-s.agent.lost:
			if c.ending {
				c.terminate() // no agent is left to move leadership
			}
		case <-s.children:
			if status := s.reap(pid); status != nil {
				s.ended(ctx, c, *status)
				return c.ending
			}
		}
	}
}

// leave asks the agent to move leadership, and bounds the wait for it.
func (s *supervisor) leave(c *child) <-chan time.Time {
	if c.signalled {
		return nil
	}
	select {
	case <-s.agent.lost: // an agent of former times
	default:
	}
	if !s.agent.connected() {
		c.terminate()
		return nil
	}
	s.agent.say(launch.Report{State: launch.StateStopping, PID: c.pid}, nil)
	return time.After(launch.StopGrace)
}

func (c *child) serveOrders(o launch.Order) {
	switch o.Kind {
	case launch.OrderStop:
		c.terminate()
		c.deadline = time.After(o.Grace)
	case launch.OrderProceed:
		if c.ending {
			c.terminate()
		}
	case launch.OrderStart, launch.OrderWait:
		// They answer a launch whose etcd does not run.
	}
}

// terminate sends SIGTERM to etcd once. On a second SIGTERM, etcd would exit without a clean shutdown.
func (c *child) terminate() {
	if !c.signalled {
		c.signalled = true
		c.signal(syscall.SIGTERM)
	}
}

func (c *child) forward(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		c.signal(number)
	}
}

// signal can be too late. The exit is then about to be reaped.
func (c *child) signal(sig syscall.Signal) { _ = syscall.Kill(c.pid, sig) }

// reap collects every process that exited, because orphans in the container become children of process 1. It returns
// the status of pid.
func (s *supervisor) reap(pid int) (status *syscall.WaitStatus) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR { // an errno as the kernel gave it
			continue
		}
		if err != nil || got <= 0 {
			return status
		}
		if got == pid {
			status = &ws
		}
	}
}

// ended records how etcd exited.
func (s *supervisor) ended(ctx context.Context, c *child, ws syscall.WaitStatus) {
	exit := &launch.Exit{Code: ws.ExitStatus(), RanFor: time.Since(c.started)}
	if ws.Signaled() {
		exit.Signal = ws.Signal().String()
	}
	s.clean = ws.Exited() && ws.ExitStatus() == 0 || c.signalled && ws.Signaled() && ws.Signal() == syscall.SIGTERM
	s.crashes++
	if s.clean {
		s.crashes = 0
	}
	s.lastExit = exit
	s.writeMarker(ctx, exit)
	s.Log.InfoContext(ctx, "etcd ended", "clean", s.clean, "code", exit.Code, "signal", exit.Signal)
}
