package supervisor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/etcd-druid/druid/test/rig/node"
	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/process"
)

// service makes a service of the control plane from a binary of the plan.
func (s *Supervisor) service(name, binary string, args ...string) *process.Service {
	return &process.Service{Name: name, Path: s.plan.Bin[binary], Args: args, Log: s.plan.Log(name)}
}

// etcd is Kubernetes' own; it need not survive a power cut of the host.
func (s *Supervisor) etcd() *process.Service {
	return s.service(
		"etcd", "etcd-3.7",
		"--data-dir="+s.plan.Path("etcd"),
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380",
		"--unsafe-no-fsync", "--log-level=warn",
	)
}

func (s *Supervisor) kubeAPIServer() *process.Service {
	p := s.plan
	return s.service(
		"kube-apiserver", "kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=::", "--advertise-address="+p.Network().ControlPlane, "--secure-port=443",
		"--tls-cert-file="+p.PKI("apiserver.crt"), "--tls-private-key-file="+p.PKI("apiserver.key"),
		"--client-ca-file="+p.PKI("ca.crt"),
		"--kubelet-client-certificate="+p.PKI("kubelet-client.crt"),
		"--kubelet-client-key="+p.PKI("kubelet-client.key"),
		"--kubelet-certificate-authority="+p.PKI("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc."+plan.ClusterDomain,
		"--service-account-key-file="+p.PKI("sa.pub"), "--service-account-signing-key-file="+p.PKI("sa.key"),
		"--service-cluster-ip-range="+p.Network().Services,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--profiling=false",
		"--audit-policy-file="+p.Path("etc", "audit-policy.yaml"), "--audit-log-path="+p.Log("audit"),
		"--audit-log-maxsize=200", "--audit-log-maxbackup=1",
		"--v=1",
	)
}

func (s *Supervisor) controllerManager() *process.Service {
	p := s.plan
	return s.service(
		"kube-controller-manager", "kube-controller-manager",
		append(
			s.loopbackServer("controller-manager"),
			"--service-account-private-key-file="+p.PKI("sa.key"), "--root-ca-file="+p.PKI("ca.crt"),
			"--cluster-signing-cert-file="+p.PKI("ca.crt"), "--cluster-signing-key-file="+p.PKI("ca.key"),
			"--use-service-account-credentials=true", "--allocate-node-cidrs=false",
			"--node-monitor-grace-period="+p.Timings.NodeMonitorGrace,
			"--node-monitor-period="+p.Timings.NodeMonitorPeriod,
		)...,
	)
}

func (s *Supervisor) scheduler() *process.Service {
	return s.service("kube-scheduler", "kube-scheduler", s.loopbackServer("scheduler")...)
}

// loopbackServer are the flags that the controller manager and the scheduler
// share. There is one of each, so that electing a leader would only cost time.
func (s *Supervisor) loopbackServer(name string) []string {
	kubeconfig := s.plan.PKI(name + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--tls-cert-file=" + s.plan.PKI(name+".crt"), "--tls-private-key-file=" + s.plan.PKI(name+".key"),
		"--bind-address=127.0.0.1", "--leader-elect=false", "--v=1",
	}
}

// addons are what a cluster gets after its control plane: DNS, volumes, and
// Service addresses for clients in the control plane's own network namespace.
func (s *Supervisor) addons() []*process.Service {
	p := s.plan
	return []*process.Service{
		s.service("coredns", "coredns", "-conf", p.Path("etc", "Corefile")),
		s.service(
			"provisioner", "provisioner", "-kubeconfig="+p.PKI("admin.kubeconfig"),
			"-local-root="+p.Path("nodes"), "-network-root="+p.Path("network-volumes"),
		),
		// It must be some node's; which one matters only for node ports.
		s.service(
			"kube-proxy", "kube-proxy", "--config="+p.Path("etc", "kube-proxy.yaml"),
			"--hostname-override="+p.Nodes[0], "--v=1",
		),
	}
}

// auditPolicy records the requests of service accounts, which are those of
// the programs under test, and not of Kubernetes' own controllers.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  userGroups: ["system:serviceaccounts:kube-system"]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// corefile serves the cluster's names, on the control plane's address and on
// that of the DNS Service. It caches for one time, NXDOMAIN too.
const corefile = `.:53 {
  bind %[1]s %[2]s
  errors
  health %[6]s
  ready %[7]s
  kubernetes %[3]s in-addr.arpa ip6.arpa {
    kubeconfig %[4]s
    pods insecure
    ttl %[5]d
  }
  cache %[5]d
}
`

// configure writes the control plane's configuration files.
func (s *Supervisor) configure() error {
	p := s.plan
	dns := fmt.Sprintf(corefile, p.Network().ControlPlane, p.Network().DNS, plan.ClusterDomain,
		p.PKI("admin.kubeconfig"), p.Timings.DNSTTLSeconds, net.JoinHostPort(p.Network().DNS, "8080"), net.JoinHostPort(p.Network().DNS, "8181"))
	for name, content := range map[string]string{"audit-policy.yaml": auditPolicy, "Corefile": dns} {
		file := p.Path("etc", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("configure the control plane: %w", err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return fmt.Errorf("configure the control plane: %w", err)
		}
	}
	return node.ProxyConfig(p, p.Path("etc", "kube-proxy.yaml"))
}
