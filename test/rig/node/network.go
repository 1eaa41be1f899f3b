package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Interface is the node's end of its network cable.
const Interface = "eth0"

// network brings the node's interface up and lays the routes to the Pods of
// the other nodes, which go there directly.
func (n *node) network(ctx context.Context) error {
	net := n.plan.Network()
	lines := []string{
		"link set lo up",
		fmt.Sprintf("addr add %s dev %s nodad", net.OnLink(net.Node(n.index)), Interface),
		"link set " + Interface + " up",
		fmt.Sprintf("route add %s via %s", net.Everything, net.ControlPlane),
	}
	for i := 1; i <= len(n.plan.Nodes); i++ {
		if i != n.index {
			lines = append(lines, fmt.Sprintf("route add %s via %s", net.NodePods(i), net.Node(i)))
		}
	}
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("configure the network: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := Forward(); err != nil {
		return fmt.Errorf("configure the network: %w", err)
	}
	return nil
}

// Forward lets the kernel forward packets between the interfaces of this network namespace.
func Forward() error {
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		// A kernel without IPv6 does not have the second one.
		if err := os.WriteFile(file, []byte("1"), 0o644); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
