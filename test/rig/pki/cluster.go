package pki

import (
	"fmt"
	"os"

	"github.com/etcd-druid/druid/test/rig/plan"
)

// Cluster makes the whole PKI of a rig in pki/ of its directory, and the
// kubeconfig for users on the host next to it.
func Cluster(p *plan.Plan) error {
	ca, err := New(p.PKI(""))
	if err != nil {
		return err
	}
	if err := ca.ServiceAccountKey(); err != nil {
		return err
	}
	for _, s := range subjects(p) {
		if err := ca.Issue(s); err != nil {
			return err
		}
	}
	return os.Rename(p.PKI("host.kubeconfig"), p.Path("kubeconfig"))
}

// subjects is everyone who needs a certificate. Nodes get the identity that the
// Node authorizer knows, so that it is really in force.
func subjects(p *plan.Plan) []Subject {
	net := p.Network()
	inside := net.APIServer()
	local := []string{"localhost", "127.0.0.1"}
	api := append([]string{
		net.ControlPlane, net.API, "kubernetes", "kubernetes.default",
		"kubernetes.default.svc", "kubernetes.default.svc." + plan.ClusterDomain,
	}, local...)
	masters := []string{"system:masters"}
	ss := []Subject{
		{File: "apiserver", User: "kube-apiserver", Names: api},
		{File: "kubelet-client", User: "kube-apiserver-kubelet-client", Groups: masters},
		{File: "admin", User: "admin", Groups: masters, Server: inside},
		{File: "host", User: "admin", Groups: masters, Server: fmt.Sprintf("https://127.0.0.1:%d", p.APIPort)},
		{File: "controller-manager", User: "system:kube-controller-manager", Names: local, Server: inside},
		{File: "scheduler", User: "system:kube-scheduler", Names: local, Server: inside},
		{File: "proxy", User: "system:kube-proxy", Server: inside},
		{File: "rig", User: "rig", Groups: masters, Server: inside},
	}
	for i, n := range p.Nodes {
		ss = append(ss, Subject{
			File: n, User: "system:node:" + n, Groups: []string{"system:nodes"},
			Names: []string{n, net.Node(i + 1)}, Server: inside,
		})
	}
	return ss
}
