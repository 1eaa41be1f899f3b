// Package cgroup gives each rig and each of its nodes a control group of its
// own, below the one that this process was given, on cgroup v1, hybrid and v2
// hosts. It owns exactly the directories that it makes and removes no others.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Hierarchy is one mounted cgroup hierarchy and the place in it of the process
// that asked.
type Hierarchy struct {
	// Controllers names the hierarchy as mount(8) and /proc/self/cgroup do,
	// such as "cpu,cpuacct" or "name=systemd"; it is empty on v2.
	Controllers string
	// Own is the directory of the asking process's cgroup.
	Own string
}

// V2 reports whether this is the unified hierarchy.
func (h Hierarchy) V2() bool { return h.Controllers == "" }

// Dir is the name of the hierarchy's mount point below /sys/fs/cgroup.
func (h Hierarchy) Dir() string { return strings.TrimPrefix(h.Controllers, "name=") }

// MountOptions are the options that mount this v1 hierarchy.
func (h Hierarchy) MountOptions() string {
	if strings.HasPrefix(h.Controllers, "name=") {
		return "none," + h.Controllers
	}
	return h.Controllers
}

// required are the controllers without which a kubelet does not start.
var required = []string{"cpu", "cpuacct", "cpuset", "memory", "pids"}

// Detect returns the hierarchies of this process that containers need: all
// mounted v1 hierarchies, or the one of v2.
func Detect() ([]Hierarchy, error) {
	own, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	defer own.Close()
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	defer mounts.Close()
	hs, err := parse(own, mounts)
	if err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	return hs, nil
}

// mount is a cgroup mount: which part of the hierarchy is seen where.
type mount struct{ root, point string }

func parse(own, mountinfo io.Reader) ([]Hierarchy, error) {
	v1, v2, err := parseMounts(mountinfo)
	if err != nil {
		return nil, err
	}
	var hs []Hierarchy
	have := map[string]bool{}
	unified := ""
	for s := bufio.NewScanner(own); s.Scan(); {
		f := strings.SplitN(s.Text(), ":", 3)
		if len(f) != 3 {
			continue
		}
		names, path := f[1], f[2]
		if names == "" {
			unified = path
			continue
		}
		m, ok := v1[names]
		if !ok {
			continue // known to the kernel, mounted nowhere: it cannot be used
		}
		hs = append(hs, Hierarchy{Controllers: names, Own: m.dir(path)})
		for n := range strings.SplitSeq(names, ",") {
			have[n] = true
		}
	}
	if len(hs) == 0 && v2 != nil {
		return []Hierarchy{{Own: v2.dir(unified)}}, nil
	}
	var missing []string
	for _, c := range required {
		if !have[c] {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the cgroup controllers %s are not mounted; mount them below /sys/fs/cgroup, or boot with the unified hierarchy",
			strings.Join(missing, ", "))
	}
	return hs, nil
}

// dir turns a path of /proc/self/cgroup into a directory. A container sees
// only part of the hierarchy: the mount's root is that part's path.
func (m mount) dir(path string) string {
	if rel, ok := strings.CutPrefix(path, m.root); ok {
		path = rel
	}
	return filepath.Join(m.point, path)
}

// parseMounts reads the cgroup mounts of a mountinfo: v1 by name, and v2.
func parseMounts(r io.Reader) (map[string]mount, *mount, error) {
	v1, v2 := map[string]mount{}, (*mount)(nil)
	s := bufio.NewScanner(r)
	for s.Scan() {
		left, right, ok := strings.Cut(s.Text(), " - ")
		if !ok {
			continue
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 {
			continue
		}
		m := mount{root: l[3], point: l[4]}
		switch r[0] {
		case "cgroup2":
			v2 = &m
		case "cgroup":
			v1[controllers(r[2])] = m
		}
	}
	if err := s.Err(); err != nil {
		return nil, nil, err
	}
	if len(v1) == 0 && v2 == nil {
		return nil, nil, errors.New("no cgroup file system is mounted; mount one on /sys/fs/cgroup")
	}
	return v1, v2, nil
}

// controllers picks the controllers out of a v1 mount's super options.
func controllers(options string) string {
	var cs []string
	for o := range strings.SplitSeq(options, ",") {
		switch {
		case o == "rw", o == "ro", o == "xattr", o == "clone_children", o == "noprefix",
			o == "none", strings.HasPrefix(o, "release_agent="):
		default:
			cs = append(cs, o)
		}
	}
	return strings.Join(cs, ",")
}
