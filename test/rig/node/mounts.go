package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/cgroup"
)

// disk maps directories that programs insist on to the node's own.
var disk = []struct{ at, from string }{
	{"/var/lib/kubelet", "kubelet"},
	{"/var/lib/containerd", "containerd"},
	{"/var/lib/cni", "cni"},
	{"/etc/cni/net.d", "etc/cni"},
	{"/var/log/pods", "log/pods"},
	{"/var/log/containers", "log/containers"},
}

// sysctls are kernel settings that the kubelet writes and that are not the
// node's own but the whole machine's: it gets files to write to instead.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mount gives the node its own view of the file system. Process 1 has made all
// mounts private before, so nothing of this is seen outside.
func (n *node) mount() error {
	if err := unix.Sethostname([]byte(n.name)); err != nil {
		return fmt.Errorf("set the hostname: %w", err)
	}
	if err := mountCgroups(); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for _, d := range []string{"/run/containerd", "/run/lock", "/run/netns", "/run/sysctl"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for _, m := range disk {
		from := n.dir(m.from)
		for _, d := range []string{from, m.at} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := bind(from, m.at); err != nil {
			return err
		}
	}
	for name, value := range sysctls {
		file := filepath.Join("/run/sysctl", strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(file, filepath.Join("/proc/sys", name)); err != nil {
			return err
		}
	}
	// The kubelet passes volumes to containers by mount propagation.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return nil
}

// mountCgroups mounts this node's cgroup namespace, so that the kubelet takes
// the node's own group for the root of all.
func mountCgroups() error {
	hs, err := cgroup.Detect() // before /sys is covered
	if err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if len(hs) == 1 && hs[0].V2() {
		return mountUnified()
	}
	const root = "/sys/fs/cgroup"
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", root, err)
	}
	for _, h := range hs {
		dir := filepath.Join(root, h.Dir())
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", dir, "cgroup", 0, h.MountOptions()); err != nil {
			return fmt.Errorf("mount cgroup hierarchy %s: %w", h.Controllers, err)
		}
		for c := range strings.SplitSeq(h.Dir(), ",") {
			if c == h.Dir() {
				continue
			}
			if err := os.Symlink(h.Dir(), filepath.Join(root, c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// mountUnified mounts cgroup v2 and moves the node's first processes down one
// level: a group that hands controllers to children must hold no processes.
func mountUnified() error {
	const root = "/sys/fs/cgroup"
	if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", root, err)
	}
	if err := os.Mkdir(root+"/init", 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	procs, err := os.ReadFile(root + "/cgroup.procs")
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(procs)) {
		if err := os.WriteFile(root+"/init/cgroup.procs", []byte(pid), 0o644); err != nil {
			return fmt.Errorf("move process %s to %s/init: %w", pid, root, err)
		}
	}
	return cgroup.EnableControllers(root)
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	return nil
}
