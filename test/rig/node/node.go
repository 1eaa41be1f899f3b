package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/process"
)

// containerdSocket is where containerd listens inside the node.
const containerdSocket = "/run/containerd/containerd.sock"

// node is one node of a rig.
type node struct {
	plan  *plan.Plan
	name  string
	index int
}

// Run sets the node up and runs its programs until ctx ends. It waits until
// cable yields a byte, which says that the network interface is there.
func Run(ctx context.Context, p *plan.Plan, name string, cable io.Reader) error {
	i, err := p.Index(name)
	if err != nil {
		return err
	}
	n := &node{plan: p, name: name, index: i}
	if err := n.mount(); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if err := n.configure(); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if _, err := io.ReadFull(cable, make([]byte, 1)); err != nil {
		return fmt.Errorf("node %s: wait for the network interface: %w", name, err)
	}
	if err := n.network(ctx); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return n.run(ctx)
}

// run keeps the node's programs running. The kubelet starts when containerd
// has the pause image, without which no Pod starts; the other images, which
// are large, are loaded next to it.
func (n *node) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.containerd().Run(ctx) })
	g.Go(func() error { return n.kubeProxy().Run(ctx) })
	g.Go(func() error {
		if err := n.loadImages(ctx, n.plan.Pause); err != nil {
			return err
		}
		n.awaitAPI(ctx)
		g.Go(func() error { return n.kubelet().Run(ctx) })
		return n.loadImages(ctx, n.plan.Images...)
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	return nil
}

// awaitAPI spares the kubelet its back-off of up to 7 s when the node starts
// together with the control plane. A node also powers on without one, so it
// waits for a bounded time only.
func (n *node) awaitAPI(ctx context.Context) {
	roots := x509.NewCertPool()
	if pem, err := os.ReadFile(n.plan.PKI("ca.crt")); err == nil {
		roots.AppendCertsFromPEM(pem)
	}
	client := &http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true},
	}
	_ = process.Poll(ctx, 15*time.Second, 100*time.Millisecond, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.plan.Network().APIServer()+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// loadImages imports archives into containerd. The disk remembers those it
// has, so that powering on again costs nothing.
func (n *node) loadImages(ctx context.Context, archives ...string) error {
	for _, a := range archives {
		if LoadedImage(n.plan, n.name, a) {
			continue
		}
		err := process.Poll(ctx, 5*time.Minute, 100*time.Millisecond, func(ctx context.Context) error {
			return importImage(ctx, a)
		})
		if err != nil {
			return err
		}
		if err := RememberImage(n.plan, n.name, a); err != nil {
			return err
		}
	}
	return nil
}

func importImage(ctx context.Context, archive string) error {
	out, err := exec.CommandContext(ctx, "ctr", "-n", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import image %s: %w: %s", archive, err, strings.TrimSpace(string(out)))
	}
	return nil
}
