package supervise

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
)

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
			c.obey(order)
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

func (c *child) obey(o launch.Order) {
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
