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
	// Probe is the address that is served while no etcd runs, etcd's own metrics address; empty for none.
	Probe string
	// Forward are signals for etcd, besides those of its end.
	Forward <-chan os.Signal
	Log     *slog.Logger
}

// lockRetry is how long to wait between two attempts at a volume that is not ours yet. The former holder's end cannot be
// waited for without a thread; a second is short against the start of a Pod.
const lockRetry = time.Second

// supervisor is one loop that owns all state. It stays on one thread, because the kernel kills etcd when the thread that
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

// Run supervises until ctx ends, which is what SIGTERM means: etcd, where it runs, is then stopped in good order.
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

// acquire takes the volume's lock, and reports what is in the way until it has it; false means that ctx ended before.
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

// readMarker learns how the last etcd of a former launch ended. What cannot be read was not clean.
func (s *supervisor) readMarker(ctx context.Context) {
	exit, err := volume.ReadExit(s.Volume)
	if err != nil && !errors.Is(err, volume.ErrNoExit) {
		s.Log.WarnContext(ctx, "exit marker not read", "err", err)
	}
	s.clean, s.crashes = exit.Clean, exit.Crashes
}

// idle asks the agent until it answers with a start; false means that ctx ended before.
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

// writeMarker puts down how etcd ended. Failing that, the volume reports an unclean end, which costs a longer look.
func (s *supervisor) writeMarker(ctx context.Context, exit *launch.Exit) {
	err := volume.WriteExit(s.Volume, volume.Exit{Clean: s.clean, Code: exit.Code, Signal: exit.Signal, Crashes: s.crashes})
	if err != nil {
		s.Log.WarnContext(ctx, "exit marker not written", "err", err)
	}
}

// start runs etcd: exactly the path, arguments and environment of the order, our own output, nothing to read, and the
// volume's lock as its fourth descriptor. Before that the marker goes, so that from now on only an end that we saw is clean.
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

// child is a running etcd, and what has been done to end it.
type child struct {
	pid     int
	started time.Time

	notified bool             // SIGTERM was sent by us
	ending   bool             // ctx ended: there will be no next etcd
	proceed  <-chan time.Time // when the wait for the agent is over
	deadline <-chan time.Time // when SIGKILL is due
}

// run runs one etcd to its end. done says that the supervisor was instructed to end, too.
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
	notified := ctx.Done()
	for {
		select {
		case <-notified:
			notified = nil
			c.ending = true
			c.proceed = s.leave(c)
		case <-c.proceed:
			c.terminate()
		case <-c.deadline:
			s.Log.WarnContext(ctx, "etcd outlived its grace")
			c.signal(syscall.SIGKILL)
		case sig := <-s.Forward:
			c.forward(sig)
		case order := <-s.agent.orders:
			c.serveOrders(order)
		case <-s.agent.lost:
			if c.ending {
				c.terminate() // no one is left to move leadership
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
	if c.notified {
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

// terminate asks etcd to end, once: at a second SIGTERM it would end without its good order.
func (c *child) terminate() {
	if !c.notified {
		c.notified = true
		c.signal(syscall.SIGTERM)
	}
}

func (c *child) forward(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		c.signal(number)
	}
}

// signal may come too late; then the end is about to be reaped.
func (c *child) signal(sig syscall.Signal) { _ = syscall.Kill(c.pid, sig) }

// reap collects every process that ended, for orphans of the container are process 1's, and returns the status of pid.
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

// ended puts down how etcd ended.
func (s *supervisor) ended(ctx context.Context, c *child, ws syscall.WaitStatus) {
	exit := &launch.Exit{Code: ws.ExitStatus(), RanFor: time.Since(c.started)}
	if ws.Signaled() {
		exit.Signal = ws.Signal().String()
	}
	s.clean = ws.Exited() && ws.ExitStatus() == 0 || c.notified && ws.Signaled() && ws.Signal() == syscall.SIGTERM
	s.crashes++
	if s.clean {
		s.crashes = 0
	}
	s.lastExit = exit
	s.writeMarker(ctx, exit)
	s.Log.InfoContext(ctx, "etcd ended", "clean", s.clean, "code", exit.Code, "signal", exit.Signal)
}
