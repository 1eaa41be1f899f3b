package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcd-druid/druid/test/rig/cgroup"
	"github.com/etcd-druid/druid/test/rig/node"
	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/process"
)

// Deadlines are many times what was measured on two idle cores: others may
// build next to us.
const (
	apiTimeout   = 5 * time.Minute
	nodesTimeout = 8 * time.Minute
	pollInterval = 100 * time.Millisecond
)

// nodesWeight is how many sessions of the host the nodes weigh together.
// Without it they weigh what a compiler or a test next to them does, and the
// etcds in them wait for seconds to be run.
const nodesWeight = 16

// bringUp starts everything and returns when the cluster can be used. What
// takes long and needs nothing, containerd and its images, starts first.
func (s *Supervisor) bringUp(ctx context.Context) error {
	if err := baseNetwork(ctx, s.plan.Network()); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	nodes := cgroup.At(s.cgroups, filepath.Base(s.plan.Cgroups[0]))
	if err := nodes.Make(); err != nil {
		return err
	}
	if err := nodes.Weigh(nodesWeight); err != nil {
		return err
	}
	s.apiserver = s.kubeAPIServer()
	s.keep(ctx, s.etcd(), s.apiserver)
	if err := s.powerOnAll(ctx); err != nil {
		return err
	}
	s.say("started etcd, kube-apiserver and %d nodes", len(s.plan.Nodes))
	if err := process.Poll(ctx, apiTimeout, pollInterval, s.apiReady); err != nil {
		return s.explain(apiTimeout, err, s.plan.Log("kube-apiserver"), s.plan.Log("etcd"))
	}
	s.keep(ctx, s.controllerManager(), s.scheduler())
	s.say("the apiserver is ready")
	if err := process.Poll(ctx, apiTimeout, pollInterval, s.applyManifests); err != nil {
		return err
	}
	s.keep(ctx, s.addons()...)
	for _, wait := range []struct {
		done string
		try  func(context.Context) error
		log  string
	}{
		{"all nodes are Ready", s.nodesReady, s.plan.NodeDir(s.plan.Nodes[0], "log", "kubelet.log")},
		{"the controller manager works", s.defaultServiceAccount, s.plan.Log("kube-controller-manager")},
		{"the cluster's DNS answers", s.dnsReady, s.plan.Log("coredns")},
		{"all images are loaded", s.imagesLoaded, s.plan.NodeDir(s.plan.Nodes[0], "log", "node.log")},
	} {
		if err := process.Poll(ctx, nodesTimeout, pollInterval, wait.try); err != nil {
			return s.explain(nodesTimeout, err, wait.log)
		}
		s.say("%s", wait.done)
	}
	return nil
}

func (s *Supervisor) keep(ctx context.Context, services ...*process.Service) {
	for _, svc := range services {
		s.group.Go(func() error { return svc.Run(ctx) })
	}
}

func (s *Supervisor) powerOnAll(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.plan.Nodes {
		if err := s.powerOn(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *Supervisor) apiReady(ctx context.Context) error {
	if err := s.kube.do(ctx, "GET", "/readyz", "", nil, nil); err != nil {
		return fmt.Errorf("wait for the apiserver: %w", err)
	}
	return nil
}

func (s *Supervisor) defaultServiceAccount(ctx context.Context) error {
	return s.kube.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
}

// nodesReady reports which nodes are not Ready, and which died while starting.
func (s *Supervisor) nodesReady(ctx context.Context) error {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := s.kube.get(ctx, "/api/v1/nodes", &list); err != nil {
		return err
	}
	ready := map[string]bool{}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				ready[n.Metadata.Name] = true
			}
		}
	}
	var missing []string
	for _, n := range s.plan.Nodes {
		if !ready[n] {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the nodes %s are not Ready", strings.Join(missing, ", "))
	}
	return nil
}

func (s *Supervisor) dnsReady(ctx context.Context) error {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(s.plan.Network().ControlPlane, "53"))
	}}
	_, err := r.LookupHost(ctx, "kubernetes.default.svc."+plan.ClusterDomain+".")
	return err
}

func (s *Supervisor) imagesLoaded(context.Context) error {
	for _, n := range s.plan.Nodes {
		for _, a := range s.images() {
			if !node.LoadedImage(s.plan, n, a) {
				return fmt.Errorf("node %s has not loaded image %s", n, a)
			}
		}
	}
	return nil
}

// explain adds the ends of logs to an error, so that a failed start can be
// understood after its directory is gone.
func (s *Supervisor) explain(waited time.Duration, err error, logs ...string) error {
	const most = 2000
	err = fmt.Errorf("%w; gave up after %s", err, waited)
	for _, l := range logs {
		b, readErr := os.ReadFile(l)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		if len(b) > most {
			b = b[len(b)-most:]
		}
		err = fmt.Errorf("%w\n--- end of %s:\n%s", err, l, b)
	}
	return err
}
