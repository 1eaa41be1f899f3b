// Package runs keeps account of the rigs of this machine: which run, which
// died, and what the dead left behind. A run is alive while its supervisor
// holds the lock on its directory; the kernel releases the lock with the
// process, however it ended, so that a process ID that was given out again
// cannot mislead.
package runs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/cgroup"
	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/process"
)

// ErrRunning says that a rig of that name runs already.
var ErrRunning = errors.New("is running")

// ErrNotRunning says that no rig of that name runs.
var ErrNotRunning = errors.New("is not running")

// Dir is the directory of the run of a name.
func Dir(cache, name string) string { return filepath.Join(cache, "runs", name) }

// NewID returns a fresh run ID.
func NewID() (string, error) {
	b := make([]byte, 4)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make a run ID: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// Claim takes the lock of a name and clears away what a dead run of that name
// left. The supervisor inherits the file and with it the lock.
func Claim(ctx context.Context, cache, name string) (*os.File, error) {
	var lock *os.File
	// One who only looks holds the lock too, for a moment: try for some.
	err := process.Poll(ctx, 2*time.Second, 10*time.Millisecond, func(context.Context) (err error) {
		if lock, err = tryLock(cache, name, unix.LOCK_EX); err == nil && lock == nil {
			err = fmt.Errorf("rig %q %w; take it down first, or choose another name", name, ErrRunning)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := cleanUp(ctx, Dir(cache, name)); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// Reap clears away what dead runs of any name left, and returns their names.
func Reap(ctx context.Context, cache string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(cache, "runs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for dead runs: %w", err)
	}
	var reaped []string
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		lock, err := tryLock(cache, e.Name(), unix.LOCK_EX)
		if err != nil || lock == nil {
			errs = append(errs, err)
			continue
		}
		if err := cleanUp(ctx, Dir(cache, e.Name())); err != nil {
			errs = append(errs, err)
		} else {
			reaped = append(reaped, e.Name())
		}
		lock.Close()
	}
	return reaped, errors.Join(errs...)
}

// Find returns the plan of a running rig.
func Find(cache, name string) (*plan.Plan, error) {
	if err := plan.ValidateName(name); err != nil {
		return nil, err
	}
	notRunning := fmt.Errorf("rig %q %w; bring it up with: go run ./test/rig up --name %s", name, ErrNotRunning, name)
	if _, err := os.Stat(Dir(cache, name)); err != nil {
		return nil, notRunning
	}
	lock, err := tryLock(cache, name, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	if lock != nil {
		lock.Close()
		return nil, notRunning
	}
	p, err := plan.Load(filepath.Join(Dir(cache, name), "plan.json"))
	if err != nil {
		return nil, fmt.Errorf("rig %q is just starting: %w", name, err)
	}
	return p, nil
}

// tryLock takes the lock of a name; a nil file says that another holds it.
// Lock files stay: removing one would let two processes hold "the" lock.
func tryLock(cache, name string, how int) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(cache, "runs"), 0o755); err != nil {
		return nil, fmt.Errorf("lock rig %q: %w", name, err)
	}
	f, err := os.OpenFile(Dir(cache, name)+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock rig %q: %w", name, err)
	}
	switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return nil, nil
	default:
		f.Close()
		return nil, fmt.Errorf("lock rig %q: %w", name, err)
	}
}

// cleanUp removes the cgroups and the directory of a run. Its processes, mounts
// and network went with its namespaces.
func cleanUp(ctx context.Context, dir string) error {
	p, err := plan.Load(filepath.Join(dir, "plan.json"))
	if err == nil {
		if err := cgroup.Remove(ctx, p.Cgroups); err != nil {
			return fmt.Errorf("clear dead run %s: %w", dir, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear dead run %s: %w", dir, err)
	}
	return nil
}
