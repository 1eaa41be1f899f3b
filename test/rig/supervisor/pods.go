package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// doKillInPod signals the processes of a name in a container of a Pod.
func (s *Supervisor) doKillInPod(ctx context.Context, args []string) (string, error) {
	namespace, pod, container, name := args[0], args[1], args[2], args[3]
	signal, err := parseSignal(args[4])
	if err != nil {
		return "", err
	}
	id, err := s.containerID(ctx, namespace, pod, container)
	if err != nil {
		return "", err
	}
	pids, err := processesOf("/proc", id, name)
	if err != nil {
		return "", err
	}
	if len(pids) == 0 {
		return "", fmt.Errorf("no process %q runs in container %s of Pod %s/%s", name, container, namespace, pod)
	}
	var hit []string
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil {
			return "", fmt.Errorf("send %s to %s in Pod %s/%s: %w", unix.SignalName(signal), name, namespace, pod, err)
		}
		hit = append(hit, strconv.Itoa(pid))
	}
	return strings.Join(hit, " "), nil
}

// parseSignal reads a signal as kill(1) does: KILL, SIGKILL or 9.
func parseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("signal %q: use a name such as KILL, STOP or CONT, or a number", s)
}

// containerID asks the apiserver for the ID of a running container.
func (s *Supervisor) containerID(ctx context.Context, namespace, pod, container string) (string, error) {
	type status struct{ Name, ContainerID string }
	var p struct {
		Status struct {
			ContainerStatuses     []status
			InitContainerStatuses []status // where native sidecars are
		}
	}
	if err := s.kube.get(ctx, "/api/v1/namespaces/"+namespace+"/pods/"+pod, &p); err != nil {
		return "", err
	}
	var names []string
	for _, c := range append(p.Status.ContainerStatuses, p.Status.InitContainerStatuses...) {
		if c.Name == container && c.ContainerID != "" {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			return id, nil
		}
		names = append(names, c.Name)
	}
	return "", fmt.Errorf("Pod %s/%s has no started container %q; it has %v", namespace, pod, container, names)
}

// processesOf finds the processes of a name whose cgroup is a container's. A
// container's ID is long and random, so that no other process can match.
func processesOf(proc, containerID, name string) ([]int, error) {
	dirs, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, d := range dirs {
		groups, err := os.ReadFile(filepath.Join(d, "cgroup"))
		if err != nil || !bytes.Contains(groups, []byte(containerID)) {
			continue // ended meanwhile, or another's
		}
		cmdline, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil {
			continue
		}
		program, _, _ := bytes.Cut(cmdline, []byte{0})
		if filepath.Base(string(program)) != name {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// doVolumePath finds the directory of a claim's volume on the host.
func (s *Supervisor) doVolumePath(ctx context.Context, args []string) (string, error) {
	namespace, claim := args[0], args[1]
	var pvc struct{ Spec struct{ VolumeName string } }
	if err := s.kube.get(ctx, "/api/v1/namespaces/"+namespace+"/persistentvolumeclaims/"+claim, &pvc); err != nil {
		return "", err
	}
	if pvc.Spec.VolumeName == "" {
		return "", fmt.Errorf("claim %s/%s is not bound to a volume yet", namespace, claim)
	}
	var pv struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := s.kube.get(ctx, "/api/v1/persistentvolumes/"+pvc.Spec.VolumeName, &pv); err != nil {
		return "", err
	}
	dir := pv.Metadata.Annotations["rig/dir"]
	if dir == "" {
		return "", fmt.Errorf("volume %s of claim %s/%s was not made by the rig", pvc.Spec.VolumeName, namespace, claim)
	}
	return dir, nil
}
