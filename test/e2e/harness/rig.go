package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/rig/lab"
)

const (
	// rigVariable names a running rig to use instead of a private one: a developer saves the time to bring one up.
	rigVariable = "RIG_NAME"
	// ipv6Variable, if it is set, gives the private rig addresses of IPv6 alone.
	ipv6Variable = "RIG_IPV6"
	// keepVariable leaves the namespaces of the tests behind, to be looked at.
	keepVariable = "E2E_KEEP"
)

// OwnRigOfIPv6 returns the environment in which Start brings up a private rig with addresses of IPv6 alone.
func OwnRigOfIPv6() []string { return []string{rigVariable + "=", ipv6Variable + "=1"} }

// installTimeout is for the images' first start on a machine that has just built them.
const installTimeout = 6 * time.Minute

// Rig is a Kubernetes cluster with druid installed.
type Rig struct {
	// Lab brings about what happens to nodes and to the API server.
	Lab    *lab.Lab
	Client client.Client
	Kube   kubernetes.Interface

	watcher  client.WithWatch
	auditLog string
	keep     bool
	agents   Pace
}

// Start brings up a rig that ends with this process, or attaches to the one that RIG_NAME names, and installs druid from
// the sources as they are, with agents of this pace. The caller calls stop.
func Start(progress io.Writer, agents Pace) (rig *Rig, stop func(), err error) {
	begun := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "rig %4.0fs: %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	ctx := context.Background()
	l, stop, err := open(ctx, say)
	if err != nil {
		return nil, nil, err
	}
	rig, err = attach(l)
	if err == nil {
		rig.agents = agents
		say("installing druid")
		err = rig.install(ctx, agents)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	say("druid is ready")
	return rig, stop, nil
}

func open(ctx context.Context, say func(string, ...any)) (*lab.Lab, func(), error) {
	if name := os.Getenv(rigVariable); name != "" {
		l, err := lab.Attach(name)
		if err != nil {
			return nil, nil, err
		}
		say("using rig %q; loading druid's image", name)
		return l, func() {}, l.LoadDruid(ctx)
	}
	l, err := lab.Up(ctx, lab.Options{Name: fmt.Sprintf("e2e-%d", os.Getpid()), IPv6: os.Getenv(ipv6Variable) != "", Bound: true, Log: say})
	if err != nil {
		return nil, nil, err
	}
	return l, func() {
		if err := l.Down(context.WithoutCancel(ctx)); err != nil {
			say("take the rig down: %v", err)
		}
	}, nil
}

func attach(l *lab.Lab) (*Rig, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(l.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the rig's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, -1 // a test waits for the cluster, not for its own client
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	objects, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client of the rig: %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the rig: %w", err)
	}
	return &Rig{
		Lab: l, Client: objects, Kube: kube, watcher: objects,
		auditLog: l.AuditLog(), keep: os.Getenv(keepVariable) != "",
	}, nil
}

// install applies the install manifests as a user would, and restarts a druid that ran already, whose image is older.
func (r *Rig) install(ctx context.Context, agents Pace) error {
	flags, err := agents.flags()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "druid-install-")
	if err != nil {
		return fmt.Errorf("install druid: %w", err)
	}
	defer os.RemoveAll(folder)
	repo, err := binaries.RepoDir()
	if err != nil {
		return err
	}
	if err := overlay(folder, filepath.Join(repo, "manifests", "install"), flags); err != nil {
		return fmt.Errorf("install druid with %v: %w", flags, err)
	}
	pods, err := r.DruidPods(ctx)
	if err != nil {
		return err
	}
	if _, err := r.Lab.Kubectl(ctx, "apply", "-k", folder); err != nil {
		return err
	}
	for _, p := range pods {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, &p)); err != nil {
			return fmt.Errorf("restart druid: %w", err)
		}
	}
	if _, err := poll(ctx, installTimeout, r.druidReady); err != nil {
		return fmt.Errorf("%w\n%s", err, r.logsOf(ctx, DruidNamespace, nil))
	}
	return nil
}

// Dial connects to an address inside the rig: a Pod's, a Service's, or a name that its DNS knows.
func (r *Rig) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return r.Lab.DialContext(ctx, network, address)
}

// EtcdVersion is the version, as spec.version has it, of the rig's image of an etcd minor.
func (r *Rig) EtcdVersion(t testing.TB, minor string) string {
	t.Helper()
	version, ok := r.Lab.EtcdVersions()[minor]
	if !ok {
		t.Fatalf("the rig has no image of etcd %s", minor)
	}
	return strings.TrimPrefix(version, "v")
}
