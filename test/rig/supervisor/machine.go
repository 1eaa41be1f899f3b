package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/cgroup"
)

// machine is a node that is powered on.
type machine struct {
	pid  int
	done chan struct{} // closed when its process 1 ended
}

// nodeNamespaces are all but the user namespace.
const nodeNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS |
	unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP

func (s *Supervisor) cgroupOf(node string) cgroup.Group {
	return cgroup.At(s.cgroups, filepath.Base(s.plan.Cgroups[0]), node)
}

// powerOn starts a node; the caller holds s.mu.
func (s *Supervisor) powerOn(ctx context.Context, name string) error {
	if _, on := s.nodes[name]; on {
		return fmt.Errorf("node %s is on already", name)
	}
	group := s.cgroupOf(name)
	if err := errors.Join(group.Make(), group.RemoveChildren(ctx)); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	log, err := s.nodeLog(name)
	if err != nil {
		return err
	}
	defer log.Close()
	far, near, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	defer far.Close()
	defer near.Close()
	cmd := exec.Command(s.plan.Rig, "init", "1", s.plan.Rig, "node", s.plan.File(), name)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{far}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: nodeNamespaces, Setsid: true}
	if err := group.Start(cmd); err != nil {
		return fmt.Errorf("power on node %s: %w", name, err)
	}
	m := &machine{pid: cmd.Process.Pid, done: make(chan struct{})}
	s.nodes[name] = m
	s.group.Go(func() error { s.await(name, m, cmd); return nil })
	if err := s.cable(ctx, name, m.pid); err != nil {
		return err
	}
	if _, err := near.Write([]byte{1}); err != nil {
		return fmt.Errorf("power on node %s: %w", name, err)
	}
	return nil
}

func (s *Supervisor) nodeLog(name string) (*os.File, error) {
	file := s.plan.NodeDir(name, "log", "node.log")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("open the log of node %s: %w", name, err)
	}
	return os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// await notes that a node ended, whether it was instructed to or not.
func (s *Supervisor) await(name string, m *machine, cmd *exec.Cmd) {
	err := cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[name] == m {
		delete(s.nodes, name)
	}
	close(m.done)
	fmt.Fprintf(os.Stderr, "node %s ended: %v\n", name, err)
}

// powerOff kills a node at once, as pulling its plug would.
func (s *Supervisor) powerOff(ctx context.Context, name string) error {
	m, err := s.machine(name)
	if err != nil {
		return err
	}
	// A frozen process takes even SIGKILL only when it thaws.
	if err := s.cgroupOf(name).Freeze(false); err != nil {
		return err
	}
	if err := syscall.Kill(m.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("power off node %s: %w", name, err)
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("power off node %s: its processes do not end: %w", name, ctx.Err())
	}
}

// killNodes ends all nodes together with the rig. Errors do not matter: the
// kernel ends what is left when the supervisor ends.
func (s *Supervisor) killNodes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, m := range s.nodes {
		_ = s.cgroupOf(name).Freeze(false)
		_ = syscall.Kill(m.pid, syscall.SIGKILL)
	}
}

// machine returns a node that is powered on.
func (s *Supervisor) machine(name string) (*machine, error) {
	if _, err := s.plan.Index(name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.nodes[name]
	if !ok {
		return nil, fmt.Errorf("node %s is off; start it with: start-node %s", name, name)
	}
	return m, nil
}
