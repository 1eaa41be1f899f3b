package node

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/process"
)

func (n *node) containerd() *process.Service {
	return &process.Service{
		Name: "containerd", Path: "containerd", Log: n.log("containerd"),
		Args: []string{"--config=" + n.dir("etc", "containerd.toml")},
	}
}

func (n *node) kubelet() *process.Service {
	return &process.Service{
		Name: "kubelet", Path: n.plan.Bin["kubelet"], Log: n.log("kubelet"),
		Args: []string{
			"--config=" + n.dir("etc", "kubelet.yaml"),
			"--kubeconfig=" + n.plan.PKI(n.name+".kubeconfig"),
			"--hostname-override=" + n.name,
			"--node-ip=" + n.plan.Network().Node(n.index),
			"--node-labels=topology.kubernetes.io/zone=z" + strconv.Itoa(n.index) + ",topology.kubernetes.io/region=rig",
			"--v=2",
		},
	}
}

func (n *node) kubeProxy() *process.Service {
	return &process.Service{
		Name: "kube-proxy", Path: n.plan.Bin["kube-proxy"], Log: n.log("kube-proxy"),
		Args: []string{
			"--config=" + n.dir("etc", "kube-proxy.yaml"),
			"--hostname-override=" + n.name, "--v=1",
		},
	}
}

func (n *node) dir(elem ...string) string { return n.plan.NodeDir(n.name, elem...) }

func (n *node) log(component string) string { return n.dir("log", component+".log") }

// imageOf returns an archive's name without the hash of its content.
func imageOf(archive string) string {
	base := filepath.Base(archive)
	if i := strings.LastIndex(base, "-"); i > 0 {
		return base[:i]
	}
	return base
}

// SameImage reports whether two archives hold the same image, of whatever build.
func SameImage(a, b string) bool { return imageOf(a) == imageOf(b) }

// loaded returns the file that remembers which archive of an image a node's
// disk has, and what it says then.
func loaded(p *plan.Plan, node, archive string) (file, content string) {
	return p.NodeDir(node, "loaded", imageOf(archive)), filepath.Base(archive)
}

// LoadedImage reports whether a node's disk has the image of an archive.
func LoadedImage(p *plan.Plan, node, archive string) bool {
	file, want := loaded(p, node, archive)
	got, err := os.ReadFile(file)
	return err == nil && string(got) == want
}

// RememberImage notes that a node's disk has the image of an archive.
func RememberImage(p *plan.Plan, node, archive string) error {
	file, content := loaded(p, node, archive)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(content), 0o644)
}
