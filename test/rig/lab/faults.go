package lab

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"

	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/rig/images"
)

// What a node can be cut from, next to another node.
const (
	// ControlPlane cuts a node from the apiserver only: its Pods still reach
	// other Pods and the cluster's DNS.
	ControlPlane = "control-plane"
	// All cuts a node from everything.
	All = "all"
)

// StopNode powers a node off, as pulling its plug would.
func (l *Lab) StopNode(ctx context.Context, node string) error {
	_, err := l.call(ctx, "stop-node", node)
	return err
}

// StartNode powers a node on again, with its disk as it was.
func (l *Lab) StartNode(ctx context.Context, node string) error {
	_, err := l.call(ctx, "start-node", node)
	return err
}

// Freeze stops all processes of a node, as a hypervisor that pauses it would.
func (l *Lab) Freeze(ctx context.Context, node string) error {
	_, err := l.call(ctx, "freeze", node)
	return err
}

// Thaw lets a frozen node go on.
func (l *Lab) Thaw(ctx context.Context, node string) error {
	_, err := l.call(ctx, "thaw", node)
	return err
}

// Partition cuts a node from another, from ControlPlane or from All, in both
// directions. Cuts add up until Heal.
func (l *Lab) Partition(ctx context.Context, node, peer string) error {
	_, err := l.call(ctx, "partition", node, peer)
	return err
}

// PartitionOneWay loses what one end sends to the other, which still reaches
// the first. One end is a node; the other is a node, ControlPlane or All. Cuts
// add up until Heal.
func (l *Lab) PartitionOneWay(ctx context.Context, from, to string) error {
	_, err := l.call(ctx, "partition-one-way", from, to)
	return err
}

// Heal ends all partitions.
func (l *Lab) Heal(ctx context.Context) error {
	_, err := l.call(ctx, "heal")
	return err
}

// StopAPIServer kills the apiserver and keeps it down.
func (l *Lab) StopAPIServer(ctx context.Context) error {
	_, err := l.call(ctx, "stop-apiserver")
	return err
}

// StartAPIServer starts the apiserver again and waits until it is ready.
func (l *Lab) StartAPIServer(ctx context.Context) error {
	_, err := l.call(ctx, "start-apiserver")
	return err
}

// KillInPod sends a signal, such as "KILL" or "STOP", to the processes of a
// name in a container of a Pod, sidecars included.
func (l *Lab) KillInPod(ctx context.Context, namespace, pod, container, process, signal string) error {
	_, err := l.call(ctx, "kill-in-pod", namespace, pod, container, process, signal)
	return err
}

// VolumePath is the directory, on this machine, of a claim's volume.
func (l *Lab) VolumePath(ctx context.Context, namespace, claim string) (string, error) {
	return l.call(ctx, "volume-path", namespace, claim)
}

// ExecNodeCmd is a command that runs a program in all namespaces of a node.
func (l *Lab) ExecNodeCmd(ctx context.Context, node string, argv ...string) (*exec.Cmd, error) {
	pid, err := l.call(ctx, "node-pid", node)
	if err != nil {
		return nil, err
	}
	// First into the rig, where the node's process ID means something.
	args := []string{
		"-t", strconv.Itoa(l.pid), "-m", "-p", "-n", "--",
		"nsenter", "-t", pid, "-m", "-u", "-i", "-n", "-p", "-C", "--",
	}
	return exec.CommandContext(ctx, "nsenter", append(args, argv...)...), nil
}

// ExecNode runs a program in all namespaces of a node and returns its output.
func (l *Lab) ExecNode(ctx context.Context, node string, argv ...string) (string, error) {
	cmd, err := l.ExecNodeCmd(ctx, node, argv...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run %v on node %s: %w: %s", argv, node, err, out)
	}
	return string(out), nil
}

// LoadImages loads image archives, as `docker save` writes them, into all
// nodes; into those that are off, when they are next on.
func (l *Lab) LoadImages(ctx context.Context, archives ...string) error {
	_, err := l.call(ctx, "load-images", archives...)
	return err
}

// TagImage gives an image another name next to its own, on all nodes.
func (l *Lab) TagImage(ctx context.Context, image, name string) error {
	for _, node := range l.Nodes() {
		if _, err := l.ExecNode(ctx, node, "ctr", "-n", "k8s.io", "images", "tag", "--force", image, name); err != nil {
			return fmt.Errorf("tag image %s as %s: %w", image, name, err)
		}
	}
	return nil
}

// LoadS3 loads the image of an S3 server into all nodes, for anyone who needs one.
func (l *Lab) LoadS3(ctx context.Context) error { return l.loadMade(ctx, images.Maker.S3Archive) }

// LoadAPIServer loads the image of a kube-apiserver into all nodes.
func (l *Lab) LoadAPIServer(ctx context.Context) error {
	return l.loadMade(ctx, images.Maker.APIServerArchive)
}

func (l *Lab) loadMade(ctx context.Context, archive func(images.Maker) (string, error)) error {
	file, err := archive(images.Maker{Cache: l.cache, Bin: l.plan.Bin})
	if err != nil {
		return err
	}
	return l.LoadImages(ctx, file)
}

// LoadDruid builds the product's image from the sources as they are now and
// loads it into all nodes. Running Pods keep the image that they started with.
func (l *Lab) LoadDruid(ctx context.Context) error {
	repo, err := binaries.RepoDir()
	if err != nil {
		return err
	}
	archive, err := images.Maker{Repo: repo, Cache: l.cache, Bin: l.plan.Bin}.DruidArchive(ctx)
	if err != nil {
		return err
	}
	return l.LoadImages(ctx, archive)
}
