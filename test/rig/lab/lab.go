// Package lab is the rig as a library: it brings up a Kubernetes cluster of
// real nodes on one Linux machine, hands out ways in, and makes faults happen.
//
//	l, err := lab.Up(ctx, lab.Options{Name: "e2e", Bound: true, Log: t.Logf})
//	…
//	defer l.Down(context.Background())
//	cfg, err := clientcmd.RESTConfigFromKubeConfig(l.Kubeconfig())
//
// A rig's state lives below the cache directory. A Lab holds nothing but the
// plan of a run, so that any number of processes may attach to the same rig.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/rig/control"
	"github.com/etcd-druid/druid/test/rig/images"
	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/runs"
)

// Storage classes of every rig.
const (
	// LocalClass, the default, has volumes that only one node can mount, and that never grow.
	LocalClass = "rig-local"
	// NetworkClass has volumes that every node can mount, and that grow while they are in use.
	NetworkClass = "rig-network"
	// RemountClass has such volumes that grow when they are mounted again.
	RemountClass = "rig-network-remount"
)

// DruidImage is the name of the product's image in the nodes.
const DruidImage = images.Druid

// S3Image is the name of the image that LoadS3 loads.
const S3Image = images.S3

// APIServerImage is the name of the image that LoadAPIServer loads.
const APIServerImage = images.APIServer

// Lab is a running rig.
type Lab struct {
	plan       *plan.Plan
	cache      string
	pid        int
	kubeconfig []byte
	bound      *exec.Cmd // the supervisor, when it is this process's own child
	lifeline   *os.File
}

// Attach finds a running rig by its name.
func Attach(name string) (*Lab, error) {
	cache, err := binaries.CacheDir()
	if err != nil {
		return nil, err
	}
	p, err := runs.Find(cache, name)
	if err != nil {
		return nil, err
	}
	return open(cache, p)
}

func open(cache string, p *plan.Plan) (*Lab, error) {
	b, err := os.ReadFile(p.PIDFile())
	if err != nil {
		return nil, fmt.Errorf("rig %q is just starting: %w", p.Name, err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		return nil, fmt.Errorf("rig %q: read %s: %w", p.Name, p.PIDFile(), err)
	}
	kc, err := os.ReadFile(p.Path("kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("rig %q: %w", p.Name, err)
	}
	return &Lab{plan: p, cache: cache, pid: pid, kubeconfig: kc}, nil
}

// Name is the rig's name.
func (l *Lab) Name() string { return l.plan.Name }

// Dir is the directory of the run; its log directories are worth keeping when
// a test fails.
func (l *Lab) Dir() string { return l.plan.Dir }

// Network has the addresses of the nodes and of the control plane.
func (l *Lab) Network() plan.Network { return l.plan.Network() }

// Nodes are the names of the nodes, on or off.
func (l *Lab) Nodes() []string { return l.plan.Nodes }

// Kubeconfig is a kubeconfig of an administrator, for clients on the host.
func (l *Lab) Kubeconfig() []byte { return l.kubeconfig }

// KubeconfigPath is a file with Kubeconfig.
func (l *Lab) KubeconfigPath() string { return l.plan.Path("kubeconfig") }

// AuditLog is the file in which the apiserver records, as lines of JSON, every
// request of a service account outside kube-system.
func (l *Lab) AuditLog() string { return l.plan.Log("audit") }

// NodeLogs is the directory with the logs of a node's programs.
func (l *Lab) NodeLogs(node string) string { return l.plan.NodeDir(node, "log") }

// EtcdVersions maps the etcd minors that the nodes have images of to their
// full versions, such as "3.6" to "v3.6.1".
func (l *Lab) EtcdVersions() map[string]string {
	versions := map[string]string{}
	for _, archive := range l.plan.Images {
		base := filepath.Base(archive) // etcd-v3.6.1-<hash>.tar
		if f := strings.Split(base, "-"); len(f) == 3 && f[0] == "etcd" {
			minor := f[1][1:strings.LastIndex(f[1], ".")]
			versions[minor] = f[1]
		}
	}
	return versions
}

// EtcdImage is the name of the image of an etcd minor, such as "3.6".
func (l *Lab) EtcdImage(minor string) (string, error) {
	v, ok := l.EtcdVersions()[minor]
	if !ok {
		return "", fmt.Errorf("the rig has no image of etcd %q; it has %v", minor, binaries.EtcdMinors)
	}
	return images.Etcd(v), nil
}

// KubectlCmd is a command that runs kubectl as an administrator, for callers
// that need its input, output or exit code.
func (l *Lab) KubectlCmd(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.plan.Bin["kubectl"], args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.KubeconfigPath())
	return cmd
}

// Kubectl runs kubectl as an administrator and returns what it prints.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := l.KubectlCmd(ctx, args...).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return string(out), fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// Status describes the nodes and partitions for people.
func (l *Lab) Status(ctx context.Context) (string, error) { return l.call(ctx, "status") }

// downTimeout is far more than the 0.3 s that it was seen to take on an idle
// machine.
const downTimeout = 2 * time.Minute

// Down ends the rig and removes all that it left on the machine.
func (l *Lab) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if l.lifeline != nil {
		_ = l.lifeline.Close()
	}
	if err := syscall.Kill(l.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end rig %q: %w", l.plan.Name, err)
	}
	if l.bound != nil {
		_ = l.bound.Wait() // it was killed: that is not an error
	}
	for {
		lock, err := runs.Claim(ctx, l.cache, l.plan.Name)
		if err == nil {
			return lock.Close()
		}
		if !errors.Is(err, runs.ErrRunning) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("end rig %q: %w", l.plan.Name, ctx.Err())
		}
	}
}

func (l *Lab) call(ctx context.Context, verb string, args ...string) (string, error) {
	out, err := control.Call(ctx, l.plan.ControlSocket(), verb, args...)
	if err != nil {
		return "", fmt.Errorf("rig %q: %w", l.plan.Name, err)
	}
	return out, nil
}
