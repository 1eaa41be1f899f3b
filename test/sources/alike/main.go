// Command alike runs a command in a copy of this repository that is the same for Go's test cache wherever the repository is cloned: at one
// path, with times that come from content, with one PATH and one TMPDIR. A mount namespace of its own holds the copy, so that several runs
// do not meet and nothing is left behind. The next run removes the temporary files that a killed command left. Where this process may not
// mount, the command runs in the repository, and the cache knows the results of this clone alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/sources"
)

// Where the copy and the temporary files are, in the mount namespace of the command alone.
const at, temporary = "/run/druid-sources", "/run/druid-temporary"

func main() {
	fmt.Fprintln(os.Stderr, "alike:", run(os.Args[1:])) // the command replaces this process, unless there is an error
	os.Exit(1)
}

func run(command []string) error {
	if len(command) == 0 {
		return errors.New("name the command to run: go run ./test/sources/alike COMMAND ARGUMENTS…")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	if err := setPath(); err != nil {
		return err
	}
	repo, err := binaries.RepoDir()
	if err != nil {
		return err
	}
	// The thread gets the namespace, and the program that replaces this process goes on in it.
	runtime.LockOSThread()
	if err := mount(); err != nil {
		fmt.Fprintf(os.Stderr, "alike: %v: the command runs in the repository, whose results Go's test cache keeps for this path alone\n", err)
	} else {
		if err := sources.Copy(context.Background(), repo, at); err != nil {
			return err
		}
		if err := os.Chdir(at); err != nil {
			return err
		}
		if err := os.Setenv("PWD", at); err != nil {
			return err
		}
	}
	return fmt.Errorf("run %s: %w", path, unix.Exec(path, command, os.Environ()))
}

// setPath gives the command a PATH that is the same for all users of a machine.
func setPath() error {
	goProgram, err := exec.LookPath("go")
	if err != nil {
		return err
	}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		return os.Setenv("PATH", sources.Path(os.Getenv("PATH"), filepath.Dir(goProgram), home))
	}
	return nil // all folders of PATH can be the user's
}

// mount an empty file system of this thread alone.
func mount() error {
	if os.Geteuid() != 0 {
		return errors.New("only root may mount")
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part the mount namespace from its parent: %w", err)
	}
	if err := unix.Mount("sources", at, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a file system for the copy: %w", err)
	}
	if err := mountTemporary(); err != nil {
		fmt.Fprintf(os.Stderr, "alike: %v: the command has the temporary files of all programs\n", err)
	}
	return nil
}

// mountTemporary gives the command its temporary files at the same path as all others. Go's test cache repeats a test when TMPDIR differs.
func mountTemporary() error {
	base := filepath.Join(os.TempDir(), "druid-tests")
	release, err := lockBase(base)
	if err != nil {
		return err
	}
	defer release()
	dir, err := sources.TemporaryDir(base)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(dir, temporary, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", dir, temporary, err)
	}
	return os.Setenv("TMPDIR", temporary)
}

// lockBase makes the directory, and returns an error if another user can change it: what is in it is removed. Until release is called, no other
// command looks at what it can remove.
func lockBase(base string) (release func(), err error) {
	if err := os.Mkdir(base, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	fd, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", base, err)
	}
	release = func() { _ = unix.Close(fd) }
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil && (int(stat.Uid) != os.Geteuid() || stat.Mode&0o022 != 0) {
		err = errors.New("another user can change it: remove it")
	}
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("lock %s: %w", base, err)
	}
	return release, nil
}
