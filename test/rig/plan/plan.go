// Package plan is the written description of one rig: its name, its addresses,
// its directories and its timings. `rig up` writes it down once; the
// supervisor, the nodes and the clients only read it, so that all of them
// agree. It decides nothing and starts nothing.
package plan

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Fixed names.
const (
	ClusterDomain = "cluster.local"
	Bridge        = "br0"
)

// MaxNodes is bounded by the addresses of the nodes.
const MaxNodes = 9

// Plan describes one rig.
type Plan struct {
	// Name is what the user calls the rig; at most one rig of a name runs.
	Name string
	// ID is unique per run; cgroups carry it.
	ID string
	// Dir holds everything that the run writes.
	Dir string
	// Nodes are the names of the nodes, n1 … nN.
	Nodes []string
	// Timings is the profile in force.
	Timings Timings
	// IPv6 says that all addresses are of IPv6. Otherwise all are of IPv4.
	IPv6 bool
	// APIPort is the port on the host's 127.0.0.1 that leads to the apiserver.
	APIPort int
	// Rig is the rig's own binary, which plays supervisor and node.
	Rig string
	// Bin maps the name of a component to its binary.
	Bin map[string]string
	// Pause and Images are image archives; Pause is loaded before the kubelet
	// starts, Images next to it.
	Pause  string
	Images []string
	// Cgroups are the run's own cgroup directories, one per hierarchy.
	Cgroups []string
}

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// ValidateName reports why a name cannot name a rig.
func ValidateName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("rig name %q: use 1 to 20 lower-case letters, digits and inner dashes", name)
	}
	return nil
}

// NodeNames returns the names of n nodes.
func NodeNames(n int) ([]string, error) {
	if n < 1 || n > MaxNodes {
		return nil, fmt.Errorf("%d nodes: a rig has 1 to %d", n, MaxNodes)
	}
	names := make([]string, n)
	for i := range names {
		// The n keeps YAML readers from seeing a number; a bare "n" would be a boolean.
		names[i] = fmt.Sprintf("n%d", i+1)
	}
	return names, nil
}

// Index returns the number of a node, counted from 1.
func (p *Plan) Index(node string) (int, error) {
	for i, n := range p.Nodes {
		if n == node {
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("no node %q in rig %q; its nodes are %v", node, p.Name, p.Nodes)
}

// Path joins elements below the run's directory.
func (p *Plan) Path(elem ...string) string {
	return filepath.Join(append([]string{p.Dir}, elem...)...)
}

// NodeDir is the directory that holds a node's disk, configuration and logs.
func (p *Plan) NodeDir(node string, elem ...string) string {
	return p.Path(append([]string{"nodes", node}, elem...)...)
}

// PKI returns the path of a file of the run's PKI.
func (p *Plan) PKI(file string) string { return p.Path("pki", file) }

// Log returns the path of a component's log.
func (p *Plan) Log(component string) string { return p.Path("log", component+".log") }

// ControlSocket is where the supervisor takes orders.
func (p *Plan) ControlSocket() string { return p.Path("control.sock") }

// PIDFile holds the supervisor's process ID on the host. It is not in the plan,
// which the supervisor writes: inside, it does not know its own.
func (p *Plan) PIDFile() string { return p.Path("pid") }

// File is the plan's own file.
func (p *Plan) File() string { return p.Path("plan.json") }

// Save writes the plan atomically.
func (p *Plan) Save() error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the plan of rig %q: %w", p.Name, err)
	}
	tmp := p.File() + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("write the plan of rig %q: %w", p.Name, err)
	}
	return os.Rename(tmp, p.File())
}

// Load reads a plan.
func Load(file string) (*Plan, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("read plan %s: %w", file, err)
	}
	return p, nil
}
