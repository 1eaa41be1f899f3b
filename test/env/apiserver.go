package env

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// startTimeout of kube-apiserver: it needs 3 to 6 seconds on an idle machine, more next to a compiler.
const startTimeout = 5 * time.Minute

// shared is the API server of a test binary whose TestMain is Main.
var shared struct {
	sync.Mutex
	active bool
	server *envtest.Environment
}

// reserved are the ports of all servers of the binary. A reservation ends when nothing refers to its release any more. Tests with a
// server of their own start at once, so they have a lock of their own.
var reserved struct {
	sync.Mutex
	releases []func()
}

// ManyAtOnce lets more parallel tests run at once than there are cores, unless the command line says how many: for packages
// whose parallel tests wait most of the time. Six suit tests that keep an API server or agents busy, eight those that wait for etcd. Call it
// from TestMain.
func ManyAtOnce(tests int) {
	_ = flag.Set("test.parallel", strconv.Itoa(tests)) // every test binary has it
}

// Main runs a package's tests with one API server for all of them, started by the first that asks, and returns the exit
// code. Call it from TestMain. Tests that share a server keep apart by namespace.
func Main(m *testing.M) int {
	shared.active = true
	code := m.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	if shared.server == nil {
		return code
	}
	if err := shared.server.Stop(); err != nil {
		fmt.Printf("stop the API server: %v\n", err)
		return max(code, 1)
	}
	return code
}

// APIServer returns the configuration of an administrator of a real kube-apiserver with its own etcd, RBAC switched on and
// druid's CustomResourceDefinitions installed. No controller and no kubelet runs next to it: what they would do, a test
// does itself. Under Main the server is shared, else it ends with the test.
func APIServer(tb testing.TB) *rest.Config {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		return rest.CopyConfig(shared.server.Config)
	}
	if !shared.active {
		return OwnAPIServer(tb)
	}
	server, err := start(tb)
	if err != nil {
		tb.Fatalf("start an API server: %v", err)
	}
	shared.server = server
	return rest.CopyConfig(server.Config)
}

// OwnAPIServer is APIServer with a server that no other test uses.
func OwnAPIServer(tb testing.TB) *rest.Config {
	tb.Helper()
	server, err := start(tb)
	if err != nil {
		tb.Fatalf("start an API server: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Errorf("stop the API server: %v", err)
		}
	})
	return rest.CopyConfig(server.Config)
}

func start(tb testing.TB) (*envtest.Environment, error) {
	tb.Helper()
	repo, err := binaries.RepoDir()
	if err != nil {
		return nil, err
	}
	cache, err := binaries.CacheDir()
	if err != nil {
		return nil, err
	}
	built, err := binaries.Builder{Repo: repo, Cache: cache, Progress: tb.Logf}.Build(tb.Context())
	if err != nil {
		return nil, err
	}
	server := &envtest.Environment{
		CRDInstallOptions: envtest.CRDInstallOptions{
			Paths: []string{
				filepath.Join(repo, "manifests", "install", "etcd.druid.dev_etcdclusters.yaml"),
				filepath.Join(repo, "manifests", "install", "etcd.druid.dev_etcdsnapshots.yaml"),
			},
			ErrorIfPathMissing: true,
			MaxTime:            startTimeout,
		},
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  startTimeout,
		// An existing cluster of the developer must never be used by accident.
		UseExistingCluster: new(bool),
	}
	dir := tb.TempDir() // each program reads its script before it serves
	apiserver, err := endsWithTest(dir, built["kube-apiserver"])
	if err != nil {
		return nil, err
	}
	etcd, err := endsWithTest(dir, built["etcd-3.7"])
	if err != nil {
		return nil, err
	}
	server.ControlPlane.GetAPIServer().Path = apiserver
	// envtest's 254 addresses are too few for the Services of all tests of a package. The second range is for Services of
	// two families.
	server.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", "10.0.0.0/16,fd00:10::/112")
	server.ControlPlane.Etcd = &envtest.Etcd{Path: etcd}
	server.ControlPlane.KubectlPath = built["kubectl"]
	if err := assignPorts(tb.Context(), server); err != nil {
		return nil, err
	}
	if _, err := server.Start(); err != nil {
		return nil, err
	}
	// Tests ask as fast as they can.
	server.Config.QPS = -1
	return server, nil
}

// endsWithTest writes a script that starts a program, which the kernel ends when this process ends in any manner. envtest cannot set this
// itself, and a server that a killed test leaves behind uses most of a core. The server may use memory, and collects its garbage less often:
// that was a tenth of its CPU time.
func endsWithTest(dir, program string) (script string, err error) {
	script = filepath.Join(dir, filepath.Base(program))
	content := fmt.Sprintf("#!/bin/sh\nexec env GOGC=400 setpriv --pdeathsig KILL -- %q \"$@\"\n", program)
	return script, os.WriteFile(script, []byte(content), 0o700) //nolint:gosec // it is executed
}

// assignPorts gives the server ports that nothing takes between now and the moment, seconds later, when it listens there:
// left to itself it draws some that are free now. They are its own for as long as this process lives.
func assignPorts(ctx context.Context, server *envtest.Environment) error {
	var ports [3]string
	for i := range ports {
		port, release, err := machine.Reserve(ctx)
		if err != nil {
			return err
		}
		reserved.Lock()
		reserved.releases = append(reserved.releases, release)
		reserved.Unlock()
		ports[i] = strconv.Itoa(port)
	}
	const host = "127.0.0.1"
	etcd, apiserver := server.ControlPlane.Etcd, server.ControlPlane.GetAPIServer()
	etcd.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort(host, ports[0])}
	etcd.Configure().Set("listen-peer-urls", "http://"+net.JoinHostPort(host, ports[1]))
	apiserver.SecureServing.Address, apiserver.SecureServing.Port = host, ports[2]
	apiserver.Configure().Set("advertise-address", host) // it takes that of the default route otherwise, which a network of a test lacks
	return nil
}

// Namespace makes a namespace for one test and returns its name.
func Namespace(tb testing.TB, config *rest.Config) string {
	tb.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatalf("make a client: %v", err)
	}
	ns, err := client.CoreV1().Namespaces().Create(tb.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("create a namespace: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		// Without a namespace controller the namespace stays Terminating: nothing more can be created in it.
		if err := client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			tb.Logf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}
