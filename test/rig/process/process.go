// Package process runs the rig's programs: each in a loop that starts it again
// when it ends, with its output in a log file, until its context ends.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// restartDelay keeps a program that cannot start from eating the machine, and
// is about what a service manager waits.
const restartDelay = 500 * time.Millisecond

// Service is a program that should always run.
type Service struct {
	Name string
	// Path and Args are the program; Env is added to the environment.
	Path string
	Args []string
	Env  []string
	// Log is the file that takes its output.
	Log string

	mu      sync.Mutex
	pid     int
	stopped bool
	changed chan struct{} // closed when stopped turns false
}

// Run keeps the program running until ctx ends, and then kills it.
func (s *Service) Run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.Log), 0o755); err != nil {
		return fmt.Errorf("make the log of %s: %w", s.Name, err)
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", s.Name, err)
	}
	defer log.Close()
	for ctx.Err() == nil {
		if err := s.awaitStart(ctx); err != nil {
			return nil // ctx ended
		}
		if err := s.once(ctx, log); ctx.Err() == nil {
			fmt.Fprintf(log, "rig: %s ended (%v)\n", s.Name, err)
		}
		sleep(ctx, restartDelay)
	}
	return nil
}

// once runs the program until it ends.
func (s *Service) once(ctx context.Context, log *os.File) error {
	cmd := exec.CommandContext(ctx, s.Path, s.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.mu.Lock()
	if s.stopped { // stopped between awaitStart and here
		s.mu.Unlock()
		return nil
	}
	err := cmd.Start()
	if err == nil {
		s.pid = cmd.Process.Pid
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	err = cmd.Wait()
	s.mu.Lock()
	s.pid = 0
	s.mu.Unlock()
	return err
}

// Stop kills the program and keeps it down.
func (s *Service) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped, s.changed = true, make(chan struct{})
	}
	if s.pid == 0 {
		return nil
	}
	if err := syscall.Kill(s.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s: %w", s.Name, err)
	}
	return nil
}

// Start lets a stopped program run again.
func (s *Service) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		s.stopped = false
		close(s.changed)
	}
}

// awaitStart returns when the program may run.
func (s *Service) awaitStart(ctx context.Context) error {
	s.mu.Lock()
	stopped, changed := s.stopped, s.changed
	s.mu.Unlock()
	if !stopped {
		return nil
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Poll calls try every interval until it succeeds. When the deadline passes
// first, it returns the last error of try that says more than that.
func Poll(ctx context.Context, timeout, interval time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if sleep(ctx, interval); ctx.Err() != nil {
			return last
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
