// Package preflight finds out, before anything is started, what this machine
// lacks to run a rig, and says for each what to do.
package preflight

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/rig/cgroup"
)

// programs maps what the rig runs to the Debian package that has it.
var programs = []struct{ path, pkg string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"runc", "runc"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"/usr/lib/cni/host-local", "containernetworking-plugins"},
	{"/usr/lib/cni/portmap", "containernetworking-plugins"},
	{"ip", "iproute2"},
	{"nft", "nftables"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"nsenter", "util-linux"},
	{"mount", "mount"},
}

// Check reports at once all that is missing. The nodes of a rig keep their files
// below base. Check does not look for a Go toolchain, because Go runs it.
func Check(base string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the rig needs Linux namespaces and cgroups, and this is %s; run it in a Linux virtual machine", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("the rig makes namespaces, mounts and cgroups, which needs root; run it with sudo, or as root in a virtual machine")
	}
	return errors.Join(checkPrograms(), checkKernel(), checkCgroups(), checkDisk(base))
}

func checkPrograms() error {
	var missing, packages []string
	seen := map[string]bool{}
	for _, p := range programs {
		if _, err := exec.LookPath(p.path); err == nil {
			continue
		}
		missing = append(missing, p.path)
		if !seen[p.pkg] {
			seen[p.pkg] = true
			packages = append(packages, p.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("missing programs: %s; on Debian: apt-get -o DPkg::Lock::Timeout=300 install --no-install-recommends %s",
		strings.Join(missing, ", "), strings.Join(packages, " "))
}

// namespaces are what every node has its own of.
var namespaces = []string{"net", "pid", "mnt", "uts", "ipc", "cgroup"}

func checkKernel() error {
	var errs []error
	for _, ns := range namespaces {
		if _, err := os.Stat("/proc/self/ns/" + ns); err != nil {
			errs = append(errs, fmt.Errorf("the kernel has no %s namespaces; boot one with CONFIG_NAMESPACES and all that depend on it", ns))
		}
	}
	fs, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if !strings.Contains(string(fs), "\toverlay\n") {
		// It may be a module that is not loaded yet.
		if out, err := exec.Command("modprobe", "overlay").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("the kernel has no overlay file system (modprobe overlay: %s); boot one with CONFIG_OVERLAY_FS",
				strings.TrimSpace(string(out))))
		}
	}
	return errors.Join(errs...)
}

func checkCgroups() error {
	_, err := cgroup.Detect()
	return err
}

// What must be free: an agent does not verify a backup if less than 12 percent of the file system would stay free,
// because a kubelet evicts Pods below 10. The files of a rig and of its clusters are below 4 GiB.
const (
	freePercent = 12
	rigBytes    = 4 << 30
)

func checkDisk(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the rig: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	return enough(dir, fs.Blocks*uint64(fs.Bsize), fs.Bavail*uint64(fs.Bsize))
}

// enough compares the free bytes of the file system of dir with its size in bytes.
func enough(dir string, size, free uint64) error {
	if need := size/100*freePercent + rigBytes; free < need {
		return fmt.Errorf("the file system of %s has %d MiB free, and the rig needs %d MiB, which is %d percent of it and 4 GiB; delete files, for "+
			"example with go clean -cache",
			dir, free>>20, need>>20, freePercent)
	}
	return nil
}
