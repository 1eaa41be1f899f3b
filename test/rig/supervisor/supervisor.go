package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/test/rig/cgroup"
	"github.com/etcd-druid/druid/test/rig/control"
	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/process"
)

// Files are what the supervisor inherits.
type Files struct {
	// Status takes the news of the start, as a stream of Status.
	Status *os.File
	// API listens on the host for users of the apiserver.
	API *os.File
	// Lock is held as long as the rig is alive.
	Lock *os.File
	// Lifeline ends when the process that wants the rig ends; nil for a rig
	// that lives until it is taken down.
	Lifeline *os.File
}

// Status is one piece of news of the start.
type Status struct {
	Step, Error string
	Ready       bool
}

// Supervisor runs one rig.
type Supervisor struct {
	plan      *plan.Plan
	cgroups   []cgroup.Hierarchy
	kube      *kubeClient
	apiserver *process.Service
	group     *errgroup.Group
	status    *json.Encoder

	mu    sync.Mutex // guards what follows, and the plan's Images
	nodes map[string]*machine
	cuts  cuts
}

// Run brings the rig up and keeps it until ctx or the lifeline ends.
func Run(ctx context.Context, p *plan.Plan, f Files) error {
	defer f.Lock.Close() // and keeps it reachable until then
	hs, err := cgroup.Detect()
	if err != nil {
		return err
	}
	kube, err := newKubeClient(p)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	s := &Supervisor{
		plan: p, cgroups: hs, kube: kube, group: g,
		status: json.NewEncoder(f.Status), nodes: map[string]*machine{}, cuts: cuts{},
	}
	g.Go(func() error { return s.watch(ctx, f.Lifeline) })
	g.Go(func() error { <-ctx.Done(); s.killNodes(); return nil })
	g.Go(func() error { return forward(ctx, f.API, net.JoinHostPort(p.Network().ControlPlane, "443")) })
	g.Go(func() error { return control.Serve(ctx, p.ControlSocket(), s.verbs()) })
	g.Go(func() error {
		defer f.Status.Close()
		if err := s.bringUp(ctx); err != nil {
			_ = s.status.Encode(Status{Error: err.Error()})
			return err
		}
		return s.status.Encode(Status{Ready: true})
	})
	return g.Wait()
}

// watch ends the rig with the process that holds the lifeline's other end.
func (s *Supervisor) watch(ctx context.Context, lifeline *os.File) error {
	if lifeline == nil {
		<-ctx.Done()
		return nil
	}
	_, _ = io.Copy(io.Discard, lifeline)
	return fmt.Errorf("the process that wanted rig %q is gone", s.plan.Name)
}

func (s *Supervisor) say(format string, args ...any) {
	// A reader that went away does not stop the rig: it may be `up`, killed.
	_ = s.status.Encode(Status{Step: fmt.Sprintf(format, args...)})
}

// forward passes connections from the host on to an address of the rig.
func forward(ctx context.Context, listener *os.File, to string) error {
	l, err := net.FileListener(listener)
	if err != nil {
		return fmt.Errorf("listen for users on the host: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { <-ctx.Done(); return l.Close() })
	g.Go(func() error {
		for {
			c, err := l.Accept()
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // the listener was closed because the rig ends
			case err != nil:
				return fmt.Errorf("accept a user on the host: %w", err)
			}
			g.Go(func() error { splice(ctx, c, to); return nil })
		}
	})
	return g.Wait()
}

// splice joins a connection with one to an address until either ends. Its
// errors are those of a peer that went away, which is not the rig's affair.
func splice(ctx context.Context, a net.Conn, to string) {
	defer a.Close()
	b, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer b.Close()
	var g errgroup.Group
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		g.Go(func() error {
			_, err := io.Copy(pair[0], pair[1])
			if c, ok := pair[0].(*net.TCPConn); ok {
				_ = c.CloseWrite()
			}
			return err
		})
	}
	_ = g.Wait()
}
