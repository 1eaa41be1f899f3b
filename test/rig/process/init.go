package process

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Init is process 1 of a PID namespace: it starts one child and reaps all
// orphans until the child ends. It is a process of its own, because one that
// reaps every orphan cannot also wait for particular children through os/exec.
// When it ends, the kernel kills all that is left in the namespace.
func Init(args []string, inherited int) (exitCode int, err error) {
	if err := mountProc(); err != nil {
		return 1, err
	}
	// Taken and dropped, not ignored: a child would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	for fd := 3; fd < 3+inherited; fd++ {
		files = append(files, os.NewFile(uintptr(fd), "inherited"))
	}
	child, err := os.StartProcess(args[0], args, &os.ProcAttr{Files: files, Env: os.Environ()})
	if err != nil {
		return 1, fmt.Errorf("start %s: %w", args[0], err)
	}
	for _, f := range files[3:] {
		f.Close() // the child alone holds the run's lock and pipes
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait for children: %w", err)
		case pid == child.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == child.Pid && status.Exited():
			return status.ExitStatus(), nil
		}
	}
}

// mountProc makes /proc show this PID namespace. It must come before anything
// that reads /proc; mounts made here stay in this mount namespace.
func mountProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}
