package node

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/etcd-druid/druid/test/rig/images"
	"github.com/etcd-druid/druid/test/rig/plan"
)

//go:embed etc
var etc embed.FS

// configFiles maps the configuration files to their places below the node's
// etc directory.
var configFiles = map[string]string{
	"containerd.toml": "containerd.toml",
	"kubelet.yaml":    "kubelet.yaml",
	"kube-proxy.yaml": "kube-proxy.yaml",
	"resolv.conf":     "resolv.conf",
	"10-rig.conflist": "cni/10-rig.conflist",
}

// values are what the configuration files are filled with.
type values struct {
	plan.Timings
	PauseImage, ContainerdSocket       string
	NodeIP, NodePodCIDR, PodCIDR       string
	Everything                         string
	DNSServiceIP, ClusterDomain        string
	CACert, Cert, Key, ProxyKubeconfig string
	ResolvConf, VolumePlugins          string
	Registries                         string
}

// configure writes the configuration of the node's programs.
func (n *node) configure() error {
	v := n.values()
	for name, to := range configFiles {
		if err := render("etc/"+name, n.dir("etc", to), v); err != nil {
			return fmt.Errorf("configure %s: %w", name, err)
		}
	}
	return nil
}

func (n *node) values() values {
	p, net := n.plan, n.plan.Network()
	return values{
		Timings:    p.Timings,
		PauseImage: images.Pause, ContainerdSocket: containerdSocket,
		NodeIP: net.Node(n.index), NodePodCIDR: net.NodePods(n.index), PodCIDR: net.Pods, Everything: net.Everything,
		DNSServiceIP: net.DNS, ClusterDomain: plan.ClusterDomain,
		CACert: p.PKI("ca.crt"), Cert: p.PKI(n.name + ".crt"), Key: p.PKI(n.name + ".key"),
		ProxyKubeconfig: p.PKI("proxy.kubeconfig"),
		ResolvConf:      n.dir("etc", "resolv.conf"), VolumePlugins: n.dir("volume-plugins"),
		Registries: registries(p, n.name),
	}
}

// registries is the directory in which containerd of a node looks for the
// addresses of registries.
func registries(p *plan.Plan, node string) string { return p.NodeDir(node, "etc", "registries") }

// RegistryFile is the file from which containerd of a node reads the address
// of a registry.
func RegistryFile(p *plan.Plan, node, registry string) string {
	return filepath.Join(registries(p, node), registry, "hosts.toml")
}

// ProxyConfig writes the kube-proxy configuration that nodes use to a file,
// for the control plane's own kube-proxy.
func ProxyConfig(p *plan.Plan, file string) error {
	return render("etc/kube-proxy.yaml", file, values{
		PodCIDR: p.Network().Pods, ProxyKubeconfig: p.PKI("proxy.kubeconfig"),
	})
}

func render(name, file string, v values) error {
	t, err := template.ParseFS(etc, name)
	if err != nil {
		return err
	}
	t = t.Option("missingkey=error")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return t.Execute(f, v)
}
