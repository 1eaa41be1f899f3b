package binaries

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// tool is one binary that the rig builds from Go modules.
type tool struct {
	// name is the binary's name, and its key in Set.
	name string
	// module is the folder below tools/ whose go.mod pins the version.
	module string
	// pkg is the main package; "." is the module's own.
	pkg string
	// cold is how long a build with an empty build cache took on two cores,
	// after the tools before it; it feeds the estimate that is shown.
	cold time.Duration
}

const etcdModule = "go.etcd.io/etcd/"

// tools lists all binaries, in the order in which they are built: those that
// compile much of what later ones need come first.
var tools = []tool{
	{"kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 210 * time.Second},
	{"kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", 45 * time.Second},
	{"kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", 5 * time.Second},
	{"kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", 15 * time.Second},
	{"kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy", 6 * time.Second},
	{"kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", 18 * time.Second},
	{"coredns", "coredns", ".", 30 * time.Second},
	{"provisioner", "provisioner", ".", 10 * time.Second},
	{"etcd-3.7", "etcd37", etcdModule + "server/v3", 30 * time.Second},
	{"etcdctl-3.7", "etcd37", etcdModule + "etcdctl/v3", 5 * time.Second},
	{"etcdutl-3.7", "etcd37", etcdModule + "etcdutl/v3", 5 * time.Second},
	{"etcd-3.6", "etcd36", etcdModule + "server/v3", 25 * time.Second},
	{"etcdctl-3.6", "etcd36", etcdModule + "etcdctl/v3", 5 * time.Second},
	{"etcdutl-3.6", "etcd36", etcdModule + "etcdutl/v3", 5 * time.Second},
	{"etcd-3.5", "etcd35", etcdModule + "server/v3", 25 * time.Second},
	{"etcdctl-3.5", "etcd35", etcdModule + "etcdctl/v3", 5 * time.Second},
	{"etcdutl-3.5", "etcd35", etcdModule + "etcdutl/v3", 5 * time.Second},
	{"robustness", "robustness", ".", 15 * time.Second},
	{"versitygw", "versitygw", "github.com/versity/versitygw/cmd/versitygw", 80 * time.Second},
	{"pause", "pause", ".", 5 * time.Second},
	{"certmanager", "certmanager", ".", 120 * time.Second},
}

// onRequest lists the binaries that no rig runs. They are built only for a
// caller that names them.
var onRequest = []tool{
	{"helm-4", "helm", "helm.sh/helm/v4/cmd/helm", 60 * time.Second},
	{"helm-3", "helm", "helm.sh/helm/v3/cmd/helm", 5 * time.Second},
	{"krew", "krew", "sigs.k8s.io/krew/cmd/krew", 10 * time.Second},
	{"validate-krew-manifest", "krew", "sigs.k8s.io/krew/cmd/validate-krew-manifest", 2 * time.Second},
}

// EtcdMinors are the etcd minors that are built, oldest first.
var EtcdMinors = []string{"3.5", "3.6", "3.7"}

// etcdModules maps a minor to its module's folder.
var etcdModules = map[string]string{"3.5": "etcd35", "3.6": "etcd36", "3.7": "etcd37"}

// EtcdVersion returns the full version, such as v3.6.1, that is pinned for an
// etcd minor.
func EtcdVersion(repo, minor string) (string, error) {
	folder, ok := etcdModules[minor]
	if !ok {
		return "", fmt.Errorf("etcd minor %q: choose one of %v", minor, EtcdMinors)
	}
	return Pinned(filepath.Join(repo, "tools", folder), etcdModule+"server/v3")
}

// Pinned returns the version, such as v3.6.1, that the file go.mod in a folder
// requires of a module.
func Pinned(dir, module string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the pinned version of %s: %w", module, err)
	}
	re := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(module) + ` (v\S+)`)
	m := re.FindSubmatch(b)
	if m == nil {
		return "", fmt.Errorf("%s requires no %s", filepath.Join(dir, "go.mod"), module)
	}
	return string(m[1]), nil
}

// ldflags strips the binary and stamps Kubernetes' version, which its modules
// carry no trace of; without it, clients cannot parse the server's version, and
// Helm 3 takes a Kubernetes that it only renders for as 1.20.
func (t tool) ldflags(dir string) (string, error) {
	const strip = "-s -w"
	switch t.module {
	case "kubernetes":
		v, major, minor, err := kubernetesVersion(dir, "k8s.io/kubernetes")
		if err != nil {
			return "", err
		}
		return strip + stamps([]string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"}, [][2]string{
			{"gitVersion", v},
			{"gitMajor", major},
			{"gitMinor", minor},
			{"gitTreeState", "clean"},
			{"gitCommit", "unknown"},
			{"buildDate", "1970-01-01T00:00:00Z"},
		}), nil
	case "helm":
		_, _, minor, err := kubernetesVersion(dir, "k8s.io/client-go")
		if err != nil {
			return "", err
		}
		return strip + stamps([]string{"helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"}, [][2]string{
			{"k8sVersionMajor", "1"}, // client-go v0.37 is of Kubernetes 1.37
			{"k8sVersionMinor", minor},
		}), nil
	default:
		return strip, nil
	}
}

// kubernetesVersion returns the version that is pinned for a module of
// Kubernetes, and its major and minor number.
func kubernetesVersion(dir, module string) (v, major, minor string, err error) {
	if v, err = Pinned(dir, module); err != nil {
		return "", "", "", err
	}
	m := regexp.MustCompile(`^v(\d+)\.(\d+)`).FindStringSubmatch(v)
	if m == nil {
		return "", "", "", fmt.Errorf("version %q of %s has no major and minor number", v, module)
	}
	return v, m[1], m[2], nil
}

// stamps returns the flags that set the variables in each of the packages.
func stamps(pkgs []string, variables [][2]string) string {
	var flags strings.Builder
	for _, pkg := range pkgs {
		for _, kv := range variables {
			fmt.Fprintf(&flags, " -X %s.%s=%s", pkg, kv[0], kv[1])
		}
	}
	return flags.String()
}
