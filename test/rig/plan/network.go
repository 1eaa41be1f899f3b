package plan

import (
	"fmt"
	"net"
)

// Network has the addresses of a rig. Every rig has its own network namespace, so that all rigs may use the same ones.
type Network struct {
	// ControlPlane, DNS and API are the addresses of the control plane, and of the Services kube-dns and kubernetes.
	ControlPlane, DNS, API string
	// Services and Pods are the networks of all Services and of all Pods.
	Services, Pods string
	// Everything is the destination of the default route.
	Everything string
	// AddressType is that of an EndpointSlice.
	AddressType string

	node, nodePods       string
	nodeBits, singleBits int
}

var (
	ipv4 = Network{
		ControlPlane: "10.90.0.1", DNS: "10.96.0.10", API: "10.96.0.1", Services: "10.96.0.0/16", Pods: "10.91.0.0/16",
		Everything: "0.0.0.0/0", AddressType: "IPv4",
		node: "10.90.0.1%d", nodePods: "10.91.%d.0/24", nodeBits: 24, singleBits: 32,
	}
	// Unique local addresses (RFC 4193), as clusters without an own prefix have.
	ipv6 = Network{
		ControlPlane: "fd00:90::1", DNS: "fd00:96::a", API: "fd00:96::1", Services: "fd00:96::/112", Pods: "fd00:91::/48",
		Everything: "::/0", AddressType: "IPv6",
		node: "fd00:90::1%d", nodePods: "fd00:91:0:%d::/64", nodeBits: 64, singleBits: 128,
	}
)

// Network returns the addresses of the rig.
func (p *Plan) Network() Network {
	if p.IPv6 {
		return ipv6
	}
	return ipv4
}

// Node returns the address of node i, counted from 1.
func (n Network) Node(i int) string { return fmt.Sprintf(n.node, i) }

// NodePods returns the network of the Pods of node i.
func (n Network) NodePods(i int) string { return fmt.Sprintf(n.nodePods, i) }

// OnLink returns the address with the prefix of the network of all nodes, as an interface has it.
func (n Network) OnLink(address string) string { return fmt.Sprintf("%s/%d", address, n.nodeBits) }

// Single returns the address with the prefix of itself.
func (n Network) Single(address string) string { return fmt.Sprintf("%s/%d", address, n.singleBits) }

// APIServer returns the URL of kube-apiserver for programs inside the rig.
func (n Network) APIServer() string { return "https://" + net.JoinHostPort(n.ControlPlane, "443") }
