package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/pki"
	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/runs"
	"github.com/etcd-druid/druid/test/rig/supervisor"
)

// supervisorNamespaces are those of the rig as a whole.
const supervisorNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC

// start starts the supervisor and follows it until the cluster is ready.
func start(ctx context.Context, o Options, cache string, p *plan.Plan, lock *os.File) (*Lab, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for users of the apiserver: %w", err)
	}
	defer l.Close()
	p.APIPort = l.Addr().(*net.TCPAddr).Port
	if err := os.MkdirAll(p.Path("log"), 0o755); err != nil {
		return nil, err
	}
	if err := pki.Cluster(p); err != nil {
		return nil, err
	}
	if err := p.Save(); err != nil {
		return nil, err
	}
	api, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer api.Close()
	cmd, status, lifeline, err := launch(o, p, api, lock)
	if err != nil {
		return nil, err
	}
	defer status.Close()
	lab, err := follow(ctx, o, cache, p, cmd, status)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = lock.Close()
		return nil, errors.Join(err, clearFailed(context.WithoutCancel(ctx), cache, o.Name))
	}
	if o.Bound {
		lab.bound, lab.lifeline = cmd, lifeline
	} else {
		_ = cmd.Process.Release()
	}
	return lab, nil
}

// clearFailed removes the cgroups and files of a run that did not come up.
func clearFailed(ctx context.Context, cache, name string) error {
	lock, err := runs.Claim(ctx, cache, name)
	if err != nil {
		return err
	}
	return lock.Close()
}

// launch starts the supervisor in its namespaces. The listener was made on the
// host and stays one of the host's, although the supervisor is elsewhere.
func launch(o Options, p *plan.Plan, api, lock *os.File) (cmd *exec.Cmd, status, lifeline *os.File, err error) {
	status, statusEnd, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer statusEnd.Close()
	lifelineEnd, lifeline, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer lifelineEnd.Close()
	log, err := os.Create(p.Log("supervisor"))
	if err != nil {
		return nil, nil, nil, err
	}
	defer log.Close()
	args := []string{"init", "4", p.Rig, "supervise", p.File()}
	if o.Bound {
		args = append(args, "--bound")
	}
	cmd = exec.Command(p.Rig, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{statusEnd, api, lock, lifelineEnd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: supervisorNamespaces, Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, fmt.Errorf("start the rig's supervisor: %w", err)
	}
	return cmd, status, lifeline, nil
}

// follow passes on the supervisor's news until it is ready.
func follow(ctx context.Context, o Options, cache string, p *plan.Plan, cmd *exec.Cmd, status *os.File) (*Lab, error) {
	if err := os.WriteFile(p.PIDFile(), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return nil, err
	}
	begun := time.Now()
	// A deadline in the past ends the read below when ctx ends.
	defer context.AfterFunc(ctx, func() { _ = status.SetReadDeadline(time.Unix(1, 0)) })()
	for d := json.NewDecoder(status); ; {
		var s supervisor.Status
		switch err := d.Decode(&s); {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("bring up rig %q: %w", p.Name, ctx.Err())
		case errors.Is(err, io.EOF):
			out, _ := os.ReadFile(p.Log("supervisor"))
			return nil, fmt.Errorf("bring up rig %q: its supervisor ended: %s", p.Name, out)
		case err != nil:
			return nil, fmt.Errorf("bring up rig %q: %w", p.Name, err)
		case s.Error != "":
			return nil, fmt.Errorf("bring up rig %q: %s", p.Name, s.Error)
		case s.Ready:
			o.Log("rig %q is up after %.1f s (without builds)", p.Name, time.Since(begun).Seconds())
			return open(cache, p)
		default:
			o.Log("%s", s.Step)
		}
	}
}
