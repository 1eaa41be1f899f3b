package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"

	"github.com/etcd-druid/druid/test/rig/node"
	"github.com/etcd-druid/druid/test/rig/plan"
)

// baseNetwork makes the bridge that all nodes hang on. The control plane is
// the bridge's own address. The dummy port keeps the bridge up without nodes.
func baseNetwork(ctx context.Context, net plan.Network) error {
	err := ip(
		ctx,
		"link set lo up",
		"link add "+plan.Bridge+" type bridge",
		"addr add "+net.OnLink(net.ControlPlane)+" dev "+plan.Bridge+" nodad",
		"link set "+plan.Bridge+" up",
		"link add keep0 type veth peer name keep1",
		"link set keep1 up",
		"link set keep0 master "+plan.Bridge+" up",
		// An address must have a route before kube-proxy can translate it.
		"route add "+net.Services+" dev "+plan.Bridge,
		"addr add "+net.Single(net.API)+" dev lo nodad",
		"addr add "+net.Single(net.DNS)+" dev lo nodad",
	)
	if err != nil {
		return fmt.Errorf("make the rig's network: %w", err)
	}
	if err := node.Forward(); err != nil {
		return fmt.Errorf("make the rig's network: %w", err)
	}
	// Frames between nodes must not pass the control plane's Service rules. The
	// file is there only where the kernel could do so.
	for _, call := range []string{"/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"} {
		if err := os.WriteFile(call, []byte("0"), 0o644); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("make the rig's network: %w", err)
		}
	}
	return nil
}

// port is the bridge's end of a node's cable.
func port(node string) string { return "v" + node }

// cable lays the cable from the bridge into the network namespace of a node.
func (s *Supervisor) cable(ctx context.Context, name string, pid int) error {
	i, err := s.plan.Index(name)
	if err != nil {
		return err
	}
	// The cable of a former power-on goes with its namespace, a moment late.
	_ = ip(ctx, "link del "+port(name))
	err = ip(
		ctx,
		fmt.Sprintf("link add %s type veth peer name %s netns %d", port(name), node.Interface, pid),
		fmt.Sprintf("link set %s master %s up", port(name), plan.Bridge),
		fmt.Sprintf("route replace %s via %s", s.plan.Network().NodePods(i), s.plan.Network().Node(i)),
	)
	if err != nil {
		return fmt.Errorf("connect node %s: %w", name, err)
	}
	return nil
}

func ip(ctx context.Context, commands ...string) error {
	return pipe(ctx, strings.Join(commands, "\n")+"\n", "ip", "-batch", "-")
}

// pipe runs a command with an input and puts what it says into the error.
func pipe(ctx context.Context, input, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Names of what a node can be cut from, next to other nodes.
const (
	// controlPlane is the path between a node and the apiserver. Pods still
	// reach each other, and the cluster's DNS.
	controlPlane = "control-plane"
	// all is the whole cable.
	all = "all"
)

// cut is a broken direction: what one end sends does not reach the other. Each end is a node, controlPlane or all, and
// one of them is a node.
type cut struct{ from, to string }

// cuts are all broken directions.
type cuts map[cut]bool

// String describes the cuts for people, sorted: "a | b" if neither reaches the other, "a -> b" if only what a sends is lost.
func (c cuts) String() string {
	var lines []string
	for k := range c {
		switch {
		case !c[cut{k.to, k.from}]:
			lines = append(lines, fmt.Sprintf("partition: %s -> %s\n", k.from, k.to))
		case k.from < k.to:
			lines = append(lines, fmt.Sprintf("partition: %s | %s\n", k.from, k.to))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

// ruleset renders the cuts as an nftables script that replaces all former
// ones in one step.
func (c cuts) ruleset() string {
	var forward, input, output []string
	for k := range c {
		from, to := fmt.Sprintf("iifname %q ", port(k.from)), fmt.Sprintf("oifname %q ", port(k.to))
		switch {
		case k.to == all:
			forward, input = append(forward, from+"drop"), append(input, from+"drop")
		case k.from == all:
			forward, output = append(forward, to+"drop"), append(output, to+"drop")
		case k.to == controlPlane:
			input = append(input, from+"tcp dport 443 drop", from+"tcp sport 10250 drop")
		case k.from == controlPlane:
			output = append(output, to+"tcp sport 443 drop", to+"tcp dport 10250 drop")
		default:
			forward = append(forward, from+to+"drop")
		}
	}
	var out strings.Builder
	out.WriteString("table bridge rig\ndelete table bridge rig\ntable bridge rig {\n")
	for _, chain := range []struct {
		hook  string
		rules []string
	}{{"forward", forward}, {"input", input}, {"output", output}} {
		sort.Strings(chain.rules)
		fmt.Fprintf(&out, "\tchain %s {\n\t\ttype filter hook %s priority 0\n", chain.hook, chain.hook)
		for _, r := range chain.rules {
			fmt.Fprintf(&out, "\t\t%s\n", r)
		}
		out.WriteString("\t}\n")
	}
	out.WriteString("}\n")
	return out.String()
}

// applyCuts puts the cuts into force; the caller holds s.mu.
func (s *Supervisor) applyCuts(ctx context.Context) error {
	if err := pipe(ctx, s.cuts.ruleset(), "nft", "-f", "-"); err != nil {
		return fmt.Errorf("put the partitions into force: %w", err)
	}
	return nil
}
