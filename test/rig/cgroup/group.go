package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/process"
)

// Group is one control group: the same path in every hierarchy.
type Group struct {
	dirs []groupDir
}

type groupDir struct {
	Hierarchy
	path string
}

// At names the group at a path below this process's own cgroup. It makes
// nothing. On v2 the group lies below the root instead: a cgroup that holds
// processes, as this process's own does, may not hand controllers to children.
func At(hs []Hierarchy, path ...string) Group {
	var g Group
	for _, h := range hs {
		base := h.Own
		if h.V2() {
			base = "/sys/fs/cgroup"
		}
		g.dirs = append(g.dirs, groupDir{h, filepath.Join(append([]string{base}, path...)...)})
	}
	return g
}

// Dirs lists the group's directories.
func (g Group) Dirs() []string {
	var ds []string
	for _, d := range g.dirs {
		ds = append(ds, d.path)
	}
	return ds
}

// Make makes the group, ready to take processes and to have children.
func (g Group) Make() error {
	for _, d := range g.dirs {
		if err := os.MkdirAll(d.path, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if err := d.prepare(); err != nil {
			return fmt.Errorf("prepare cgroup %s: %w", d.path, err)
		}
	}
	return nil
}

// prepare hands the parent's resources down: a v1 cpuset starts empty and
// refuses processes, and a v2 child has the controllers its parent gives.
func (d groupDir) prepare() error {
	parent := filepath.Dir(d.path)
	if d.V2() {
		return EnableControllers(parent)
	}
	if !strings.Contains(","+d.Controllers+",", ",cpuset,") {
		return nil
	}
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(parent, f))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(d.path, f), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// EnableControllers gives a v2 cgroup's controllers to its children.
func EnableControllers(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for c := range strings.FieldsSeq(string(b)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
			return fmt.Errorf("enable controller %s: %w", c, err)
		}
	}
	return nil
}

// Weigh gives the group n times the processor time of another group next to it,
// or of a session of processes, when all of them want more than there is.
func (g Group) Weigh(n int) error {
	for _, d := range g.dirs {
		file, one := "", 0
		switch {
		case d.V2():
			file, one = "cpu.weight", 100
		case slices.Contains(strings.Split(d.Controllers, ","), "cpu"):
			file, one = "cpu.shares", 1024
		default:
			continue
		}
		if err := os.WriteFile(filepath.Join(d.path, file), []byte(strconv.Itoa(n*one)), 0o644); err != nil {
			return fmt.Errorf("weigh cgroup: %w", err)
		}
		return nil
	}
	return errors.New("this host has no cpu cgroup; mount the cpu controller below /sys/fs/cgroup")
}

// Start starts a command inside the group.
func (g Group) Start(cmd *exec.Cmd) error {
	if len(g.dirs) == 1 && g.dirs[0].V2() {
		return g.startV2(cmd)
	}
	// A child is formed into the cgroups of the thread that forks it: the thread
	// joins, forks, and goes back. One that cannot go back must never take
	// other work, so it is left locked to a goroutine that ends.
	var eg errgroup.Group
	eg.Go(func() error {
		runtime.LockOSThread()
		if err := g.startV1(cmd); err != nil {
			return err
		}
		runtime.UnlockOSThread()
		return nil
	})
	return eg.Wait()
}

func (g Group) startV1(cmd *exec.Cmd) error {
	tid := []byte(strconv.Itoa(unix.Gettid()))
	join := func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), tid, 0o644); err != nil {
			return fmt.Errorf("join cgroup %s: %w", dir, err)
		}
		return nil
	}
	for _, d := range g.dirs {
		if err := join(d.path); err != nil {
			return err
		}
	}
	err := cmd.Start()
	for _, d := range g.dirs {
		err = errors.Join(err, join(d.Own))
	}
	return err
}

func (g Group) startV2(cmd *exec.Cmd) error {
	dir, err := os.Open(g.dirs[0].path)
	if err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	defer dir.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}

// Freeze stops every process of the group, and of the groups in it, or lets
// them go on.
func (g Group) Freeze(frozen bool) error {
	for _, d := range g.dirs {
		var file, value string
		switch {
		case d.V2():
			file, value = "cgroup.freeze", map[bool]string{true: "1", false: "0"}[frozen]
		case strings.Contains(","+d.Controllers+",", ",freezer,"):
			file, value = "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[frozen]
		default:
			continue
		}
		if err := os.WriteFile(filepath.Join(d.path, file), []byte(value), 0o644); err != nil {
			return fmt.Errorf("freeze cgroup: %w", err)
		}
		return nil
	}
	return errors.New("this host has no freezer cgroup; mount the freezer controller below /sys/fs/cgroup")
}

// RemoveChildren removes the groups inside this one. A node's power-on needs
// it: stale pod cgroups cost the kubelet 3 s each.
func (g Group) RemoveChildren(ctx context.Context) error {
	for _, d := range g.dirs {
		if err := removeTree(ctx, d.path, false); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes cgroup directories and what is in them. Processes that were
// just killed leave their cgroup a moment later, so it tries for some seconds.
func Remove(ctx context.Context, dirs []string) error {
	// The dead of a frozen group stay in all hierarchies until one thaws them.
	for _, d := range dirs {
		thaw(d)
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, removeTree(ctx, d, true))
	}
	return errors.Join(errs...)
}

// thaw lets the killed processes of frozen groups end. Most groups are not
// frozen and most hierarchies cannot freeze, so errors say nothing.
func thaw(root string) {
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // gone meanwhile
		}
		if !e.IsDir() {
			return nil
		}
		for file, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
			if f, err := os.OpenFile(filepath.Join(path, file), os.O_WRONLY, 0); err == nil {
				_, _ = f.WriteString(value)
				_ = f.Close()
			}
		}
		return nil
	})
}

func removeTree(ctx context.Context, root string, self bool) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // gone meanwhile
		}
		if e.IsDir() && (self || path != root) {
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, d := range slices.Backward(dirs) { // children stand behind their parents
		err := process.Poll(ctx, 30*time.Second, 10*time.Millisecond, func(context.Context) error {
			if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("remove cgroup %s: %w", d, err)
		}
	}
	return nil
}
