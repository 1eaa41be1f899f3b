package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/etcd-druid/druid/test/rig/plan"
)

// Interface is the node's end of its network cable.
const Interface = "eth0"

// network brings the node's interface up and lays the routes to the Pods of
// the other nodes, which go there directly.
func (n *node) network(ctx context.Context) error {
	lines := []string{
		"link set lo up",
		fmt.Sprintf("addr add %s/24 dev %s", plan.NodeIP(n.index), Interface),
		"link set " + Interface + " up",
		"route add default via " + plan.ControlPlaneIP,
	}
	for i := 1; i <= len(n.plan.Nodes); i++ {
		if i != n.index {
			lines = append(lines, fmt.Sprintf("route add %s via %s", plan.NodePodCIDR(i), plan.NodeIP(i)))
		}
	}
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("configure the network: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("configure the network: %w", err)
	}
	return nil
}
